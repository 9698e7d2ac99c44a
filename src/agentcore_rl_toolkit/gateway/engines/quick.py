"""Replies of a known shape, decoded typed in one pass and written again without what is hidden.

Five to ten times quicker than going through dictionaries, and only for clients that asked for
nothing extra. A field that is not listed here makes the decoder refuse, and the reply takes the
general way, on which nothing is ever dropped.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ..wire import DONE
from .piece import Logprobs

_encoder = msgspec.json.Encoder()
encode, encode_lines = _encoder.encode, _encoder.encode_lines

# msgspec takes no union of Raw and UNSET: fields that may be absent are Raw with UNSET as default
_ABSENT: Any = UNSET


class QuickChoice(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    index: int = 0
    delta: Raw = _ABSENT
    text: Raw = _ABSENT
    logprobs: Logprobs | msgspec.UnsetType | None = UNSET
    finish_reason: str | None = None
    stop_reason: Raw = _ABSENT
    token_ids: list[int] | msgspec.UnsetType | None = UNSET


class QuickChunk(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    id: Raw = _ABSENT
    object: Raw = _ABSENT
    created: Raw = _ABSENT
    model: Raw = _ABSENT
    choices: list[QuickChoice]
    usage: Raw = _ABSENT
    system_fingerprint: Raw = _ABSENT
    service_tier: Raw = _ABSENT
    prompt_token_ids: Raw = _ABSENT
    prompt_text: Raw = _ABSENT


_chunks = msgspec.json.Decoder(list[QuickChunk])


def quick_chunks(events: list[bytes]) -> list[QuickChunk]:
    """The leading events that carry no finish reason; empty when their shape is another."""
    last = len(events) - 1 if events[-1] == DONE else len(events)
    try:
        chunks = _chunks.decode(b"[%b]" % b",".join(events[:last]))
    except msgspec.DecodeError:
        return []
    for at, chunk in enumerate(chunks):
        if not chunk.choices:
            return chunks[:at]
        for choice in chunk.choices:
            if choice.finish_reason is not None:
                return chunks[:at]
    return chunks


class QuickMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    index: int = 0
    message: Raw
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: Raw = _ABSENT
    token_ids: list[int] | msgspec.UnsetType | None = None
    routed_experts: msgspec.UnsetType | None = UNSET


class QuickAnswer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A whole chat answer."""

    id: Raw = _ABSENT
    object: Raw = _ABSENT
    created: Raw = _ABSENT
    model: Raw = _ABSENT
    choices: list[QuickMessage]
    usage: Raw = _ABSENT
    system_fingerprint: Raw = _ABSENT
    service_tier: Raw = _ABSENT
    prompt_logprobs: Raw = _ABSENT
    prompt_token_ids: Raw = _ABSENT
    prompt_text: Raw = _ABSENT
    kv_transfer_params: Raw = _ABSENT


_answer = msgspec.json.Decoder(QuickAnswer)


def quick_answer(body: bytes) -> QuickAnswer | None:
    try:
        return _answer.decode(body)
    except msgspec.DecodeError:
        return None
