"""The way back to a client of the Responses API: a chat answer as a response.

Streamed or whole, an answer is fed to the same items in the same order, so both give the same
response. Deltas that arrive together are passed on together. The finish chunk only says how it
ended; the last item, usage and the terminal event follow at ``[DONE]``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from ...trajectory.messages import answer_digest
from ..fault import engine_fault
from ..wire import DONE
from .base import Outlet, encode
from .responses_item import REASONING_KEYS, answer_message, read_item
from .responses_output import CallItem, Events, Place, TextItem
from .responses_tool import Toolbox

DATA = b"data: "
LAST = DATA + DONE + b"\n\n"
ENDED = ("stop", "tool_calls", "function_call")
CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons of an incomplete response, with its reason."""


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    reasoning: str | None = None
    reasoning_content: str | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None

    @property
    def is_text(self) -> bool:
        """Nothing but content."""
        return not (self.reasoning or self.reasoning_content or self.tool_calls or self.refusal)


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_chunk = msgspec.json.Decoder(_Chunk)
_chunks = msgspec.json.Decoder(list[_Chunk])
_delta = msgspec.json.Decoder(_Delta)


class Output:
    """The items of one response, in order; one of them at most is open."""

    def __init__(self, answer_id: str, box: Toolbox, *, sealed: bool, quiet: bool) -> None:
        self.events = Events(quiet=quiet)
        self.items: list[dict[str, Any]] = []
        self._answer_id, self._box, self._sealed = answer_id, box, sealed
        self._open: TextItem | CallItem | None = None
        self._kind = ""
        self._pending: list[str] = []
        self._call: tuple[str, str] | None = None
        """A call whose arguments have not begun: id and name so far."""
        self._called: set[int] = set()

    def feed(self, delta: _Delta) -> None:
        if delta.content and self._kind == "output_text" and delta.is_text:
            self._pending.append(delta.content)
            return
        for key in REASONING_KEYS:
            if text := getattr(delta, key):
                self._text("reasoning", text, key)
                break
        if delta.content:
            self._text("output_text", delta.content)
        if delta.refusal:
            self._text("refusal", delta.refusal)
        for at, call in enumerate(delta.tool_calls or ()):
            self._feed_call(call, at if call.index is None else call.index)

    def _text(self, kind: str, text: str, key: str = REASONING_KEYS[0]) -> None:
        if self._kind != kind:
            self._close()
            self._open = TextItem(self._place(), kind, key, sealed=self._sealed)
            self._kind = kind
        self._pending.append(text)

    def _feed_call(self, call: _Call, index: int) -> None:
        function = call.function or _Function()
        kind = f"call {index}"
        if self._kind != kind:
            if index in self._called:
                raise engine_fault("the engine streamed its tool calls mixed up")
            self._close()
            self._kind, self._call = kind, ("", "")
            self._called.add(index)
        if self._call is not None:
            call_id, name = self._call
            self._call = (call.id or call_id, name + (function.name or ""))
        if function.arguments:
            self._begin_call()
            self._pending.append(function.arguments)

    def _begin_call(self) -> None:
        if self._call is not None:
            call_id, name = self._call
            self._open = CallItem(self._place(), call_id, self._box.find(name))
            self._call = None

    def flush(self) -> None:
        """Passes on what has come since the last time."""
        text = "".join(self._pending)
        self._pending.clear()
        if text and self._open is not None:
            self._open.add(text)

    def _close(self, status: str = "completed") -> None:
        self._begin_call()
        self.flush()
        if self._open is not None:
            self.items.append(self._open.end(status))
        self._open, self._kind = None, ""

    def _place(self) -> Place:
        return Place(self.events, self._answer_id, len(self.items))

    def end(self, status: str) -> None:
        status = "completed" if status == "completed" else "incomplete"
        self._close(status)
        if all(item["type"] == "reasoning" for item in self.items):
            # an answer without words is still an answer, also for a client that drops reasoning
            self._text("output_text", "")
            self._close(status)


class ResponsesOutlet(Outlet):
    def __init__(
        self, answer_id: str, head: Mapping[str, Any], box: Toolbox, *, sealed: bool
    ) -> None:
        self._answer_id, self._box, self._sealed = answer_id, box, sealed
        self._head = {
            "id": f"resp_{answer_id}",
            "object": "response",
            "created_at": int(time.time()),
            "error": None,
            "incomplete_details": None,
            **head,
        }
        self._output: Output | None = None
        self._reason = ""
        self._usage: _Usage | None = None

    def whole(self, body: bytes) -> bytes:
        output = self._items(quiet=True)
        answer = _chunk.decode(body)
        self._take(output, answer)
        return encode(self._end(output))

    def events(self, data: bytes) -> bytes:
        output = self._output
        if output is None:
            output = self._output = self._items(quiet=False)
            begun = self._response("in_progress", [])
            output.events.emit("response.created", response=begun)
            output.events.emit("response.in_progress", response=begun)
        done = data.endswith(LAST)
        listed = data.removesuffix(LAST)[len(DATA) : -2].replace(b"\n\n" + DATA, b",")
        for chunk in _chunks.decode(b"[%b]" % listed):
            self._take(output, chunk)
        output.flush()
        if done:
            response = self._end(output)
            output.events.emit(f"response.{response['status']}", response=response)
        return output.events.take()

    def sent(self, message: bytes) -> bytes:
        if not self._box.special or b'"tool_calls"' not in message:
            return message
        output = self._items(quiet=True)
        output.feed(_delta.decode(message))
        output.end("completed")
        replayed = encode(answer_message(read_item(item) for item in output.items))
        return message if answer_digest(replayed) == answer_digest(message) else replayed

    def _items(self, *, quiet: bool) -> Output:
        return Output(self._answer_id, self._box, sealed=self._sealed, quiet=quiet)

    def _take(self, output: Output, chunk: _Chunk) -> None:
        for choice in chunk.choices:
            said = choice.delta or choice.message
            if said is not None:
                output.feed(said)
            self._reason = choice.finish_reason or self._reason
        self._usage = chunk.usage or self._usage

    def _end(self, output: Output) -> dict[str, Any]:
        cut = CUT.get(self._reason)
        status = "incomplete" if cut else "completed" if self._reason in ENDED else "failed"
        output.end(status)
        response = self._response(status, output.items)
        if cut:
            response["incomplete_details"] = {"reason": cut}
        elif status == "failed":
            text = f"the engine ended the answer with {self._reason!r}"
            response["error"] = {"code": "server_error", "message": text}
        response["usage"] = _usage(self._usage)
        return response

    def _response(self, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "status": status, "output": items, "usage": None}


def _usage(usage: _Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    read, sampled = usage.prompt_tokens, usage.completion_tokens or 0
    cached, thought = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": (cached and cached.cached_tokens) or 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": (thought and thought.reasoning_tokens) or 0},
        "total_tokens": read + sampled,
    }
