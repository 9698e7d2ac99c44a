"""Answers of an engine, made up, and the way back of a request that offers every kind of tool."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from agentcore_rl_toolkit.gateway.dialects.base import encode
from agentcore_rl_toolkit.gateway.dialects.responses import RESPONSES

TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
    {"type": "local_shell"},
    {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "ask"}]},
]
ANSWER_ID = "0123456789abcdef01234567"


def outlet(body: dict[str, Any] | None = None) -> Any:
    request = {"model": "policy", "input": "hi", "tools": TOOLS} | (body or {})
    ask = RESPONSES.parse(encode(request))
    ask.answer_id = ANSWER_ID
    return RESPONSES.outlet(ask)


def answer(message: dict[str, Any], finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    return encode({"object": "chat.completion", "choices": [choice], "usage": usage})


def call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
objects = st.dictionaries(st.text("abc", min_size=1, max_size=2), texts | st.integers(), max_size=3)
arguments = st.one_of(
    objects.map(json.dumps),
    texts.map(lambda text: json.dumps({"input": text})),
    texts.map(lambda text: json.dumps({"input": text}, ensure_ascii=False)[:-1]),
    st.lists(texts, max_size=2).map(lambda words: json.dumps({"command": words, "x": 1})),
    texts,
)
calls = st.lists(
    st.tuples(st.sampled_from(["look", "patch", "local_shell", "team__ask", "gone"]), arguments),
    max_size=3,
)


@st.composite
def answers(draw: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | texts)}
    key = draw(st.sampled_from(["reasoning", "reasoning_content", None]))
    if key:
        message[key] = draw(texts)
    made = [call(name, said, f"c{at}") for at, (name, said) in enumerate(draw(calls))]
    if made:
        message["tool_calls"] = made
    return message
