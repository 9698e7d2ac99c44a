"""Turns as a conversation for eyes: who said what, which tool was called, where it branches.

A reader of whatever dialect the agent spoke, and of whatever it put there: what has no known shape
is shown as JSON, nothing is dropped. Each turn shows the messages that are new since the turn it
continues; the page builds the tree from ``parent``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..trajectory.graph import SessionGraph
from ..trajectory.turn import Turn

Message = dict[str, Any]
_TEXT = ("text", "input_text", "output_text")
_CALLS = ("tool_use", "function_call", "custom_tool_call")
_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")


def turn_views(turns: Sequence[Turn], graph: SessionGraph) -> list[dict[str, Any]]:
    """One for each turn that the graph has, in order; ``turns`` with their requests."""
    by_id = {turn.turn_id: turn for turn in turns}
    left = graph.left()
    asked: dict[str, list[Message]] = {}
    views = []
    for head in graph.heads():
        turn = by_id[head.turn_id]
        messages = asked[turn.turn_id] = request_messages(turn.request)
        before = asked.get(turn.parent or "")
        views.append(
            {
                "turn_id": turn.turn_id,
                "seq": turn.seq,
                "parent": turn.parent if turn.parent in by_id else None,
                "fork": turn.fork,
                "left": left.get(turn.turn_id),
                "model": turn.model,
                "dialect": turn.dialect,
                "engine": turn.engine,
                "train": turn.train,
                "messages": messages[_known(before, messages) :],
                "answer": read_message(_decoded(turn.response)) if turn.response else None,
                "finish_reason": turn.finish_reason,
                "versions": sorted({version for version, _, _ in turn.versions}),
                "n_prompt": turn.n_prompt,
                "n_shared": turn.prompt_shared,
                "n_sampled": turn.n_sampled,
                "started": turn.started,
                "first_token_s": turn.first_token_s,
                "total_s": turn.total_s,
                "delivered": graph.is_delivered(turn.turn_id),
                "error": turn.error,
                "flags": turn.flags,
            }
        )
    return views


def _known(before: list[Message] | None, messages: list[Message]) -> int:
    """How many leading messages the parent's turn shows already, its answer included."""
    if before is None:
        return 0
    n = 0
    while n < min(len(before), len(messages)) and before[n] == messages[n]:
        n += 1
    whole = n == len(before) and n < len(messages) and messages[n]["role"] == "assistant"
    return n + 1 if whole else n


def request_messages(request: bytes) -> list[Message]:
    body = _decoded(request) if request else {}
    if not isinstance(body, dict):
        return [{"role": "request", "text": _shown(body), "calls": []}]
    out: list[Message] = []
    for key in ("system", "instructions"):
        if body.get(key):
            out.append(read_message({"role": "system", "content": body[key]}))
    given: Any = next((body[k] for k in ("messages", "input", "prompt") if k in body), [])
    for one in given if isinstance(given, list) else [given]:
        out.append(read_message(one if isinstance(one, dict) else {"role": "user", "content": one}))
    return out


def read_message(message: Any) -> Message:
    """Role, text, reasoning and tool calls of a message or item of any dialect."""
    if not isinstance(message, dict):
        return {"role": "assistant", "text": _shown(message), "calls": []}
    out: Message = {"role": str(message.get("role") or message.get("type") or "?"), "calls": []}
    texts: list[str] = []
    thoughts = [str(message[k]) for k in ("reasoning_content", "reasoning") if message.get(k)]
    if message.get("type") in (*_CALLS, *_RESULTS):
        _read_part(message, texts, thoughts, out)
        out["role"] = "tool" if message["type"] in _RESULTS else "assistant"
    else:
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            _read_part(part, texts, thoughts, out)
        for call in _list(message.get("tool_calls")):
            out["calls"].append(_call(call))
    if message.get("tool_call_id"):
        out["of"] = str(message["tool_call_id"])
    out["text"] = "\n".join(texts)
    if thoughts:
        out["reasoning"] = "\n".join(thoughts[:1] if len(set(thoughts)) == 1 else thoughts)
    if out["role"] == "user" and out.get("of"):
        out["role"] = "tool"
    return out


def _read_part(part: Any, texts: list[str], thoughts: list[str], out: Message) -> None:
    if part is None:
        return
    if isinstance(part, str):
        texts.append(part)
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT:
        texts.append(str(part.get("text", "")))
    elif kind in ("thinking", "reasoning"):
        thoughts.append(str(part.get("thinking") or part.get("text") or part.get("summary") or ""))
    elif kind in _CALLS:
        out["calls"].append(_call(part))
    elif kind in _RESULTS:
        out["of"] = str(part.get("tool_use_id") or part.get("call_id") or "")
        content = part.get("content", part.get("output"))
        for one in content if isinstance(content, list) else [content]:
            _read_part(one, texts, thoughts, out)
    else:
        texts.append(_shown(part))


def _call(call: Any) -> dict[str, str]:
    if not isinstance(call, dict):
        return {"name": "?", "arguments": _shown(call), "id": ""}
    inner = call.get("function")
    function: dict[str, Any] = inner if isinstance(inner, dict) else call
    given = next((function[k] for k in ("arguments", "input") if k in function), "")
    return {
        "name": str(function.get("name", "?")),
        "arguments": given if isinstance(given, str) else _shown(given),
        "id": str(call.get("call_id") or call.get("id") or ""),
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")
