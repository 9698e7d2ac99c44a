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
from typing import TypeAlias

import numpy as np

from .turn import ID, ID_BYTES, Ids

TAIL_IDS = 8
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


Segment: TypeAlias = tuple[Strand, int, int]
"""A strand and the positions between which it holds a turn's ids."""
_Ending: TypeAlias = tuple[int, bytes]
"""A number of ids and the last few of them: few sequences have both in common."""


class Prompt:
    """Packed ids of a prompt. One that is known to begin as a turn's does is put together only when
    it has to be: its beginning is most of it, and is neither copied nor compared."""

    __slots__ = ("_more", "_n_known", "_slot", "_store", "_whole", "n_ids")

    def __init__(
        self, more: bytes, store: TokenStore | None = None, slot: int = 0, n_known: int = 0
    ) -> None:
        self._more, self._store, self._slot, self._n_known = more, store, slot, n_known
        self._whole = more if store is None else None
        self.n_ids = n_known + len(more) // ID_BYTES

    def whole(self) -> bytes:
        if self._whole is None:
            self._whole = self.part(0, self.n_ids)
        return self._whole

    def part(self, start: int, stop: int) -> bytes:
        """Packed ids of two positions."""
        n_known = self._n_known
        more = self._more[max(start - n_known, 0) * ID_BYTES : max(stop - n_known, 0) * ID_BYTES]
        if self._store is None or start >= n_known:
            return more
        return self._store.part(self._slot, start, min(stop, n_known)) + more

    def goes_on(self, own: memoryview, at: int) -> bool:
        """Whether its ids from a position are these; startswith compares by memcmp, == does not."""
        if at >= self._n_known:
            return self._more.startswith(own, (at - self._n_known) * ID_BYTES)
        return self.whole().startswith(own, at * ID_BYTES)

    def begins_as(self, store: TokenStore, segments: list[Segment]) -> int:
        """How many leading ids are those of the segments, known without a look at them."""
        at = 0
        if self._store is store:
            known = store.segments(self._slot, self._n_known)
            for (mine, _, end), (theirs, _, other) in zip(known, segments, strict=False):
                if mine is not theirs:
                    break
                at = min(end, other)
                if end != other:
                    break
        return at


class TokenStore:
    """Turns are numbered by the order in which they are added."""

    def __init__(self) -> None:
        self.roots: list[Strand] = []
        self._places: list[tuple[Strand, int, int]] = []
        self._ends: list[int] = []
        """Distinct lengths of turns, ascending."""
        self._by_end: dict[_Ending, list[int]] = {}
        self._by_prompt: dict[_Ending, list[int]] = {}

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
        prompt, whole = self._ending(slot, n_prompt), self._ending(slot, end)
        self._by_prompt.setdefault(prompt, []).append(slot)
        if end:  # one without ids is continued by nothing
            if (at := bisect.bisect_left(self._ends, end)) == len(self._ends) or (
                self._ends[at] != end
            ):
                self._ends.insert(at, end)
            self._by_end.setdefault(whole, []).append(slot)
        return slot

    def ids(self, slot: int) -> Ids:
        """Prompt + sampled of a turn, copied."""
        end = self._places[slot][2]
        out = np.empty(end, np.int32)
        for part, start, stop in self.segments(slot, end):
            out[start:stop] = np.frombuffer(
                part.data, ID, stop - start, (start - part.start) * ID_BYTES
            )
        return out

    def part(self, slot: int, start: int, stop: int) -> bytes:
        """Packed ids of a turn between two positions."""
        views: list[memoryview] = []
        for strand, begin, end in self.segments(slot, stop):
            lo, hi = max(start, begin) - strand.start, end - strand.start
            if lo < hi:
                views.append(memoryview(strand.data)[lo * ID_BYTES : hi * ID_BYTES])
        return b"".join(views)

    def segments(self, slot: int, end: int) -> list[Segment]:
        """Strands that hold a turn's positions 0 to ``end``, first to last."""
        out: list[Segment] = []
        at: Strand | None = self._places[slot][0]
        while at is not None:
            if at.start < end:
                out.append((at, at.start, end))
                end = at.start
            at = at.parent
        return out[::-1]

    def longest_prefixes(self, prompt: Prompt) -> Iterator[int]:
        """The longest turns that ``prompt`` begins with, the latest first: several when their ids
        are the same."""
        at = bisect.bisect_right(self._ends, prompt.n_ids)
        for end in reversed(self._ends[:at]):
            likely = self._by_end.get((end, prompt.part(max(end - TAIL_IDS, 0), end)), ())
            found = (slot for slot in reversed(likely) if self.begins(slot, end, prompt))
            if (first := next(found, None)) is not None:
                yield first
                yield from found
                return

    def same_prompt(self, prompt: Prompt) -> int | None:
        """The latest turn whose whole prompt is ``prompt``."""
        n_ids = prompt.n_ids
        likely = self._by_prompt.get((n_ids, prompt.part(max(n_ids - TAIL_IDS, 0), n_ids)), ())
        return next((s for s in reversed(likely) if self.begins(s, n_ids, prompt)), None)

    def common(self, slot: int, prompt: Prompt) -> int:
        """How many leading ids ``prompt`` has in common with a turn."""
        total, ids = 0, prompt.whole()
        for part, start, stop in self.segments(slot, min(self._places[slot][2], prompt.n_ids)):
            same = _common(part, start, stop, ids)
            total = start + same
            if total < stop:
                break
        return total

    def best_common(self, prompt: Prompt) -> tuple[int, int] | None:
        """(turn, leading ids in common) of the turn that shares most; None when none shares any."""
        ids = prompt.whole()
        best: tuple[int, Strand] | None = None
        todo = list(self.roots)
        while todo:
            strand = todo.pop()
            stop = min(strand.end, prompt.n_ids)
            reach = strand.start + _common(strand, strand.start, stop, ids)
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

    def _ending(self, slot: int, end: int) -> _Ending:
        return end, self.part(slot, max(end - TAIL_IDS, 0), end)

    def begins(self, slot: int, length: int, prompt: Prompt) -> bool:
        """Whether ``prompt`` has so many first ids of a turn."""
        segments = self.segments(slot, length)
        known = prompt.begins_as(self, segments)
        for part, start, stop in segments:
            at = max(start, known)
            lo, hi = (at - part.start) * ID_BYTES, (stop - part.start) * ID_BYTES
            with memoryview(part.data)[lo:hi] as own:
                if at < stop and not prompt.goes_on(own, at):
                    return False
        return True


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
