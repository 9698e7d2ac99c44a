"""Finds sequences that begin as a new prompt does, so that their keys and values can be copied.

The next turn of a conversation begins with everything before it; samples of one group begin with
the same prompt. Ids are hashed in blocks, each hash including the one before, and every block
points to its latest owner. A match is compared id by id before it is used: a collision costs
time, never truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

BLOCK = 8
"""Ids in a block; the part of a prefix that does not fill one is computed again."""


class OwnerLike(Protocol):
    """A sequence whose keys and values are in a row of the cache."""

    @property
    def row(self) -> int: ...

    def ids(self) -> list[int]: ...


class PrefixIndex:
    def __init__(self) -> None:
        self._owner: dict[int, OwnerLike] = {}
        self._blocks: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._owner)

    def add(self, owner: OwnerLike, ids: Sequence[int]) -> None:
        """``ids`` are those whose keys are in the owner's row, or will be before the next find."""
        known = self._blocks.setdefault(id(owner), [])
        for key in _blocks(ids):
            self._owner[key] = owner
            known.append(key)

    def drop(self, owner: OwnerLike) -> None:
        for key in self._blocks.pop(id(owner), []):
            if self._owner.get(key) is owner:
                del self._owner[key]

    def clear(self) -> None:
        self._owner.clear()
        self._blocks.clear()

    def find(self, ids: Sequence[int]) -> tuple[OwnerLike, int] | None:
        """The owner with the longest beginning in common, and how long it is.

        At least one id is left over: the logits after the prompt must be computed.
        """
        best: tuple[OwnerLike, int] | None = None
        for number, key in enumerate(_blocks(ids[: len(ids) - 1]), 1):
            owner = self._owner.get(key)
            if owner is not None:
                best = owner, number * BLOCK
        if best is None or best[0].ids()[: best[1]] != list(ids[: best[1]]):
            return None
        return best


def _blocks(ids: Sequence[int]) -> Iterator[int]:
    key = 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        key = hash((key, *ids[start : start + BLOCK]))
        yield key
