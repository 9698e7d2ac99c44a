"""Answers are taken apart as they come, whatever the portions, and nothing is lost."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.text.assemble import parse
from agentcore_rl_toolkit.gateway.text.detokenize import Detokenizer
from agentcore_rl_toolkit.gateway.text.parse import (
    HERMES,
    PARSE_FAILED,
    Kind,
    Marks,
    Parsed,
    ParseHealth,
    Splitter,
    named,
    read_hermes,
)

CALL = '<tool_call>{"name":"f"}</tool_call>'
PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<", "think", "\n", " ", "a", "{}"]


def split(text: str, portions: list[int], **options: Any) -> list[tuple[Kind, str]]:
    """Parts of an answer fed in portions, with neighbours of one kind joined."""
    cut, at, parts = Splitter(HERMES, **options), 0, []
    for size in portions:
        parts += cut.feed(text[at : at + size])
        at += size
    parts += [*cut.feed(text[at:]), *cut.end()]
    joined: list[tuple[Kind, str]] = []
    for kind, piece in parts:
        if joined and joined[-1][0] == kind and kind != "call":
            joined[-1] = (kind, joined[-1][1] + piece)
        else:
            joined.append((kind, piece))
    return joined


@given(
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.lists(st.integers(1, 7), max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_portions_make_no_difference(
    text: str, portions: list[int], tools: bool, reasoning: bool
) -> None:
    whole = split(text, [], tools=tools, reasoning=reasoning)
    assert split(text, portions, tools=tools, reasoning=reasoning) == whole


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_nothing_but_layout_and_marks_is_left_out(text: str) -> None:
    kept = "".join(piece for _, piece in split(text, [], tools=True))
    for mark in ("<think>", "</think>"):
        text, kept = text.replace(mark, ""), kept.replace(mark, "")
    assert "".join(kept.split()) == "".join(text.split())


def test_text_is_given_out_before_the_answer_ends() -> None:
    cut = Splitter(HERMES, tools=True)
    assert cut.feed("<think>let me") == [("reasoning_content", "let me")]
    assert cut.feed(" see</thi") == [("reasoning_content", " see")]
    assert cut.feed("nk>\n\nIt is") == [("content", "It is")]
    assert cut.feed(" <tool") == [("content", " ")]
    assert cut.feed("_call>{") == []
    assert cut.feed("}</tool_call>\nand") == [("call", "<tool_call>{}</tool_call>"),
                                             ("content", "and")]  # fmt: skip


def test_an_answer_that_is_a_bare_call_waits_for_its_end() -> None:
    cut = Splitter(Marks(call="{", end_call="", bare=True), tools=True)
    assert cut.feed(' {"name"') == []
    assert cut.feed(': "f"}') == []
    assert cut.end() == [("open_call", '{"name": "f"}')]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<think>" + "a" * 400_000, id="unclosed reasoning"),
        pytest.param("<tool_call>" + "{" * 400_000, id="an unclosed call"),
        pytest.param("<" * 400_000, id="beginnings of marks"),
        pytest.param("\n" * 400_000, id="blank lines"),
        pytest.param("<think>" + "\n" * 400_000, id="blank reasoning"),
        pytest.param("<tool_call>" * 40_000, id="only openings"),
        pytest.param(CALL * 10_000, id="many calls"),
    ],
)
def test_long_answers_fed_in_small_portions_are_bounded(text: str) -> None:
    """Quadratic work would take minutes here."""
    began = time.process_time()
    split(text, [4] * (len(text) // 4), tools=True)
    parse(text, tools=True, call_id="c")
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ('<tool_call>{"name": "f", "arguments": {"x": 1.0}}</tool_call>', ("f", '{"x": 1.0}')),
        ('<tool_call>\n{"name": "f"}', ("f", "{}")),
        ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', ("f", "{}")),
        ('<tool_call>{"name": ""}</tool_call>', None),
        ('<tool_call>{"name": 3}</tool_call>', None),
        ("<tool_call>" + "[" * 100_000, None),
        ('<tool_call>{"name": "f", "arguments": {"x": ' + "9" * 40 + "}}", ("f", None)),
    ],
)
def test_a_block_is_a_call_or_none(block: str, found: tuple[str, str | None] | None) -> None:
    calls = read_hermes(block)
    if found is None:
        assert calls is None
    else:
        assert calls is not None
        assert calls[0].name == found[0]
        assert found[1] is None or calls[0].arguments == found[1]


def test_half_a_surrogate_pair_survives_as_an_escape() -> None:
    call = named("f", {"x": "\ud83d"})
    assert call is not None
    assert call.arguments == '{"x": "\\ud83d"}'


def test_calls_that_can_be_read_are_kept_beside_one_that_cannot() -> None:
    parsed = parse(CALL + "<tool_call>{</tool_call>" + CALL, tools=True, call_id="c")
    assert [call["id"] for call in parsed.tool_calls] == ["c-0", "c-1"]
    assert parsed.content == "<tool_call>{</tool_call>"
    assert parsed.flags == [PARSE_FAILED]


def test_failures_without_a_success_become_an_error_that_names_the_renderer() -> None:
    health = ParseHealth("qwen3", limit=3)
    broken = Parsed("<tool_call>oops", flags=[PARSE_FAILED])
    health.note(broken)
    health.note(Parsed("just text"))
    health.note(broken)
    with pytest.raises(Refusal, match="'qwen3' renderer reads them") as raised:
        health.note(broken)
    assert not raised.value.retry
    assert health.failed == 3


def test_a_model_that_errs_now_and_then_is_no_error() -> None:
    health = ParseHealth("qwen3", limit=3)
    health.note(Parsed("", tool_calls=[{"id": "c"}]))
    for _ in range(10):
        health.note(Parsed("<tool_call>oops", flags=[PARSE_FAILED]))
    assert (health.parsed, health.failed) == (1, 10)


class Bytes:
    def decode(self, ids: Any) -> str:
        return bytes(ids).decode("utf-8", "replace")


def test_characters_that_are_not_whole_are_held_back() -> None:
    text = Detokenizer(Bytes())
    pieces = [text.feed([byte]) for byte in "aé€b".encode()]
    assert pieces == ["a", "", "é", "", "", "€", "b"]


@given(st.text(max_size=30), st.lists(st.integers(1, 5), max_size=40))
def test_pieces_of_text_add_up(text: str, portions: list[int]) -> None:
    data, at, out = text.encode("utf-8", "replace"), 0, ""
    stream = Detokenizer(Bytes())
    for size in portions:
        out += stream.feed(data[at : at + size])
        at += size
    out += stream.feed(data[at:]) + stream.end()
    assert out == data.decode()


def test_bytes_that_are_never_a_character_do_not_hold_up_the_rest() -> None:
    text = Detokenizer(Bytes())
    got = [text.feed([0xFF]) for _ in range(20)]
    assert any(got)
    assert "".join(got) + text.end() == "\ufffd" * 20


def test_a_splitter_tells_how_much_of_a_call_is_open() -> None:
    cut = Splitter(HERMES, tools=True)
    cut.feed("<tool_call>" + "x" * 1000)
    assert cut.in_call >= 980
    cut.feed("</tool_call>")
    assert cut.in_call == 0
