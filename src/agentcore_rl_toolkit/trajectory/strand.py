"""The token store of one model in one session: every prefix once, found without reading it twice.

A strand is a run of ids that grows at its end; a fork starts a new strand at a position of another
one. A turn is a position in a strand: its ids are those before it. Memory is the number of distinct
ids, and a continuation is found by its last few ids first (one vectorised look at all turns) and
then by comparing bytes, so the cost follows the prompt and not the number of turns.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .turn import ID, ID_BYTES, Ids

TAIL_IDS = 8
_FIRST_BLOCK = 64
_MIX = np.array([(0x9E3779B97F4A7C15 * (2 * i + 1)) & (2**64 - 1) for i in range(TAIL_IDS)], "u8")


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
        self._ends = np.zeros(8, np.int64)
        self._tails = np.zeros(8, np.uint64)
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
        self._note_tail(slot, end)
        return slot

    def ids(self, slot: int) -> Ids:
        """Prompt + sampled of a turn, copied."""
        strand, _, end = self._places[slot]
        out = np.empty(end, np.int32)
        for part, start, stop in _segments(strand, end):
            lo, hi = (start - part.start) * ID_BYTES, (stop - part.start) * ID_BYTES
            out[start:stop] = np.frombuffer(bytes(part.data[lo:hi]), ID)
        return out

    def longest_prefixes(self, prompt: bytes) -> list[int]:
        """The longest turns that ``prompt`` begins with: several when their ids are the same."""
        n_turns, n_ids = len(self._places), len(prompt) // ID_BYTES
        ends = self._ends[:n_turns]
        fits = np.flatnonzero((ends <= n_ids) & (ends > 0))
        if not fits.size:
            return []
        tails = _tail_keys(np.frombuffer(prompt, ID), ends[fits])
        likely = fits[tails == self._tails[fits]]
        found: list[int] = []
        for slot in likely[np.argsort(-ends[likely], kind="stable")].tolist():
            if found and self._places[found[0]][2] != self._places[slot][2]:
                break
            if self._begins(slot, self._places[slot][2], prompt):
                found.append(slot)
        return found

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

    def _note_tail(self, slot: int, end: int) -> None:
        if slot == self._ends.size:
            self._ends = np.resize(self._ends, slot * 2)
            self._tails = np.resize(self._tails, slot * 2)
        self._ends[slot] = end
        if end:
            first = max(end - TAIL_IDS, 0)
            tail = self._slice(slot, first, end)
            self._tails[slot] = _tail_keys(tail, np.array([end - first]))[0]

    def _slice(self, slot: int, first: int, last: int) -> Ids:
        out = np.empty(last - first, np.int32)
        for part, start, stop in _segments(self._places[slot][0], last):
            if stop > first:
                lo = max(start, first)
                own = part.data[(lo - part.start) * ID_BYTES : (stop - part.start) * ID_BYTES]
                out[lo - first : stop - first] = np.frombuffer(bytes(own), ID)
        return out

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
    theirs = np.frombuffer(prompt, ID)
    mine = np.frombuffer(strand.data, ID) if strand.data else theirs[:0]
    at, block = start, _FIRST_BLOCK
    while at < stop:
        to = min(at + block, stop)
        differs = mine[at - strand.start : to - strand.start] != theirs[at:to]
        first = int(differs.argmax())
        if differs[first]:
            return at + first - start
        at, block = to, block * 4
    return max(stop - start, 0)


def _tail_keys(ids: Ids, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A key of the last ids before each end; positions before the first id count as the first."""
    at = np.maximum(ends[:, None] - TAIL_IDS + np.arange(TAIL_IDS), 0)
    keys: npt.NDArray[np.uint64] = (ids[at].astype(np.uint64) * _MIX).sum(axis=1, dtype=np.uint64)
    return keys
