"""A chat answer as Anthropic's message: whole, or event by event in the documented order.

``message_start``; for every block ``content_block_start``, its deltas, ``content_block_stop``;
``message_delta`` with stop reason and usage; ``message_stop``. One block is open at a time. Text
that a client is sent is text that was sampled; only a tool call's arguments are completed where
they are not valid JSON, and then the turn says so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import msgspec

from ..fault import engine_fault
from .arguments import Arguments, whole_object
from .base import Ask, Outlet, encode

DONE = b"[DONE]"
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Tool(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Tool] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_replies = msgspec.json.Decoder(_Reply)
_chunks = msgspec.json.Decoder(list[_Reply])


class MessagesOutlet(Outlet):
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._usage = _Usage(len(ask.prompt or b"") // 4)
        self._reason: str | None = None
        self._matched: str | None = None
        self._stream: _Blocks | None = None

    def whole(self, body: bytes) -> bytes:
        reply = _replies.decode(body)
        choice = reply.choices[0]
        self._usage = reply.usage or self._usage
        self._ended(choice)
        blocks = self._blocks(choice.message or _Message())
        called = any(block["type"] == "tool_use" for block in blocks)
        return encode({**self._head(), "content": blocks, **self._end(called)} | self._counted())

    def events(self, data: bytes) -> bytes:
        stream = self._stream
        chunks, done = _split(data)
        if stream is None:
            stream = self._stream = _Blocks(self._ask)
            self._usage.prompt_tokens = len(self._ask.prompt or b"") // 4
            head = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None}
            stream.put("message_start", message=head | self._counted())
        for chunk in chunks:
            self._usage = chunk.usage or self._usage
            for choice in chunk.choices[:1]:
                if choice.delta is not None:
                    stream.add(choice.delta)
                self._ended(choice)
        if done:
            stream.close()
            stream.put("message_delta", delta=self._end(stream.called), **self._counted())
            stream.put("message_stop")
        return stream.take()

    def sent(self, message: bytes) -> bytes:
        """With the arguments that the client got, where they had to be completed."""
        if b'"tool_calls"' not in message:
            return message
        chat: dict[str, Any] = msgspec.json.decode(message)
        changed = False
        for call in chat.get("tool_calls") or ():
            function = call.get("function") or {}
            given = str(function.get("arguments") or "")
            function["arguments"] = whole_object(given)
            changed = changed or function["arguments"] != given.strip()
        return encode(chat) if changed else message

    def _head(self) -> dict[str, Any]:
        name = f"msg_{self._ask.answer_id}"
        return {"id": name, "type": "message", "role": "assistant", "model": self._ask.model}

    def _ended(self, choice: _Choice) -> None:
        self._reason = choice.finish_reason or self._reason
        if isinstance(choice.stop_reason, str):
            self._matched = choice.stop_reason

    def _end(self, called: bool) -> dict[str, Any]:
        reason = "tool_use" if called else STOP_REASONS.get(self._reason or "", "end_turn")
        if called and self._reason == "length":
            reason = "max_tokens"
        if reason == "end_turn" and self._matched is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": self._matched}
        return {"stop_reason": reason, "stop_sequence": None}

    def _counted(self) -> dict[str, Any]:
        details = self._usage.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return {
            "usage": {
                "input_tokens": self._usage.prompt_tokens - cached,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": cached,
                "output_tokens": self._usage.completion_tokens,
            }
        }

    def _blocks(self, message: _Message) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        thought = message.reasoning_content or message.reasoning
        if thought:
            signature = sign(self._ask.secret, thought)
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
        text = (message.content or "") + (message.refusal or "")
        if text:
            blocks.append({"type": "text", "text": text})
        for at, call in enumerate(message.tool_calls or ()):
            function = call.function or _Function()
            arguments = msgspec.Raw(whole_object(function.arguments or "").encode())
            head = tool_head(self._ask, at, call)
            blocks.append({**head, "input": arguments})
        return blocks


class _Blocks:
    """The blocks of a stream, one open at a time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._out: list[bytes] = []
        self._index = -1
        self._open: str | None = None
        self._tool = -1
        """Index of the chat's call that is or was open last."""
        self._arguments = Arguments()
        self._seal = hmac.new(ask.secret, digestmod=hashlib.sha256)
        self.called = False

    def put(self, kind: str, **fields: Any) -> None:
        data = encode({"type": kind, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def take(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out

    def add(self, delta: _Message) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            self._seal.update(thought.encode("utf-8", "surrogatepass"))
            self._delta("thinking_delta", thinking=thought)
        text = (delta.content or "") + (delta.refusal or "")
        if text:
            self._begin("text", {"type": "text", "text": ""})
            self._delta("text_delta", text=text)
        for call in delta.tool_calls or ():
            self._call(call)

    def close(self) -> None:
        if self._open is None:
            return
        if self._open == "tool_use" and (rest := self._arguments.close()):
            self._delta("input_json_delta", partial_json=rest)
        if self._open == "thinking":
            self._delta("signature_delta", signature=signature_of(self._seal))
            self._seal = hmac.new(self._ask.secret, digestmod=hashlib.sha256)
        self.put("content_block_stop", index=self._index)
        self._open = None

    def _begin(self, kind: str, block: dict[str, Any]) -> None:
        if self._open == kind and kind != "tool_use":
            return
        self.close()
        self._open, self._index = kind, self._index + 1
        self.put("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **fields: Any) -> None:
        self.put("content_block_delta", index=self._index, delta={"type": kind, **fields})

    def _call(self, call: _Tool) -> None:
        if call.index > self._tool:
            head = tool_head(self._ask, call.index, call)
            self._begin("tool_use", {**head, "input": {}})
            self._arguments, self._tool, self.called = Arguments(), call.index, True
        elif call.index < self._tool or self._open != "tool_use":
            raise engine_fault("the engine went back to a tool call that had ended")
        written = call.function.arguments if call.function else None
        if written and (part := self._arguments.feed(written)):
            self._delta("input_json_delta", partial_json=part)


def tool_head(ask: Ask, index: int, call: _Tool) -> dict[str, Any]:
    name = call.function.name if call.function else None
    return {
        "type": "tool_use",
        "id": call.id or f"toolu_{ask.answer_id}_{index}",
        "name": name or "",
    }


def sign(secret: bytes, thinking: str) -> str:
    """Only who holds the session's secret can make it, and the same text gets the same one."""
    data = thinking.encode("utf-8", "surrogatepass")
    return signature_of(hmac.new(secret, data, hashlib.sha256))


def signature_of(seal: hmac.HMAC) -> str:
    return base64.b64encode(seal.digest()).decode()


def _split(data: bytes) -> tuple[list[_Reply], bool]:
    """Chunks of whole events, decoded at once, and whether the last of all was among them."""
    events = [event[6:] for event in data.split(b"\n\n") if event[:6] == b"data: "]
    done = bool(events) and events[-1] == DONE
    return _chunks.decode(b"[%b]" % b",".join(events[:-1] if done else events)), done
