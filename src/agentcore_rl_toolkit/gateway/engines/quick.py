"""Replies of a known shape, decoded typed in one pass and written again without what is hidden.

Five to ten times quicker than going through dictionaries, and only for clients that asked for
nothing extra. A field that is not listed here makes the decoder refuse, and the reply takes the
general way, on which nothing is ever dropped. Of a stream's events, which differ in their choices
alone, only these are decoded.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from .piece import Logprobs, Piece

_encoder = msgspec.json.Encoder()
encode, encode_lines = _encoder.encode, _encoder.encode_lines

# msgspec takes no union of Raw and UNSET: fields that may be absent are Raw with UNSET as default
_ABSENT: Any = UNSET
_CHOICES = b'"choices":['


class QuickChoice(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    index: int = 0
    delta: Raw = _ABSENT
    text: Raw = _ABSENT
    logprobs: Logprobs | msgspec.UnsetType | None = UNSET
    finish_reason: str | None = None
    stop_reason: Raw = _ABSENT
    token_ids: list[int] | msgspec.UnsetType | None = UNSET


_stream = msgspec.json.Decoder(list[QuickChoice])
_around = msgspec.json.Decoder(dict[str, Any])
_SPECIAL = frozenset({"error", "prompt_token_ids", "prompt_text"})
"""What an event has beside its choices that must be seen to."""


class QuickEvents(NamedTuple):
    """Events that differ in their choice alone, one each."""

    head: bytes
    choices: list[QuickChoice]
    tail: bytes

    def encoded(self) -> bytes:
        between = self.tail + b"\n\ndata: " + self.head
        lines = encode_lines(self.choices)[:-1].replace(b"\n", between)
        return b"".join((b"data: ", self.head, lines, self.tail, b"\n\n"))


def quick_events(events: list[bytes]) -> QuickEvents | None:
    """The leading events that carry no finish reason; None when their shape is another.

    What all of them have around their choice is taken off and put back as bytes.
    """
    at = events[0].find(_CHOICES) + len(_CHOICES)
    end = events[0].rfind(b"]") - len(events[0])
    head, tail = events[0][:at], events[0][end:]
    fits = [event[:at] == head and event[end:] == tail for event in events]
    last = fits.index(False) if False in fits else len(events)
    inner = b",".join([event[at:end] for event in events[:last]])
    try:
        around = _around.decode(head + tail)
        if around.get("choices") != [] or around.keys() & _SPECIAL or b"\n" in inner:
            return None
        choices = _stream.decode(b"[%b]" % inner)
    except msgspec.DecodeError:
        return None
    if len(choices) != last:
        return None
    reasons = [choice.finish_reason is None for choice in choices]
    if not all(reasons):
        choices = choices[: reasons.index(False)]
    return QuickEvents(head, choices, tail) if choices else None


def collect_quick(piece: Piece, choices: list[QuickChoice]) -> int:
    """Keeps the parts of one choice's events; how many of them had ids."""
    told = [choice.token_ids for choice in choices if choice.token_ids is not UNSET]
    if ids := [one for one in told if one is not None]:
        piece.add_ids(list(itertools.chain.from_iterable(ids)))
    given = [choice.logprobs for choice in choices if choice.logprobs]
    entries = [one.content for one in given if one.content is not None]
    if len(entries) == len(given):  # of chat
        piece.logprobs += [entry.logprob for content in entries for entry in content]
    else:
        piece.logprobs += [value for one in given for value in one.values()]
    bodies = [one.delta if one.delta is not _ABSENT else one.text for one in choices]
    piece.deltas += [body for body in bodies if body is not _ABSENT]
    return len(told)


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
