"""Anthropic's blocks to chat messages and back, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.dialects import MESSAGES
from agentcore_rl_toolkit.gateway.dialects.messages_reply import MessagesOutlet, sign
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.trajectory.messages import tell

TEXT = st.text(min_size=1).filter(str.strip)
NAME = st.text("abcdefgh_", min_size=1, max_size=12)
OBJECT = st.dictionaries(NAME, st.integers() | st.text() | st.booleans(), max_size=3)


def parse(**body: Any) -> Any:
    body = {"model": "policy", "max_tokens": 9, **body}
    return MESSAGES.parse(json.dumps(body).encode())


def chat(**body: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in parse(**body).messages]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """A chat answer as engines give it."""
    calls = [
        {
            "id": f"call_{at}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for at, (name, arguments) in enumerate(draw(st.lists(st.tuples(NAME, OBJECT), max_size=3)))
    ]
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | TEXT)}
    if thought := draw(st.none() | TEXT):
        message[draw(st.sampled_from(["reasoning", "reasoning_content"]))] = thought
    if calls:
        message["tool_calls"] = calls
    elif message["content"] is None:
        message["content"] = ""
    return message


def whole(message: dict[str, Any]) -> dict[str, Any]:
    outlet = MESSAGES.outlet(parse(messages=[user("hi")]))
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return dict(json.loads(outlet.whole(json.dumps(reply).encode())))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(answers(), st.booleans())
def test_an_answer_replayed_is_the_message_that_was_sampled(
    message: dict[str, Any], keeps_thinking: bool
) -> None:
    content = whole(message)["content"]
    if not keeps_thinking:
        content = [block for block in content if block["type"] != "thinking"]
    replayed = chat(messages=[user("hi"), {"role": "assistant", "content": content}, user("go on")])
    assert tell(replayed[1]) == tell(message)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(answers(), st.integers(1, 9))
def test_a_stream_gives_the_same_blocks_as_a_whole_answer(
    message: dict[str, Any], size: int
) -> None:
    outlet = MESSAGES.outlet(parse(messages=[user("hi")], stream=True))
    out = b"".join(outlet.events(event) for event in chat_events(message, size))
    assert accumulate(out)["content"] == whole(message)["content"]


def chat_events(message: dict[str, Any], size: int) -> list[bytes]:
    """The answer as an engine streams it, in pieces of ``size``."""

    def pieces(text: str) -> list[str]:
        return [text[at : at + size] for at in range(0, len(text), size)]

    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for key in ("reasoning", "reasoning_content", "content"):
        deltas += [{key: piece} for piece in pieces(message.get(key) or "")]
    for at, call in enumerate(message.get("tool_calls") or ()):
        name = call["function"]["name"]
        deltas.append({"tool_calls": [{"index": at, "id": call["id"], "function": {"name": name}}]})
        for piece in pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    bodies = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    bodies.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    bodies.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    events = [f"data: {json.dumps(body)}\n\n".encode() for body in bodies]
    return [*events, b"data: [DONE]\n\n"]


def accumulate(out: bytes) -> dict[str, Any]:
    """What a client makes of the events; the documented order is checked on the way."""
    events = [e.partition(b"\ndata: ") for e in out.split(b"\n\n") if e]
    datas = [json.loads(data) for _, _, data in events]
    assert [head for head, _, _ in events] == [f"event: {d['type']}".encode() for d in datas]
    assert [d["type"] for d in datas[-2:]] == ["message_delta", "message_stop"]
    message = dict(datas[0]["message"])
    texts: dict[int, str] = {}
    open_block = None
    for data in datas[1:-2]:
        at = data["index"]
        if data["type"] == "content_block_start":
            assert (open_block, at) == (None, len(message["content"]))
            open_block = at
            message["content"].append(data["content_block"])
            texts[at] = ""
            continue
        assert open_block == at
        block = message["content"][at]
        if data["type"] == "content_block_stop":
            open_block = None
            if block["type"] == "tool_use":
                block["input"] = json.loads(texts[at])
            continue
        kind, value = next(pair for pair in data["delta"].items() if pair[0] != "type")
        if kind == "partial_json":
            texts[at] += value
        else:
            block[kind] = value if kind == "signature" else block[kind] + value
    return {**message, **datas[-2]["delta"], "usage": datas[-2]["usage"]}


def test_conversation_with_tools_becomes_chat_messages() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "2"}],
    }
    messages = [
        user([{"type": "text", "text": "1+1?", "cache_control": {"type": "ephemeral"}}]),
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I add."}, call]},
        user([result, {"type": "text", "text": "well?"}]),
    ]
    told = chat(system=[{"type": "text", "text": "be brief"}], messages=messages)
    function = {"name": "add", "arguments": '{"a":1}'}
    assert told == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "1+1?"},
        {
            "role": "assistant",
            "content": "I add.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "2"},
        {"role": "user", "content": "well?"},
    ]


def test_neighbours_of_one_role_are_one_message() -> None:
    told = chat(messages=[user("a"), user("b")])
    assert told == [{"role": "user", "content": "a\nb"}]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
    ids=["auto", "any tool", "no tool", "one tool"],
)
def test_tool_choice(choice: dict[str, Any], expected: Any) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "x"}}]
    ask = parse(messages=[user("x")], tools=tools, tool_choice=choice)
    assert json.loads(ask.raw("tool_choice")) == expected
    function = {"name": "f", "description": "", "parameters": {"type": "object"}}
    assert json.loads(ask.raw("tools")) == [{"type": "function", "function": function}]


def test_unknown_parameters_are_told_on_the_turn() -> None:
    assert parse(messages=[user("x")], context_management={}).flags == [
        "ignored:context_management"
    ]


PREFILL = [user("x"), {"role": "assistant", "content": "{"}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "must be a list"),
        ({"messages": []}, "at least one"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
        ({"messages": [user([{"type": "search_result"}])]}, "search_result"),
        ({"messages": [user(7)]}, "content"),
        ({"messages": PREFILL}, "the assistant's"),
        ({"messages": [user("x")], "system": [{"type": "image"}]}, "text blocks only"),
        ({"messages": [user("x")], "tools": [{"type": "web_search_1", "name": "w"}]}, "vendor"),
        ({"messages": [user("x")], "mcp_servers": [{"url": "x"}]}, "agent's side"),
        ({"messages": [user("x")], "tool_choice": {"type": "some"}}, "auto, any, tool"),
    ],
    ids=[
        "no messages",
        "an empty list",
        "a role of another API",
        "an unknown block",
        "content of a wrong type",
        "an answer begun by the client",
        "an image as system prompt",
        "a tool that runs elsewhere",
        "servers of tools",
        "an unknown tool choice",
    ],
)
def test_what_cannot_be_honoured_is_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words) as raised:
        parse(**body)
    error = json.loads(MESSAGES.error(raised.value))
    assert raised.value.status == 400
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"


def test_signature_is_stable_and_the_sessions_own() -> None:
    assert sign(b"key", "hm") == sign(b"key", "hm")
    assert len({sign(b"key", "hm"), sign(b"other", "hm"), sign(b"key", "hmm")}) == 3


@pytest.mark.parametrize(
    ("choice", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "content_filter"}, "refusal", None),
    ],
    ids=["end of turn", "length", "a stop sequence", "a filter"],
)
def test_stop_reasons(choice: dict[str, Any], reason: str, sequence: str | None) -> None:
    outlet = MessagesOutlet(parse(messages=[user("x")]))
    body = {"choices": [{"message": {"content": "x"}, **choice}]}
    told = json.loads(outlet.whole(json.dumps(body).encode()))
    assert (told["stop_reason"], told["stop_sequence"]) == (reason, sequence)


def test_cut_arguments_are_sent_and_remembered_as_the_same_object() -> None:
    outlet = MessagesOutlet(parse(messages=[user("x")]))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"choices": [{"message": message, "finish_reason": "length"}]}
    told = json.loads(outlet.whole(json.dumps(body).encode()))
    kept = json.loads(outlet.sent(json.dumps(message).encode()))
    assert told["content"][0]["input"] == {"a": "b"}
    assert told["stop_reason"] == "max_tokens"
    assert json.loads(kept["tool_calls"][0]["function"]["arguments"]) == {"a": "b"}
