"""The schedule: the same for a seed, every kind before any comes twice, quiet at the end."""

from __future__ import annotations

from faults.event import KINDS, QUIET_S, schedule


def test_a_seed_decides_everything() -> None:
    assert schedule(7, 600) == schedule(7, 600)
    assert schedule(7, 600) != schedule(8, 600)


def test_a_short_run_meets_every_kind() -> None:
    kinds = [event.kind for event in schedule(3, 600)]
    assert set(kinds) == set(KINDS)
    assert len(set(kinds[: len(KINDS)])) == len(KINDS)


def test_the_end_is_quiet() -> None:
    for seed in range(20):
        events = schedule(seed, 120)
        assert all(event.at < 120 - QUIET_S for event in events)
        assert [event.at for event in events] == sorted(event.at for event in events)


def test_a_run_too_short_for_anything_has_no_events() -> None:
    assert schedule(1, 5) == []
