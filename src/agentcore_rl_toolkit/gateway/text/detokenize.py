"""Text of a growing answer: whole characters only, and nothing from a stop sequence on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .parse import overlap


class DecoderLike(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...


class Detokenizer:
    """A character that is not whole yet is held back."""

    LONGEST = 4
    """Ids of which a character has at most, one a byte: broken bytes before them are text."""

    def __init__(self, decoder: DecoderLike) -> None:
        self._decoder = decoder
        self._ids: list[int] = []
        self._read = 0

    def feed(self, ids: Sequence[int]) -> str:
        """Whole characters only, a few ids behind at most."""
        self._ids += ids
        now, end = self._decoder.decode(self._ids), len(self._ids)
        if now.endswith("\ufffd"):
            now, end = self._whole(now, end)
        return self._take(now, end)

    def _whole(self, now: str, end: int) -> tuple[str, int]:
        """The text up to the last id after which it is whole, unless it never is."""
        for at in range(end - 1, max(end - self.LONGEST, self._read - 1), -1):
            text = self._decoder.decode(self._ids[:at])
            if not text.endswith("\ufffd"):
                return text, at
        return (now, end) if end - self._read >= self.LONGEST else ("", self._read)

    def end(self) -> str:
        return self._take(self._decoder.decode(self._ids), len(self._ids))

    def _take(self, now: str, end: int) -> str:
        # the ids before are decoded again, since some tokenizers change text by what precedes it
        before = self._decoder.decode(self._ids[: self._read])
        if end <= self._read or len(now) <= len(before):
            return ""
        self._ids = self._ids[self._read :]
        self._read = end - self._read
        return now[len(before) :]


class Stops:
    """Cuts a text at the first of some sequences, as an engine does that stops at them."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.matched = min(found)
            self._held = ""
            return text[:at]
        kept = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        held, self._held = self._held, ""
        return held
