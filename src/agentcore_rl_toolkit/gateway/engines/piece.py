"""What has come of one choice, and how it becomes a captured one.

Raw JSON is collected while a reply comes in; ids, log-probabilities and the assistant message are
decoded together at its end. Too few ids or log-probabilities are a refusal here, in one place.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from ..dialects.base import Ask
from ..fault import engine_fault
from ..wire import floats_to_bytes, ints_to_bytes
from .base import Sampled
from .experts import decode_experts

encode = msgspec.json.Encoder().encode
_id_lists = msgspec.json.Decoder(list[list[int] | None])
_text = msgspec.json.Decoder(str)


class Logprob(msgspec.Struct, gc=False):
    logprob: float


class ChatLogprobs(msgspec.Struct):
    content: list[Logprob] | None = None


class TextLogprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


_chat_logprobs = msgspec.json.Decoder(list[ChatLogprobs | None])
_text_logprobs = msgspec.json.Decoder(list[TextLogprobs | None])


class Piece(msgspec.Struct):
    index: int
    ids: list[Raw] = []
    logprobs: list[Raw] = []
    deltas: list[Raw] = []
    finish_reason: str | None = None
    prompt_text: bytes | None = None
    routed: bytes | None = None


def collect(piece: Piece, choice: dict[str, Raw], body: str) -> None:
    """Keeps the raw parts of a choice; ``body`` is the field with its text or message."""
    if "token_ids" in choice:
        piece.ids.append(choice["token_ids"])
    if "logprobs" in choice:
        piece.logprobs.append(choice["logprobs"])
    if body in choice:
        piece.deltas.append(choice[body])
    reason = choice.get("finish_reason")
    if reason is not None and bytes(reason) != b"null":
        piece.finish_reason = _text.decode(reason)
    if "prompt_token_ids" in choice and piece.prompt_text is None:
        piece.prompt_text = list_text(choice["prompt_token_ids"])
    routed = choice.get("routed_experts")
    if routed is not None and bytes(routed) != b"null":
        piece.routed = decode_experts(bytes(routed).strip(b'"'))


def list_text(raw: Raw) -> bytes | None:
    """``1,2`` of ``[1,2]``; None for null and for an empty list."""
    text = bytes(raw)
    return text[1:-1] if text[:1] == b"[" and len(text) > 2 else None


def finish(ask: Ask, piece: Piece, prompt_text: bytes | None, *, exact: bool) -> Sampled:
    """Decodes what was kept of a choice; Refusal when capture lacks something."""
    message = assemble(ask, piece.deltas)
    reason = piece.finish_reason or ""
    if not exact:
        return Sampled(piece.index, finish_reason=reason, message=message)
    lists = _id_lists.decode(b"[%b]" % b",".join(piece.ids))
    known = [ids for ids in lists if ids is not None]
    ids = [i for part in known for i in part] if known else None
    sampled = seal(
        piece.index, ids, _logprobs(ask, piece.logprobs), prompt_text or piece.prompt_text
    )
    sampled.finish_reason, sampled.message = reason, message
    sampled.routed_experts = piece.routed
    return sampled


def seal(
    index: int, ids: list[int] | None, logprobs: list[float], prompt_text: bytes | None
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


def _logprobs(ask: Ask, parts: list[Raw]) -> list[float]:
    joined = b"[%b]" % b",".join(parts)
    if ask.chat:
        chat = _chat_logprobs.decode(joined)
        return [entry.logprob for part in chat if part for entry in part.content or ()]
    texts = _text_logprobs.decode(joined)
    values = [value for part in texts if part for value in part.token_logprobs or ()]
    return [value for value in values if value is not None]


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
