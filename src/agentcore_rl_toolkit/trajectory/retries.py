"""Turns by the call that made them, so that a call that comes again finds its answer.

A call is named ``what/number``: what was asked, and how many times it was asked before. However
often a session asks the same, finding its answers costs the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from .path import Node


@dataclass
class _Asked:
    """Calls that asked the same: their numbers."""

    end: int = 0
    """Above all of them."""
    failed: set[int] = field(default_factory=set)
    unheard: set[int] = field(default_factory=set)
    """Answered, and not known to have arrived."""


class Retries:
    def __init__(self) -> None:
        self._turns: dict[tuple[str, int], Node] = {}
        self._asked: dict[str, _Asked] = {}

    def note(self, node: Node) -> None:
        """A turn is new, or it is now known whether it arrived."""
        turn = node.turn
        if turn.retry_key is None:
            return
        known = self._turns.get((turn.retry_key, turn.choice))
        if known is not None and known.turn.seq > turn.seq:
            return
        self._turns[(turn.retry_key, turn.choice)] = node
        what, _, number = turn.retry_key.rpartition("/")
        if turn.choice or not number.isdecimal():
            return
        at, asked = int(number), self._asked.setdefault(what, _Asked())
        asked.end = max(asked.end, at + 1)
        _put(asked.failed, at, turn.error is not None)
        _put(asked.unheard, at, turn.error is None and not node.delivered)

    def get(self, key: str, choice: int = 0) -> Node | None:
        return self._turns.get((key, choice))

    def free(self, what: str) -> Iterator[str]:
        """Names for a call that asks it: of such as failed, then new ones."""
        asked = self._asked.get(what, _Asked())
        for number in sorted(asked.failed):
            yield f"{what}/{number}"
        yield from (f"{what}/{number}" for number in count(asked.end))

    def answered(self, what: str, *, arrived: bool) -> str | None:
        """The latest call that was answered; with ``arrived`` also one whose answer did arrive."""
        asked = self._asked.get(what, _Asked())
        for number in range(asked.end - 1, -1, -1) if arrived else sorted(asked.unheard)[::-1]:
            node = self.get(key := f"{what}/{number}")
            if node is None or node.turn.error is not None:
                continue
            if arrived or not node.arrived:
                return key
            asked.unheard.discard(number)  # a turn that goes on from it proved it
        return None


def _put(numbers: set[int], number: int, belongs: bool) -> None:
    (numbers.add if belongs else numbers.discard)(number)
