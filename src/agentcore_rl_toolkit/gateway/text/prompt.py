"""Prompt ids of a session's turns, recognised by their text instead of parsed again.

An engine that renders chat itself returns all prompt ids of every turn as JSON: 200 kB at 32k
tokens, almost all of it known. Each turn's id text is remembered as length and 128 bits of xxHash,
and a new text that begins with a known one is packed from that turn's ids and the parsed rest.
Hashing is a hundred times quicker than parsing and costs no memory; a text that matches nothing is
parsed whole.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

import xxhash

from ...trajectory.strand import Prompt
from ...trajectory.turn import Turn
from ..wire import IdText, pack_ids

MAX_KNOWN = 16
"""Conversations of one session that are remembered at a time."""
STEP_BYTES = 64 << 10
"""Text that is parsed in one go: well under a millisecond."""
MIN_BYTES = 2048
"""Shorter texts are quicker to parse than to look up."""


class GraphLike(Protocol):
    def prompt(self, turn_id: str, n_ids: int, more: bytes) -> Prompt: ...


class _Known(NamedTuple):
    length: int
    digest: bytes
    turn_id: str
    n_prompt: int


class PromptCache:
    __slots__ = ("_hashed", "_known")

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._hashed: tuple[IdText, bytes] | None = None
        """The text packed last and its digest: it is learnt next."""

    def pack(self, text: IdText, graph: GraphLike) -> Prompt:
        """Packed ids of ``1,2,3``."""
        known, rest = self._split(text)
        new = pack_ids(rest) if rest else b""
        return Prompt(new) if known is None else graph.prompt(known.turn_id, known.n_prompt, new)

    async def pack_in_steps(self, text: IdText, graph: GraphLike) -> Prompt:
        """The same for a text of any length, with turns for the loop in between."""
        known, unknown = self._split(text)
        rest, parts, at = bytes(unknown), [], 0
        while at < len(rest):
            end = rest.find(b",", at + STEP_BYTES)
            end = len(rest) if end < 0 else end
            parts.append(pack_ids(rest[at:end]))
            at = end + 1
            await asyncio.sleep(0)
        new = b"".join(parts)
        return Prompt(new) if known is None else graph.prompt(known.turn_id, known.n_prompt, new)

    def _split(self, text: IdText) -> tuple[_Known | None, IdText]:
        """The prompt that the text begins with, and the text of what comes after it."""
        if len(text) >= MIN_BYTES:
            for known in sorted(self._known, reverse=True):
                if self._begins(text, known):
                    self._known.remove(known)
                    self._known.append(known)
                    return known, text[known.length + 1 :]
        return None, text

    def _begins(self, text: IdText, known: _Known) -> bool:
        if len(text) < known.length or text[known.length : known.length + 1] not in (b"", b","):
            return False
        view = memoryview(text)
        told = xxhash.xxh3_128(view[: known.length])
        if told.digest() != known.digest:
            return False
        told.update(view[known.length :])
        self._hashed = (text, told.digest())
        return True

    def learn(self, text: IdText, turn: Turn, replaces: str | None) -> None:
        """Remembers a turn's prompt; that of the turn it continues is needed no longer."""
        if len(text) < MIN_BYTES:
            return
        if replaces is not None:
            self._known = [known for known in self._known if known.turn_id != replaces]
        hashed, self._hashed = self._hashed, None
        digest = hashed[1] if hashed and hashed[0] is text else xxhash.xxh3_128_digest(text)
        self._known.append(_Known(len(text), digest, turn.turn_id, turn.n_prompt))
        del self._known[:-MAX_KNOWN]

    def forget(self) -> None:
        self._known.clear()
