"""Output items of a response while they grow: reasoning, message, calls.

Each item writes its own events in the documented order and holds what it has become. Text is passed
on as it comes. The text inside a custom tool's ``{"input": "…"}`` is unpacked as it comes, too; a
call that does not begin like that, and a local shell call that is no command, stay the function
calls that they are, so that the client sees what the model wrote.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .base import encode
from .responses_item import own_id, seal_reasoning
from .responses_tool import CUSTOM, LOCAL_SHELL, Tool

MAX_LEAD = 256
"""Characters within which a custom call must have begun its text."""
_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_BEGINNING = re.compile(r'\s*(?:\{\s*(?:"(?:i(?:n(?:p(?:u(?:t(?:"(?:\s*(?::\s*)?)?)?)?)?)?)?)?)?)?')
_RUN = re.compile(r'[^"\\]+')
CALLS = {
    "function_call": ("fc", "function_call_arguments"),
    "custom_tool_call": ("ctc", "custom_tool_call_input"),
    "local_shell_call": ("lsh", ""),
}
"""Items that call: what their ids begin with, and what their deltas are called."""
_HIGH_HALVES = ("d8", "d9", "da", "db")
_escapes = msgspec.json.Decoder(str)


class Events:
    """Numbers and writes a stream's events; writes nothing for an answer that is not streamed."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._next, self._out = quiet, 0, list[bytes]()

    def emit(self, kind: str, **fields: Any) -> None:
        if self._quiet:
            return
        data = encode({"type": kind, "sequence_number": self._next, **fields})
        self._next += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def delta(self, begin: bytes, text: str) -> None:
        """The most frequent event, all but its number and text written before."""
        if not self._quiet:
            self._out.append(b'%b%d,"delta":%b}\n\n' % (begin, self._next, encode(text)))
            self._next += 1

    def take(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out


class Place:
    """Where an item stands in its response."""

    def __init__(self, events: Events, answer_id: str, index: int) -> None:
        self.events, self.answer_id, self.index = events, answer_id, index

    def emit(self, kind: str, item_id: str, **fields: Any) -> None:
        self.events.emit(f"response.{kind}", item_id=item_id, output_index=self.index, **fields)

    def deltas(self, kind: str, item_id: str, **fields: Any) -> bytes:
        """What every delta of an item begins with."""
        kind = f"response.{kind}.delta"
        said = encode({"type": kind, "item_id": item_id, "output_index": self.index, **fields})
        return b'event: %b\ndata: %b,"sequence_number":' % (kind.encode(), said[:-1])

    def begin(self, item: dict[str, Any]) -> None:
        self.events.emit("response.output_item.added", output_index=self.index, item=item)

    def end(self, item: dict[str, Any]) -> dict[str, Any]:
        self.events.emit("response.output_item.done", output_index=self.index, item=item)
        return item


class TextItem:
    """Reasoning, or a message; the latter's content is text or a refusal."""

    def __init__(self, place: Place, kind: str, key: str, *, sealed: bool) -> None:
        self.kind, self._place, self._key, self._sealed = kind, place, key, sealed
        self._texts: list[str] = []
        prefix = "rs" if kind == "reasoning" else "msg"
        self._id = own_id(prefix, place.answer_id, place.index, key)
        place.begin(self._item("in_progress", []))
        place.emit("content_part.added", self._id, content_index=0, part=self._part(""))
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        self._delta = place.deltas(self._name, self._id, content_index=0, **more)

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._place.events.delta(self._delta, text)

    def end(self, status: str) -> dict[str, Any]:
        text = "".join(self._texts)
        field = "refusal" if self.kind == "refusal" else "text"
        more: dict[str, Any] = {field: text}
        if self.kind == "output_text":
            more["logprobs"] = []
        self._place.emit(f"{self._name}.done", self._id, content_index=0, **more)
        part = self._part(text)
        self._place.emit("content_part.done", self._id, content_index=0, part=part)
        return self._place.end(self._item(status, [part]))

    @property
    def _name(self) -> str:
        return "reasoning_text" if self.kind == "reasoning" else self.kind

    def _part(self, text: str) -> dict[str, Any]:
        if self.kind == "output_text":
            return {"type": self.kind, "text": text, "annotations": [], "logprobs": []}
        if self.kind == "refusal":
            return {"type": self.kind, "refusal": text}
        return {"type": "reasoning_text", "text": text}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._id, "status": status, "content": content}
        if self.kind != "reasoning":
            return {**item, "type": "message", "role": "assistant"}
        sealed = None
        if self._sealed and content:
            sealed = seal_reasoning("".join(self._texts), self._key)
        return {**item, "type": "reasoning", "summary": [], "encrypted_content": sealed}


