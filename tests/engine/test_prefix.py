from __future__ import annotations

import dataclasses

from agentcore_rl_toolkit.engine.prefix import BLOCK, PrefixIndex


@dataclasses.dataclass(eq=False)
class Owner:
    row: int
    known: list[int]

    def ids(self) -> list[int]:
        return self.known


def test_the_longest_common_beginning_is_found_in_whole_blocks() -> None:
    index = PrefixIndex()
    short, long = Owner(0, list(range(BLOCK))), Owner(1, list(range(3 * BLOCK + 2)))
    index.add(short, short.known)
    index.add(long, long.known)
    assert index.find([*range(3 * BLOCK + 1)]) == (long, 3 * BLOCK)
    assert index.find([*range(2 * BLOCK), 99, 99]) == (long, 2 * BLOCK)
    assert index.find([1, *range(BLOCK), 5]) is None


def test_one_id_is_always_left_to_compute() -> None:
    index = PrefixIndex()
    owner = Owner(0, list(range(2 * BLOCK)))
    index.add(owner, owner.known)
    assert index.find(owner.known) == (owner, BLOCK)
    assert index.find(owner.known[:BLOCK]) is None


def test_a_dropped_owner_is_not_found_and_its_successor_stays() -> None:
    index = PrefixIndex()
    first, second = Owner(0, list(range(BLOCK))), Owner(1, list(range(BLOCK)))
    index.add(first, first.known)
    index.add(second, second.known)
    index.drop(first)
    assert index.find([*range(BLOCK), 7]) == (second, BLOCK)
    index.drop(second)
    assert index.find([*range(BLOCK), 7]) is None
    assert len(index) == 0


def test_a_collision_is_noticed() -> None:
    index = PrefixIndex()
    liar = Owner(0, [9] * BLOCK)
    index.add(liar, list(range(BLOCK)))
    assert index.find([*range(BLOCK), 7]) is None
