"""Which replayed messages are the message that was sent."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.trajectory.messages import Digester, answer_digest, tell

SENT: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "I should add them.",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 1, "b": 2.0, "s": "é"}'},
        }
    ],
}


def calls(arguments: str, name: str = "add", call_id: str = "call_1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}


SAME = {
    "as it was": SENT,
    "reasoning dropped": {k: v for k, v in SENT.items() if k != "reasoning_content"},
    "null content as empty text": SENT | {"content": ""},
    "null content as no parts": SENT | {"content": []},
    "content left out": {k: v for k, v in SENT.items() if k != "content"},
    "arguments written without spaces": SENT | calls('{"a":1,"b":2.0,"s":"é"}'),
    "argument keys in another order": SENT | calls('{"s": "é", "b": 2.0, "a": 1}'),
    "arguments with escapes and 2.0 as 2": SENT | calls('{"a":1,"b":2,"s":"\\u00e9"}'),
    "call renamed": SENT | calls('{"a": 1, "b": 2.0, "s": "é"}', call_id="toolu_9"),
    "as Anthropic blocks": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I should add them.", "signature": "x"},
            {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1, "b": 2, "s": "é"}},
        ],
    },
}


@pytest.mark.parametrize("replayed", SAME.values(), ids=SAME.keys())
def test_a_replayed_call_is_recognised(replayed: dict[str, Any]) -> None:
    assert tell(replayed).digest == answer_digest(json.dumps(SENT).encode())


OTHER = {
    "another argument": SENT | calls('{"a": 1, "b": 3, "s": "é"}'),
    "another tool": SENT | calls('{"a": 1, "b": 2, "s": "é"}', name="sub"),
    "a call taken away": SENT | {"tool_calls": []},
    "text put in": SENT | {"content": "Adding."},
    "another role": SENT | {"role": "user"},
}


@pytest.mark.parametrize("replayed", OTHER.values(), ids=OTHER.keys())
def test_a_changed_call_is_not(replayed: dict[str, Any]) -> None:
    assert tell(replayed).digest != tell(SENT).digest


TEXTS = {
    "parts for text": [{"type": "text", "text": "The answer"}, {"type": "text", "text": " is 4."}],
    "stripped": "The answer is 4.",
    "thinking inside the text": "<think>\nhm\n</think>\n\nThe answer is 4.\n",
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS.keys())
def test_an_answer_may_lose_white_space_and_thinking(content: object) -> None:
    sent = tell({"role": "assistant", "content": "\n\nThe answer is 4.\n"})
    assert tell({"role": "assistant", "content": content}) == sent


def test_unclosed_thinking_is_text_and_linear() -> None:
    text = "<think>" * 50_000
    assert (
        tell({"role": "assistant", "content": text}).digest
        != tell({"role": "assistant", "content": ""}).digest
    )


def test_white_space_counts_in_what_the_model_is_told() -> None:
    assert (
        tell({"role": "tool", "content": "a b"}).digest
        != tell({"role": "tool", "content": "ab"}).digest
    )


def test_cache_marks_that_move_between_requests_do_not_count() -> None:
    block = {"type": "text", "text": "hi"}
    marked = block | {"cache_control": {"type": "ephemeral"}}
    assert tell({"role": "user", "content": [block]}) == tell({"role": "user", "content": [marked]})


def test_arguments_that_are_not_json_are_compared_as_text() -> None:
    assert tell(SENT | calls('{"a": ')).digest == tell(SENT | calls('{"a":')).digest
    assert tell(SENT | calls('{"a": ')).digest != tell(SENT | calls('{"b": ')).digest


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "tool_calls", "function", "arguments", "output"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(JSON)
def test_whatever_a_client_sends_has_a_digest(message: Any) -> None:
    as_bytes = json.dumps(message).encode()
    talk = Digester().read("m", None, None, [as_bytes])
    assert talk.chains == Digester().read("m", None, None, [as_bytes]).chains


def test_a_message_nested_beyond_reading_has_a_digest() -> None:
    deep = b'{"role": "user", "content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert Digester().read("m", None, None, [deep]).chain


def test_content_that_is_no_text_still_counts() -> None:
    told = {
        tell({"role": "user", "content": content}).digest for content in ({"a": 1}, {"a": 2}, 3)
    }
    assert len(told) == 3


def raw(role: str, content: str) -> bytes:
    return json.dumps({"role": role, "content": content}).encode()


def test_raw_and_parsed_messages_give_the_same_chain_whatever_was_read_before() -> None:
    talk = [raw("system", "s"), raw("user", "a"), raw("assistant", "b"), raw("user", "c")]
    fresh = Digester().read("m", None, None, [json.loads(one) for one in talk])
    digester = Digester()
    for requests in (
        [raw("system", "s"), raw("system", "t"), raw("user", "a")],
        talk[:2],
        [raw("system", "s"), raw("user", "x"), raw("user", "y")],
        talk[:3],
        talk,
        talk,
    ):
        last = digester.read("m", None, None, requests)
    assert last.chains == fresh.chains
    assert last.root == fresh.root


def test_the_root_is_model_tools_and_system() -> None:
    digester = Digester()
    tools = [{"type": "function", "function": {"name": "f"}}]
    user = [raw("user", "a")]
    roots = {
        digester.read("m", None, None, user).root,
        digester.read("n", None, None, user).root,
        digester.read("m", "s", None, user).root,
        digester.read("m", None, tools, user).root,
        digester.read("m", None, None, [raw("system", "s"), *user]).root,
    }
    assert len(roots) == 5
    as_bytes = digester.read("m", None, json.dumps(tools).encode(), user)
    assert as_bytes.root == digester.read("m", None, tools, user).root
