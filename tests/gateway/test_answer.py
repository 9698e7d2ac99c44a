"""Sampled ids on their way to a client: streamed or not, the same message."""

from __future__ import annotations

import json
from typing import Any

import golden_make as make
import pytest
from fake_tokens import FakeTokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.dialects.base import chat_ask
from agentcore_rl_toolkit.gateway.engines.answer import Growing, Tokens
from agentcore_rl_toolkit.gateway.text.detokenize import Stops
from agentcore_rl_toolkit.gateway.text.parse import PARSE_FAILED, ParseHealth
from agentcore_rl_toolkit.gateway.text.render import Renderer

RENDERER = Renderer(FakeTokenizer())
RENDERER.health = ParseHealth(RENDERER.name, 0)  # else many broken answers in a row are refused
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": [1, {"y": "}\\" {"}]}}\n</tool_call>'
PIECES = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f", "arguments": {', "}"),
    *('"x": "', '"', "\\", "a", " ", "\n", CALL, '{"name": "f"}', ', "id": 7', "{", "STOP", "ST"),
]


def grow(text: str, portions: list[int], **fields: Any) -> tuple[Growing, list[dict[str, Any]]]:
    """An answer fed in portions, and the deltas that it gave."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    ask = chat_ask("chat", b"", {"model": "m", "tools": tools} | fields, [b"{}"])
    choice, ids, deltas = Growing(ask, RENDERER, 0, "c"), [ord(c) for c in text], []
    for size in [*portions, len(ids)]:
        part, ids = ids[:size], ids[size:]
        deltas += choice.add(Tokens(0, part, [-1.0] * len(part)))
    choice.add(Tokens(0, [], [], "stop"))
    return choice, [*deltas, *choice.end()]


def put_together(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a client that only saw deltas."""
    text = {"content": "", "reasoning_content": ""}
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for name in text:
            text[name] += delta.get(name, "")
        for part in delta.get("tool_calls", ()):
            assert part["index"] in (len(calls) - 1, len(calls)), "never re-ordered"
            if part["index"] == len(calls):
                calls.append({k: v for k, v in part.items() if k != "index"})
            else:
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    return {**text, "tool_calls": calls}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    st.lists(st.integers(1, 9), max_size=60),
    st.booleans(),
)
def test_what_was_streamed_is_the_message(text: str, portions: list[int], stop: bool) -> None:
    fields: dict[str, Any] = {"stop": ["STOP"]} if stop else {}
    whole, _ = grow(text, [], **fields)
    choice, deltas = grow(text, portions, **fields)
    assert choice.message == whole.message
    assert choice.seal().flags == whole.seal().flags
    told, message = put_together(deltas), choice.message
    assert told["content"].strip() == (message["content"] or "").strip()
    assert told["reasoning_content"] == message.get("reasoning_content", "")
    assert told["tool_calls"] == message.get("tool_calls", [])


def test_arguments_are_told_as_the_model_writes_them() -> None:
    _, deltas = grow(CALL, [1] * len(CALL))
    pieces = [d["tool_calls"][0]["function"]["arguments"] for d in deltas if "tool_calls" in d]
    assert len(pieces) > 20
    assert "".join(pieces) == '{"x": [1, {"y": "}\\" {"}]}'


@pytest.mark.parametrize(
    ("text", "arguments", "content", "flags"),
    [
        pytest.param('{"name": "f", "arguments": {"x": 1}, "type": "function"}',
                     '{"x": 1}', None, [], id="more keys after the arguments"),
        pytest.param('{"name": "f", "arguments": {x: 1}}', "{x: 1}", None, [PARSE_FAILED],
                     id="arguments that are no JSON"),
        pytest.param('{"name": "f", "arguments": {"x": 1}} and so', '{"x": 1}', " and so",
                     [PARSE_FAILED], id="words after the call"),
        pytest.param('{"arguments": {"x":1}, "name": "f"}', '{"x": 1}', None, [],
                     id="arguments before the name"),
        pytest.param('{"name": "f", "arguments": "{}"}', "{}", None, [], id="arguments as text"),
    ],
)  # fmt: skip
def test_calls_that_are_unusual(
    text: str, arguments: str, content: str | None, flags: list[str]
) -> None:
    choice, _ = grow(f"<tool_call>{text}</tool_call>", [])
    message = choice.message
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    assert (message["content"], choice.seal().flags) == (content, flags)


def test_a_call_that_breaks_off_stays_a_call_and_is_flagged() -> None:
    choice, _ = grow('<tool_call>{"name": "f", "arguments": {"x": "a <', [])
    (call,) = choice.message["tool_calls"]
    assert call["function"]["arguments"] == '{"x": "a <'
    assert choice.seal().flags == [PARSE_FAILED]


def test_calls_are_not_looked_for_where_none_may_be_made() -> None:
    choice, _ = grow(CALL, [], tool_choice="none")
    assert choice.message == {"role": "assistant", "content": CALL}
    assert (choice.finish_reason, choice.seal().flags) == ("stop", [])


def test_an_answer_ends_before_its_stop_sequence() -> None:
    choice, deltas = grow("one STO two STOP three", [3] * 7, stop=["STOP"])
    assert choice.message["content"] == "one STO two "
    assert put_together(deltas)["content"] == "one STO two "
    assert choice.seal().stop == "STOP"


@given(st.text("abAB", max_size=20), st.lists(st.integers(1, 4), max_size=20))
def test_stop_sequences_are_found_in_any_portions(text: str, portions: list[int]) -> None:
    def cut(sizes: list[int]) -> tuple[str, str | None]:
        stops, at, out = Stops(["abA", "BB"]), 0, ""
        for size in [*sizes, len(text)]:
            out += stops.feed(text[at : at + size])
            at += size
        return out + stops.end(), stops.matched

    assert cut(portions) == cut([])
    ends = [at for stop in ("abA", "BB") if (at := text.find(stop)) >= 0]
    assert cut([])[0] == (text[: min(ends)] if ends else text)


@pytest.mark.parametrize("name", ["qwen3", "kimi-k2", "deepseek-v3", "llama-3"])
def test_families_with_json_arguments_tell_them_early(name: str) -> None:
    family = make.FAMILIES[name]
    renderer = make.make_renderer(family)
    turn = json.loads((make.HERE / f"{name}.json").read_text())[0]
    choice = Growing(make.ask_of(turn["prompt"]), renderer, 0, "call")
    deltas = []
    for token in turn["sampled"]:
        deltas += choice.add(Tokens(0, [token], [-1.0]))
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert len(calls) > 5
    choice.end()
    assert put_together(deltas)["tool_calls"] == turn["message"]["tool_calls"]
    assert choice.message == turn["message"]
