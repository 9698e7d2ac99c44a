"""An answer's message, put together from its parts; each part becomes the delta that it adds.

A call is told while it is written, where its form allows that, else when it is complete. A block
that is no call stays in the content; a call that was told and then breaks off stays a call with
the arguments that came. Both are flagged, and nothing is ever lost.
"""

from __future__ import annotations

from typing import Any

from .call_text import CallText, Written
from .parse import (
    HERMES,
    PARSE_FAILED,
    CallReader,
    FoundCall,
    Kind,
    Marks,
    Parsed,
    Splitter,
    read_hermes,
    tool_call,
)


class Assembly:
    def __init__(self, marks: Marks | None, read: CallReader, tools: Any, call_id: str) -> None:
        self._form = marks.form if marks is not None else None
        self._read, self._tools, self._call_id = read, tools, call_id
        self.out = Parsed("")
        self._text: CallText | None = None
        self._arguments: list[str] = []

    def add(self, kind: Kind, text: str) -> list[dict[str, Any]]:
        """Adds one part and returns the deltas that it makes."""
        if kind == "writing":
            return self._write(text)
        if kind in ("call", "open_call"):
            return self._end_block(text)
        if kind == "reasoning_content":
            self.out.reasoning = (self.out.reasoning or "") + text
            return [{"reasoning_content": text}]
        return self._say(text)

    def settle(self) -> Parsed:
        """The answer as far as it has come."""
        if self._arguments:
            self.out.tool_calls[-1]["function"]["arguments"] = "".join(self._arguments)
        return self.out

    def _say(self, text: str) -> list[dict[str, Any]]:
        self.out.content += text
        return [{"content": text}]

    def _write(self, text: str) -> list[dict[str, Any]]:
        if self._form is None:
            return []
        if self._text is None:
            self._text = CallText(self._form)
        return [self._told(step) for step in self._text.feed(text)]

    def _told(self, step: Written) -> dict[str, Any]:
        if step.name is not None:
            self.settle()
            self._arguments = []
            return self._begin(FoundCall(step.name, "", step.own_id))
        self._arguments.append(step.arguments)
        index = len(self.out.tool_calls) - 1
        return {"tool_calls": [{"index": index, "function": {"arguments": step.arguments}}]}

    def _begin(self, found: FoundCall) -> dict[str, Any]:
        at = len(self.out.tool_calls)
        call = tool_call(f"{self._call_id}-{at}", found)
        self.out.tool_calls = [*self.out.tool_calls, call]
        return {"tool_calls": [{"index": at, **call, "function": dict(call["function"])}]}

    def _end_block(self, block: str) -> list[dict[str, Any]]:
        written, self._text = self._text, None
        calls = self._read(block, self._tools)
        if written is None or not written.names:
            if calls:
                return [self._begin(call) for call in calls]
            self.out.flags = [PARSE_FAILED]
            return self._say(block)
        self.settle()
        self._arguments = []
        told = len(written.names)
        if calls and [call.name for call in calls[:told]] == written.names:
            return [self._begin(call) for call in calls[told:]]
        self.out.flags = [PARSE_FAILED]
        self.out.broken += 1
        return self._say(written.left) if written.left.strip() else []


def parse(text: str, *, tools: bool, call_id: str, marks: Marks = HERMES) -> Parsed:
    """A whole answer in the hermes style, which chat templates use most."""
    cut = Splitter(marks, tools=tools, tells=True)
    message = Assembly(marks, read_hermes, None, call_id)
    for kind, piece in [*cut.feed(text), *cut.end()]:
        message.add(kind, piece)
    return message.settle()