class CallItem:
    """A call of a tool. It begins when enough of it is known to say what kind of item it is."""

    def __init__(self, place: Place, call_id: str, tool: Tool) -> None:
        self._place, self._call_id, self._tool = place, call_id, tool
        self._kind: str | None = None if tool.kind in (CUSTOM, LOCAL_SHELL) else "function_call"
        self._texts: list[str] = []
        self._unpack = Unpack()
        if self._kind is not None:
            self._begin(self._kind)

    def add(self, arguments: str) -> None:
        if self._tool.kind == CUSTOM and self._kind != "function_call":
            self._add_custom(arguments)
            return
        self._texts.append(arguments)
        if self._kind == "function_call":
            self._place.events.delta(self._delta, arguments)

    def _add_custom(self, arguments: str) -> None:
        text = self._unpack.feed(arguments)
        if self._unpack.fits and self._kind is None:
            self._begin("custom_tool_call")
        if self._unpack.fits is False:
            self._begin("function_call")
            self.add(self._unpack.held)
        elif text:
            self._texts.append(text)
            self._place.events.delta(self._delta, text)

    def _begin(self, kind: str, body: Any = "") -> None:
        prefix, delta = CALLS[kind]
        self._kind = kind
        self._id = own_id(prefix, self._place.answer_id, self._place.index)
        self._delta = self._place.deltas(delta, self._id)
        self._place.begin(self._item("in_progress", body))

    def end(self, status: str) -> dict[str, Any]:
        text = "".join(self._texts)
        if self._kind is None and self._tool.kind == LOCAL_SHELL:
            action = _action(text)
            if action is not None:
                self._begin("local_shell_call", action)
                return self._place.end(self._item(status, action))
        if self._kind is None:
            text = text or self._unpack.held
            self._begin("function_call")
            self._place.events.delta(self._delta, text)
        if self._kind == "custom_tool_call":
            self._place.emit("custom_tool_call_input.done", self._id, input=text)
        else:
            self._place.emit(
                "function_call_arguments.done", self._id, name=self._tool.name, arguments=text
            )
        return self._place.end(self._item(status, text))

    def _item(self, status: str, body: Any) -> dict[str, Any]:
        item = {"id": self._id, "type": self._kind, "status": status, "call_id": self._call_id}
        if self._kind == "local_shell_call":
            return {**item, "action": body}
        item |= {"name": self._tool.name}
        item |= {"input": body} if self._kind == "custom_tool_call" else {"arguments": body}
        return {**item, "namespace": self._tool.namespace} if self._tool.namespace else item


def _action(arguments: str) -> dict[str, Any] | None:
    try:
        said = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return None
    command = said.get("command") if isinstance(said, dict) else None
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    known = {
        name: said[name] for name in ("timeout_ms", "working_directory", "user") if name in said
    }
    env = said.get("env")
    return {
        "type": "exec",
        "command": command,
        "env": env if isinstance(env, dict) else {},
        **known,
    }


class Unpack:
    """The text of ``{"input": "text"}``, as it comes. What follows the text is left out."""

    def __init__(self) -> None:
        self.fits: bool | None = None
        """Whether it begins like that; None while that is open."""
        self.held = ""
        """All that came while it was open, then an escape that is not whole yet."""
        self._ended = False

    def feed(self, data: str) -> str:
        data, self.held = self.held + data, ""
        if self.fits is None:
            begin = _BEGIN.match(data)
            if begin is None:
                self.held = data
                open_still = len(data) < MAX_LEAD and _BEGINNING.fullmatch(data)
                self.fits = None if open_still else False
                return ""
            self.fits, data = True, data[begin.end() :]
        return self._text(data) if self.fits and not self._ended else ""

    def _text(self, data: str) -> str:
        out: list[str] = []
        at = 0
        while at < len(data):
            if run := _RUN.match(data, at):
                out.append(run.group())
                at = run.end()
            elif data[at] == '"':
                self._ended = True
                break
            else:
                end = _escape_end(data, at)
                if end is None:
                    self.held = data[at:]
                    break
                out.append(_unescaped(data[at:end]))
                at = end
        return "".join(out)


def _escape_end(data: str, at: int) -> int | None:
    """Where an escape ends; None when more must come. Two halves of a surrogate pair are one."""
    n = 2 if data[at + 1 : at + 2] != "u" else 6
    if data[at + 2 : at + 4].lower() in _HIGH_HALVES and n == 6:
        rest = data[at + 6 : at + 8]
        if rest in ("", "\\") or rest == "\\u":
            n = 12
    return at + n if len(data) >= at + n else None


def _unescaped(escape: str) -> str:
    """A character; an escape that JSON does not have stays as it is written."""
    try:
        return _escapes.decode(f'"{escape}"')
    except msgspec.DecodeError:
        return escape
