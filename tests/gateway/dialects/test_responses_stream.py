"""The streamed way back: the same response as the whole one, in the documented order of events."""

from __future__ import annotations

import json
from typing import Any

import fake_script
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_answer import ANSWER_ID, answer, answers, call, outlet

from agentcore_rl_toolkit.gateway.dialects.base import encode
from agentcore_rl_toolkit.gateway.dialects.responses import RESPONSES
from agentcore_rl_toolkit.gateway.fault import Refusal


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return encode({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def chat_events(message: dict[str, Any], finish: str = "stop", step: int = 5) -> list[bytes]:
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    datas = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk(delta) for delta in fake_script.deltas(message, step)),
        chunk({}, finish),
        encode({"choices": [], "usage": usage}),
        b"[DONE]",
    ]
    return [b"data: %b\n\n" % data for data in datas]


def events_of(data: bytes) -> list[dict[str, Any]]:
    events = []
    for block in data.split(b"\n\n")[:-1]:
        name, _, body = block.partition(b"\n")
        event = json.loads(body.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event)
    return events


def streamed(message: dict[str, Any], cuts: list[int], **options: Any) -> list[dict[str, Any]]:
    """The events of an answer that arrives in pieces of as many chat events as ``cuts`` say."""
    way, left, out = outlet(), chat_events(message, **options), b""
    for n in [*cuts, len(left)]:
        out += way.events(b"".join(left[:n])) if left[:n] else b""
        left = left[n:]
    return events_of(out)


def without_time(response: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key != "created_at"}


def rebuilt(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Output as a client puts it together from deltas alone."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            items.append({"type": event["item"]["type"], "text": ""})
        elif kind.endswith(".delta"):
            items[event["output_index"]]["text"] += event["delta"]
    return items


def text_of(item: dict[str, Any]) -> str:
    if "content" in item:
        part = item["content"][0]
        return str(part.get("text", part.get("refusal")))
    return str(item.get("input", item.get("arguments", "")))


@settings(max_examples=120, deadline=None)
@given(
    message=answers(),
    cuts=st.lists(st.integers(1, 6), max_size=12),
    step=st.integers(1, 9),
    finish=st.sampled_from(["stop", "tool_calls", "length", "content_filter", "abort"]),
)
def test_any_split_gives_the_response_of_the_whole_answer(
    message: dict[str, Any], cuts: list[int], step: int, finish: str
) -> None:
    events = streamed(message, cuts, step=step, finish=finish)
    whole = json.loads(outlet().whole(answer(message, finish)))
    assert without_time(events[-1]["response"]) == without_time(whole)
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == whole["output"]
    assert [(item["type"], item["text"]) for item in rebuilt(events)] == [
        (item["type"], text_of(item)) for item in whole["output"]
    ]


def test_events_come_in_the_documented_order() -> None:
    message = {
        "reasoning_content": "hm",
        "content": "hello",
        "tool_calls": [call("look", '{"a":1}'), call("patch", '{"input": "text"}', "c2")],
    }
    kinds = [event["type"].removeprefix("response.") for event in streamed(message, [], step=99)]
    assert kinds == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done"),
        "output_item.done",
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done"),
        *("output_item.done", "completed"),
    ]


def test_text_is_passed_on_as_it_comes() -> None:
    way = outlet()
    for text in ("one ", "two "):
        events = events_of(way.events(b"data: %b\n\n" % chunk({"content": text})))
        assert events[-1]["delta"] == text
    head = {"index": 0, "id": "c1", "function": {"name": "patch", "arguments": '{"input": "li'}}
    events = events_of(way.events(b"data: %b\n\n" % chunk({"tool_calls": [head]})))
    assert (events[-1]["type"], events[-1]["delta"]) == (
        "response.custom_tool_call_input.delta",
        "li",
    )


@pytest.mark.parametrize("text", ["\U0001f600 fine", "\u2028 and \x85", 'tab\t quote" back\\ \x00'])
def test_the_text_of_a_custom_call_survives_escapes_cut_anywhere(text: str) -> None:
    message = {"tool_calls": [call("patch", json.dumps({"input": text}))]}
    for step in range(1, 14):
        item = streamed(message, [1] * 40, step=step)[-1]["response"]["output"][0]
        assert item["input"] == text


def test_a_length_stop_is_an_incomplete_response() -> None:
    response = streamed({"content": "cut"}, [], finish="length")[-1]["response"]
    assert response["status"] == response["output"][0]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_answer_and_items_are_named_after_the_call() -> None:
    response = streamed({"content": "hi"}, [])[-1]["response"]
    assert response["id"] == f"resp_{ANSWER_ID}"
    assert response["output"][0]["id"] == f"msg_{ANSWER_ID}_0"
    assert response["usage"]["total_tokens"] == 8


def test_a_stream_that_fails_says_so_in_both_ways() -> None:
    failed, error = events_of(RESPONSES.error_event(Refusal(502, "the engine\nis gone")))
    assert failed["response"]["error"]["message"] == "the engine\nis gone"
    assert error["error"]["message"] == error["message"] == "the engine\nis gone"


def test_calls_that_are_streamed_mixed_up_are_an_engine_fault() -> None:
    way = outlet()
    parts = [{"index": at, "id": "c", "function": {"name": "look"}} for at in (0, 1, 0)]
    data = b"".join(b"data: %b\n\n" % chunk({"tool_calls": [part]}) for part in parts)
    with pytest.raises(Refusal, match="mixed up"):
        way.events(data)


def test_a_custom_call_that_never_begins_is_given_up_early() -> None:
    item = streamed({"tool_calls": [call("patch", " " * 1000)]}, [], step=1)[-1]["response"]
    assert item["output"][0]["type"] == "function_call"
    assert item["output"][0]["arguments"] == " " * 1000
