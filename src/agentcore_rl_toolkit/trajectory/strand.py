"""The token store of one model in one session: every prefix once, found without reading it twice.

A strand is a run of ids that grows at its end; a fork starts a new strand at a position of another
one. A turn is a position in a strand: its ids are those before it. Memory is the number of distinct
ids. A continuation is found by its last few ids first, longest turn first, and then by comparing
bytes: the usual one, which continues the longest turn, costs one comparison.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from .turn import ID, ID_BYTES, Ids

TAIL_BYTES = 8 * ID_BYTES
_FIRST_BLOCK = 64


@dataclass(slots=True, eq=False)
class Strand:
    parent: Strand | None
    start: int
    """Position of its first own id; those before it are the parent's."""
    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    """Where its turns end, in order of growth; ``slots`` are their numbers."""
    slots: list[int] = field(default_factory=list)
    children: list[Strand] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.data) // ID_BYTES


class TokenStore:
    """Turns are numbered by the order in which they are added."""

    def __init__(self) -> None:
        self.roots: list[Strand] = []
        self._places: list[tuple[Strand, int, int]] = []
        self._tails: list[bytes] = []
        """Last ids of each turn."""
        self._ends: list[int] = []
        """Distinct lengths of turns, ascending; ``_by_end`` has the turns of each."""
        self._by_end: dict[int, list[int]] = {}
        self._by_prompt: dict[int, list[int]] = {}

    def add(self, parent: int | None, shared: int, delta: bytes, sampled: bytes) -> int:
        slot = len(self._places)
        strand = self._strand_for(parent, shared)
        n_prompt = strand.end + len(delta) // ID_BYTES
        strand.data += delta
        strand.data += sampled
        end = strand.end
        strand.ends.append(end)
        strand.slots.append(slot)
        self._places.append((strand, n_prompt, end))
        self._by_prompt.setdefault(n_prompt, []).append(slot)
        self._note_end(slot, end)
        return slot

    def ids(self, slot: int) -> Ids:
        """Prompt + sampled of a turn, copied."""
        strand, _, end = self._places[slot]
        out = np.empty(end, np.int32)
        for part, start, stop in _segments(strand, end):
            out[start:stop] = np.frombuffer(
                part.data, ID, stop - start, (start - part.start) * ID_BYTES
            )
        return out

    def packed(self, slot: int, n_ids: int, more: bytes = b"") -> bytes:
        """The first ids of a turn and ``more``, as bytes, in one copy."""
        views: list[bytes | memoryview] = []
        for part, start, stop in _segments(self._places[slot][0], n_ids):
            lo, hi = (start - part.start) * ID_BYTES, (stop - part.start) * ID_BYTES
            views.append(memoryview(part.data)[lo:hi])
        return b"".join([*views, more])

    def longest_prefixes(self, prompt: bytes) -> list[int]:
        """The longest turns that ``prompt`` begins with: several when their ids are the same."""
        at = bisect.bisect_right(self._ends, len(prompt) // ID_BYTES)
        for end in reversed(self._ends[:at]):
            tail = prompt[max(end * ID_BYTES - TAIL_BYTES, 0) : end * ID_BYTES]
            likely = [slot for slot in self._by_end[end] if self._tails[slot] == tail]
            if found := [slot for slot in likely if self._begins(slot, end, prompt)]:
                return found
        return []

    def same_prompts(self, prompt: bytes) -> list[int]:
        """Turns whose whole prompt is ``prompt``."""
        n_ids = len(prompt) // ID_BYTES
        return [s for s in self._by_prompt.get(n_ids, ()) if self._begins(s, n_ids, prompt)]

    def common(self, slot: int, prompt: bytes) -> int:
        """How many leading ids ``prompt`` has in common with a turn."""
        strand, _, end = self._places[slot]
        total = 0
        for part, start, stop in _segments(strand, min(end, len(prompt) // ID_BYTES)):
            same = _common(part, start, stop, prompt)
            total = start + same
            if total < stop:
                break
        return total

    def best_common(self, prompt: bytes) -> tuple[int, int] | None:
        """(turn, leading ids in common) of the turn that shares most; None when none shares any."""
        best: tuple[int, Strand] | None = None
        todo = list(self.roots)
        while todo:
            strand = todo.pop()
            stop = min(strand.end, len(prompt) // ID_BYTES)
            reach = strand.start + _common(strand, strand.start, stop, prompt)
            if reach > strand.start and (best is None or reach > best[0]):
                best = (reach, strand)
            todo += [child for child in strand.children if child.start <= reach]
        if best is None:
            return None
        reach, strand = best
        return strand.slots[bisect.bisect_left(strand.ends, reach)], reach

    def nbytes(self) -> int:
        return sum(len(strand.data) for strand in self._strands())

    def _strands(self) -> Iterator[Strand]:
        todo = list(self.roots)
        while todo:
            strand = todo.pop()
            todo += strand.children
            yield strand

    def _strand_for(self, parent: int | None, shared: int) -> Strand:
        if parent is None or shared == 0:
            self.roots.append(strand := Strand(None, 0))
            return strand
        base, _, end = self._places[parent]
        if shared == end == base.end:
            return base
        while base.parent is not None and base.start >= shared:
            base = base.parent
        base.children.append(strand := Strand(base, shared))
        return strand

    def _note_end(self, slot: int, end: int) -> None:
        self._tails.append(self._tail(slot, end))
        if not end:
            return  # it has no ids: nothing continues it
        if end in self._by_end:
            self._by_end[end].append(slot)
        else:
            self._by_end[end] = [slot]
            bisect.insort(self._ends, end)

    def _tail(self, slot: int, end: int) -> bytes:
        strand, size = self._places[slot][0], min(end * ID_BYTES, TAIL_BYTES)
        if len(strand.data) >= size:
            return bytes(strand.data[len(strand.data) - size :])
        return self.ids(slot).tobytes()[-size:]

    def _begins(self, slot: int, length: int, prompt: bytes) -> bool:
        for part, start, stop in _segments(self._places[slot][0], length):
            lo, hi = (start - part.start) * ID_BYTES, (stop - part.start) * ID_BYTES
            with memoryview(part.data)[lo:hi] as own:  # startswith compares by memcmp, == does not
                if not prompt.startswith(own, start * ID_BYTES):
                    return False
        return True


def _segments(strand: Strand, end: int) -> list[tuple[Strand, int, int]]:
    """Strands that hold positions 0 to ``end``, first to last."""
    out: list[tuple[Strand, int, int]] = []
    at: Strand | None = strand
    while at is not None:
        if at.start < end:
            out.append((at, at.start, end))
            end = at.start
        at = at.parent
    return out[::-1]


def _common(strand: Strand, start: int, stop: int, prompt: bytes) -> int:
    """Ids in common from position ``start``; blocks grow, so an early difference ends it early."""
    at, block = start, _FIRST_BLOCK
    while at < stop:
        to = min(at + block, stop)
        lo, hi = (at - strand.start) * ID_BYTES, (to - strand.start) * ID_BYTES
        with memoryview(strand.data)[lo:hi] as own:
            if not prompt.startswith(own, at * ID_BYTES):
                theirs = np.frombuffer(prompt, ID, to - at, at * ID_BYTES)
                return at + int((np.frombuffer(own, ID) != theirs).argmax()) - start
        at, block = to, block * 4
    return max(stop - start, 0)
