"""What has come of one choice, and how it becomes a captured one.

Ids and log-probabilities are collected while a reply comes in; the assistant message is put
together at its end. Too few ids or log-probabilities are a refusal here, in one place.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from ..dialects.base import Ask
from ..fault import engine_fault
from ..wire import IdText, floats_to_bytes, ints_to_bytes
from .base import Sampled
from .experts import decode_experts

encode = msgspec.json.Encoder().encode
_ids = msgspec.json.Decoder(list[int] | None)
_text = msgspec.json.Decoder(str)


class Logprob(msgspec.Struct, gc=False):
    logprob: float


class Logprobs(msgspec.Struct, gc=False):
    content: list[Logprob] | None = None
    """Of chat."""
    token_logprobs: list[float | None] | None = None
    """Of completions."""

    def values(self) -> list[float]:
        if self.content is not None:
            return [entry.logprob for entry in self.content]
        return [value for value in self.token_logprobs or () if value is not None]


_logprobs = msgspec.json.Decoder(Logprobs | None)


class Piece(msgspec.Struct):
    index: int
    ids: list[int] | None = None
    """None as long as the engine gave none at all."""
    logprobs: list[float] = []
    deltas: list[Raw] = []
    finish_reason: str | None = None
    stop: str | None = None
    prompt_text: IdText | None = None
    routed: bytes | None = None

    def add_ids(self, ids: list[int] | None) -> None:
        if self.ids is None:
            self.ids = ids
        elif ids:
            self.ids += ids


def collect(piece: Piece, choice: dict[str, Raw], body: str, *, exact: bool = True) -> None:
    """Keeps the parts of a choice; ``body`` is the field with its text or message."""
    if exact and "token_ids" in choice:
        piece.add_ids(_ids.decode(choice["token_ids"]))
    if exact and "logprobs" in choice:
        given = _logprobs.decode(choice["logprobs"])
        piece.logprobs += given.values() if given is not None else []
    if body in choice:
        piece.deltas.append(choice[body])
    reason = choice.get("finish_reason")
    if reason is not None and bytes(reason) != b"null":
        piece.finish_reason = _text.decode(reason)
        piece.stop = stop_text(choice.get("stop_reason"))
    if "prompt_token_ids" in choice and piece.prompt_text is None:
        piece.prompt_text = list_text(choice["prompt_token_ids"])
    routed = choice.get("routed_experts")
    if routed is not None and bytes(routed) != b"null":
        piece.routed = decode_experts(bytes(routed).strip(b'"'))


def stop_text(raw: Raw | None) -> str | None:
    """A stop sequence; what else ends an answer is a token's number or null."""
    return _text.decode(raw) if raw is not None and bytes(raw)[:1] == b'"' else None


def list_text(raw: Raw) -> bytes | None:
    """``1,2`` of ``[1,2]``; None for null and for an empty list."""
    text = bytes(raw)
    return text[1:-1] if text[:1] == b"[" and len(text) > 2 else None


def finish(ask: Ask, piece: Piece, prompt_text: IdText | None, *, exact: bool) -> Sampled:
    """Decodes what was kept of a choice; Refusal when capture lacks something."""
    message = assemble(ask, piece.deltas)
    reason = piece.finish_reason or ""
    if not exact:
        return Sampled(piece.index, finish_reason=reason, message=message, stop=piece.stop)
    sampled = seal(piece.index, piece.ids, piece.logprobs, prompt_text or piece.prompt_text)
    sampled.finish_reason, sampled.message, sampled.stop = reason, message, piece.stop
    sampled.routed_experts = piece.routed
    return sampled


def seal(
    index: int, ids: list[int] | None, logprobs: list[float], prompt_text: IdText | None
) -> Sampled:
    """A captured choice, or the refusal that says what the engine left out."""
    if ids is None or prompt_text is None:
        raise engine_fault(
            "the engine returned no token ids, so this turn cannot be captured exactly: it must "
            "honour 'return_token_ids' (vLLM 0.10.2 or newer)",
            retry=False,
        )
    if len(logprobs) != len(ids):
        raise engine_fault(
            f"the engine returned {len(logprobs)} log-probabilities for {len(ids)} sampled "
            "tokens; missing ones are an error, never zero",
            retry=False,
        )
    return Sampled(index, ints_to_bytes(ids), floats_to_bytes(logprobs), prompt_text)


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Tool(msgspec.Struct):
    index: int = 0
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Tool] | None = None


_deltas = msgspec.json.Decoder(list[_Delta])
_texts = msgspec.json.Decoder(list[str])


def assemble(ask: Ask, deltas: list[Raw]) -> bytes:
    """The assistant message as JSON: as it came, or put together from a stream's deltas."""
    joined = b"[%b]" % b",".join(deltas)
    if not ask.chat:
        return encode({"role": "assistant", "content": "".join(_texts.decode(joined))})
    if not ask.stream and len(deltas) == 1:
        return bytes(deltas[0])
    parts = _deltas.decode(joined)
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for name, texts in (
        ("content", [part.content for part in parts if part.content is not None]),
        ("reasoning", [part.reasoning for part in parts if part.reasoning is not None]),
        (
            "reasoning_content",
            [p.reasoning_content for p in parts if p.reasoning_content is not None],
        ),
        ("refusal", [part.refusal for part in parts if part.refusal is not None]),
    ):
        if texts:
            message[name] = "".join(texts)
    calls = _tool_calls(parts)
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return encode(message)


def _tool_calls(parts: list[_Delta]) -> list[dict[str, Any]]:
    calls: dict[int, dict[str, Any]] = {}
    for part in parts:
        for tool in part.tool_calls or ():
            call = calls.setdefault(
                tool.index,
                {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
            )
            call["id"] = tool.id or call["id"]
            call["type"] = tool.type or call["type"]
            if tool.function is not None:
                call["function"]["name"] += tool.function.name or ""
                call["function"]["arguments"] += tool.function.arguments or ""
    return [calls[index] for index in sorted(calls)]
