"""Items to chat messages, and an answer's items back to the message that they came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_answer import answer, answers, call, outlet, texts

from agentcore_rl_toolkit.gateway.dialects.base import encode
from agentcore_rl_toolkit.gateway.dialects.responses import RESPONSES
from agentcore_rl_toolkit.gateway.dialects.responses_item import join_items
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.trajectory.messages import reasoning_of, tell

KINDS = ("message", "reasoning", "function_call", "custom", "namespace", "function", "grammar")
FIELDS = st.sampled_from(
    [
        *("input", "tools", "tool_choice", "text", "format", "reasoning", "include", "type", "id"),
        *("name", "content", "role", "action", "output", "arguments", "schema", "instructions"),
        *("encrypted_content", "call_id", "namespace", "metadata", "previous_response_id"),
    ]
)


def chat(*items: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in join_items([encode(item) for item in items])]


def output(message: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    return list(json.loads(outlet(body).whole(answer(message)))["output"])


# --- what a client may send -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        pytest.param(
            [{"role": "user", "content": "hi"}],
            [{"role": "user", "content": "hi"}],
            id="a message needs no type",
        ),
        pytest.param(
            [
                {"role": "developer", "content": "be kind"},
                {"role": "system", "content": [{"type": "input_text", "text": "and brief"}]},
                {"role": "user", "content": "hi"},
                {"role": "developer", "content": "now French"},
            ],
            [
                {"role": "system", "content": "be kind\n\nand brief"},
                {"role": "user", "content": "hi"},
                {"role": "system", "content": "now French"},
            ],
            id="leading instructions become one system message",
        ),
        pytest.param(
            [
                {"type": "reasoning", "id": "x", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "one"},
                {"type": "function_call_output", "call_id": "c2", "output": "two"},
            ],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "",
                    "tool_calls": [call("look", "{}"), call("look", "{}", "c2")],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
            ],
            id="calls side by side are one answer",
        ),
        pytest.param(
            [
                {"type": "message", "role": "assistant", "content": "one"},
                {"type": "message", "role": "assistant", "content": "two"},
            ],
            [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}],
            id="messages without ids are two answers",
        ),
        pytest.param(
            [
                {
                    "type": "local_shell_call",
                    "call_id": "c1",
                    "action": {"type": "exec", "command": ["ls"], "env": {}},
                },
                {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"},
            ],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call("local_shell", '{"command":["ls"]}')],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
            ],
            id="the local shell is a function",
        ),
        pytest.param(
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "what is it?"},
                        {"type": "input_image", "image_url": "data:,", "detail": "auto"},
                    ],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what is it?"},
                        {"type": "image_url", "image_url": {"url": "data:,"}},
                    ],
                }
            ],
            id="images are passed on",
        ),
    ],
)
def test_items_become_messages(items: list[Any], wanted: list[Any]) -> None:
    assert chat(*items) == wanted


def test_parallel_calls_with_outputs_between_them_are_one_answer() -> None:
    items = output(
        {"role": "assistant", "tool_calls": [call("look", "{}"), call("ask", "{}", "d")]}
    )
    outputs = [
        {"type": "function_call_output", "call_id": one["call_id"], "output": "x"} for one in items
    ]
    told = chat(items[0], outputs[0], items[1], outputs[1])
    assert [message["role"] for message in told] == ["assistant", "tool", "tool"]
    assert len(told[0]["tool_calls"]) == 2


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        pytest.param({"type": "web_search_call", "id": "w"}, "not supported", id="hosted items"),
        pytest.param({"role": "robot", "content": ""}, "role", id="an unknown role"),
        pytest.param({"type": "function_call", "name": "x"}, "'arguments'", id="half a call"),
        pytest.param(
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
            "not made by this gateway",
            id="another provider's reasoning",
        ),
        pytest.param(
            {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
            "input_file",
            id="files",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_by_its_place(item: Any, reason: str) -> None:
    with pytest.raises(Refusal, match=r"input\[1\]") as caught:
        join_items([encode({"role": "user", "content": "hi"}), encode(item)])
    assert reason in caught.value.message
    assert caught.value.status == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(body=st.dictionaries(FIELDS, json_values, max_size=6))
def test_any_request_is_read_or_refused(body: dict[str, Any]) -> None:
    try:
        messages = RESPONSES.parse(encode({"input": "hi", **body})).messages or []
    except Refusal:
        return
    assert all(isinstance(json.loads(message), dict) for message in messages)


@pytest.mark.parametrize("kind", [["x"], {"a": 1}, None, 7])
def test_a_tool_without_a_proper_type_is_refused(kind: Any) -> None:
    with pytest.raises(Refusal, match="tools of type"):
        RESPONSES.parse(encode({"input": "hi", "tools": [{"type": kind}]}))


def test_an_item_nested_beyond_reading_is_refused() -> None:
    with pytest.raises(Refusal, match=r"input\[0\]"):
        join_items([b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])


# --- there and back -------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(message=answers(), sealed=st.booleans(), drop=st.sampled_from(["", "ids", "reasoning"]))
def test_items_sent_back_are_the_message_that_was_sent(
    message: dict[str, Any], sealed: bool, drop: str
) -> None:
    way = outlet({"include": ["reasoning.encrypted_content"]} if sealed else None)
    sent = json.loads(way.sent(encode(message)))
    items = json.loads(way.whole(answer(message)))["output"]
    if drop == "reasoning":
        items = [item for item in items if item["type"] != "reasoning"]
    if drop == "ids":
        items = [{k: v for k, v in item.items() if k != "id"} for item in items]
    (told,) = chat(*items)
    assert tell(told) == tell(sent)
    if drop == "":
        assert reasoning_of(told) == reasoning_of(message)


@given(text=texts)
def test_an_honest_custom_call_is_kept_as_the_engine_wrote_it(text: str) -> None:
    arguments = json.dumps({"input": text}, indent=1)
    message = encode(
        {"role": "assistant", "content": None, "tool_calls": [call("patch", arguments)]}
    )
    assert outlet().sent(message) == message
    (item,) = output(json.loads(message))
    assert (item["type"], item["input"]) == ("custom_tool_call", text)


def test_a_custom_call_that_is_cut_off_is_known_by_what_the_client_got() -> None:
    message = {"role": "assistant", "tool_calls": [call("patch", '{"input": "half a pa')]}
    sent = json.loads(outlet().sent(encode(message)))
    (item,) = output(message)
    assert item["input"] == "half a pa"
    assert tell(chat(item)[0]) == tell(sent) != tell(message)


def test_calls_that_do_not_fit_their_tool_stay_function_calls() -> None:
    said = [call("patch", "*** raw"), call("local_shell", '{"command": "ls"}', "c2")]
    items = output({"role": "assistant", "tool_calls": said})
    assert [(item["type"], item["arguments"]) for item in items] == [
        ("function_call", "*** raw"),
        ("function_call", '{"command": "ls"}'),
    ]


def test_a_namespaced_call_is_named_in_two_parts() -> None:
    (item,) = output({"role": "assistant", "tool_calls": [call("team__ask", "{}")]})
    assert (item["namespace"], item["name"]) == ("team", "ask")
    assert chat(item)[0]["tool_calls"][0]["function"]["name"] == "team__ask"
