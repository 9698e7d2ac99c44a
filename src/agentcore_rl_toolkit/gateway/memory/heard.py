"""Chat requests whose beginning the session has sent before: only what is new is parsed.

An agent sends its whole history with every request. Up to the end of an earlier request's last
message it is recognised by length and hash, and its messages are the earlier ones, the same objects
in memory. What does not begin like that, and every other dialect, is read whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xxhash
from msgspec import Raw

from ...trajectory.messages import RECENT_BYTES, RECENT_REQUESTS
from ..dialects.base import Ask, Dialect
from ..dialects.chat import CHAT

MIN_BYTES = 16 << 10
"""Shorter requests are quicker to parse than to look up."""
_WHITE = b" \t\r\n"
_MOST_WHITE = 64


class _Known(NamedTuple):
    cut: int
    """Where its last message ends in the body."""
    digest: bytes
    """Of the body up to there."""
    start: int
    """Where the list of messages begins."""
    messages: list[bytes]


class Heard:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[_Known] = []
        """The latest first."""

    def read(self, dialect: Dialect, body: bytes) -> Ask:
        if dialect is CHAT and len(body) >= MIN_BYTES:
            for known in self._known:
                if self._begins(body, known):
                    return self._rest(body, known)
        return dialect.parse(body)

    @staticmethod
    def _begins(body: bytes, known: _Known) -> bool:
        if body[known.cut : known.cut + 1] != b",":
            return False
        return xxhash.xxh3_128_digest(memoryview(body)[: known.cut]) == known.digest

    @staticmethod
    def _rest(body: bytes, known: _Known) -> Ask:
        """The request, read without the messages that are known."""
        fresh = body[: known.start + 1] + body[known.cut + 1 :]
        ask = CHAT.parse(fresh)
        after = len(fresh) - known.start - len(bytes(ask.fields["messages"]))
        ask.fields["messages"] = Raw(memoryview(body)[known.start : len(body) - after])
        ask.messages = [*known.messages, *(ask.messages or [])]
        ask.body, ask.fresh = body, fresh
        return ask

    def learn(self, ask: Ask) -> None:
        """After it was looked through: one that had to be edited is read whole the next time."""
        body, raw = ask.body, ask.fields.get("messages")
        if ask.dialect != CHAT.name or raw is None or ask.edits or ask.messages is None:
            return
        if not MIN_BYTES <= len(body) <= RECENT_BYTES:
            return
        start, view = _offset(body, raw), memoryview(raw)
        end = bytes(view[-_MOST_WHITE:-1])
        white = len(end) - len(end.rstrip(_WHITE))
        if start is None or white == len(end):
            return
        cut = start + len(view) - 1 - white
        digest = xxhash.xxh3_128_digest(memoryview(body)[:cut])
        self._known = [one for one in self._known if not _is_beginning(one, ask.messages)]
        self._known.insert(0, _Known(cut, digest, start, list(ask.messages)))
        del self._known[RECENT_REQUESTS:]


def _is_beginning(one: _Known, messages: list[bytes]) -> bool:
    return (
        len(one.messages) <= len(messages) and one.messages[-1] is messages[len(one.messages) - 1]
    )


def _offset(body: bytes, part: Raw) -> int | None:
    """Where a part that was not copied lies in the body."""
    at = _address(part) - _address(body)
    return at if 0 <= at <= len(body) - len(memoryview(part)) else None


def _address(data: bytes | Raw) -> int:
    found: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return found
