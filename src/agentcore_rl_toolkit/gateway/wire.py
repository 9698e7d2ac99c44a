"""Bytes on the wire: server-sent events and lists of token ids, without building Python lists.

Invariants: events are split on ``\\n`` bytes only, since U+2028 and U+0085 are legal inside a
token; ids leave here as packed int32 and log-probabilities as packed float32. A list of prompt
ids is cut out of an answer by a byte scan before the answer is parsed, because it is most of the
answer and almost all of it is already known from the turn before.
"""

from __future__ import annotations

import struct
import warnings

import msgspec
import numpy as np

from .fault import engine_fault

DONE = b"[DONE]"
_PROMPT_KEY = b'"prompt_token_ids":['
CUT_BYTES = 64 << 10
"""Of an answer, below which two searches through it cost more than parsing its ids does."""
_SMALL_BYTES = 4096
"""Below this a typed list decode beats numpy's text parser."""

_ints = msgspec.json.Decoder(list[int])


class EventSplitter:
    """Feeds on network chunks, gives whole events as their joined ``data`` bytes."""

    __slots__ = ("_data", "_limit", "_rest")

    def __init__(self, limit: int = 64 << 20) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self._rest and not self._data and chunk[-2:] == b"\n\n":
            quick = _whole_events(chunk)
            if quick is not None:
                return quick
        lines = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > self._limit:
            raise engine_fault(f"the engine sent an event of more than {self._limit} bytes")
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                line = line[6:] if line[5:6] == b" " else line[5:]
                data.append(line[:-1] if line[-1:] == b"\r" else line)
            elif data and (not line or line == b"\r"):
                events.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        return events

    def end(self) -> list[bytes]:
        """What an engine that forgot the last blank line still meant to send."""
        return self.feed(b"\n\n") if self._rest or self._data else []


def _whole_events(chunk: bytes) -> list[bytes] | None:
    """Events of a chunk that holds nothing but whole ones of the usual form, else None."""
    if chunk[:6] != b"data: ":
        return None
    events = chunk[6:-2].split(b"\n\ndata: ")
    # no line but theirs: whatever else a chunk holds has line ends of its own
    return None if chunk.count(b"\n") != 2 * len(events) or b"\r" in chunk else events


IdText = bytes | memoryview
"""``1,2,3``, maybe as a part of the answer that it came in."""


def cut_prompt_ids(body: bytes) -> tuple[bytes, IdText | None]:
    """The answer with an empty ``prompt_token_ids`` and the text between its brackets.

    In valid JSON the needle cannot match inside a string, where the quotes would be escaped. What
    does not look as expected is left for the parser.
    """
    at = body.find(_PROMPT_KEY)
    if at <= 0 or body[at - 1 : at] == b"\\":
        return body, None
    start = at + len(_PROMPT_KEY)
    end = body.find(b"]", start)
    if end < 0 or body.find(_PROMPT_KEY, end) != -1:
        return body, None
    return body[:start] + body[end:], memoryview(body)[start:end]


def pack_ids(text: IdText) -> bytes:
    """``1,2,3`` to packed int32."""
    text = bytes(text)
    try:
        if len(text) < _SMALL_BYTES:
            return ints_to_bytes(_ints.decode(b"[%b]" % text))
        if not text[-1:].isdigit():
            raise ValueError("it does not end with a digit")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.fromstring(text, dtype=np.int32, sep=",").tobytes()
    except (msgspec.DecodeError, ValueError, DeprecationWarning) as error:
        raise engine_fault(f"the engine's prompt ids are not a list of ids: {error}") from error


def ints_to_bytes(ids: list[int]) -> bytes:
    try:
        return struct.pack(f"{len(ids)}i", *ids)  # ten times quicker than array or numpy
    except struct.error as error:
        raise engine_fault(f"the engine sent token ids that are not int32: {error}") from error


def floats_to_bytes(values: list[float]) -> bytes:
    try:
        return struct.pack(f"{len(values)}f", *values)
    except (struct.error, OverflowError) as error:
        raise engine_fault(f"the engine sent log-probabilities beyond float32: {error}") from error
