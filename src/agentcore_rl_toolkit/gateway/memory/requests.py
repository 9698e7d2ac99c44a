"""What of a request its parent's turn already has in the journal.

A request repeats its whole history, so a journal of whole requests would grow with the square of a
conversation. Bodies are not kept to compare with: each is remembered as a hash of every block, and
a turn leaves out the leading blocks that are its parent's.
"""

from __future__ import annotations

import xxhash

BLOCK_BYTES = 8 << 10
"""Bodies of fewer than two blocks are journalled whole."""
MAX_KNOWN = 16
"""Conversations of one session that are remembered at a time."""

Blocks = list[bytes]


def blocks_of(body: bytes) -> Blocks:
    """Hashes of the whole blocks of a body; none when it is small."""
    if len(body) < 2 * BLOCK_BYTES:
        return []
    view, last = memoryview(body), len(body) - BLOCK_BYTES
    told = xxhash.xxh3_128_digest
    return [told(view[at : at + BLOCK_BYTES]) for at in range(0, last + 1, BLOCK_BYTES)]


class JournalledRequests:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Blocks] = {}

    def shared(self, parent: str | None, blocks: Blocks) -> int:
        """How many leading bytes equal those of the parent's request."""
        known = self._known.get(parent, []) if parent is not None and blocks else []
        same = 0
        for mine, theirs in zip(blocks, known, strict=False):
            if mine != theirs:
                break
            same += 1
        return same * BLOCK_BYTES

    def learn(self, turn_id: str, blocks: Blocks) -> None:
        if blocks:
            self._known[turn_id] = blocks
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def forget(self) -> None:
        self._known.clear()
