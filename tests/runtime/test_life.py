from __future__ import annotations

import pytest

from agentcore_rl_toolkit.runtime.life import UNHEALTHY_AFTER, Life, State, Timeouts

HOUR = 3600.0


def life(idle_s: float = 900, lifetime_s: float = 28_800) -> Life:
    one = Life(Timeouts(idle_s, lifetime_s), started=0.0)
    one.ready(0.0)
    return one


@pytest.mark.parametrize(
    ("idle", "most", "expected"),
    [
        pytest.param(None, None, (900, 28_800), id="neither given"),
        pytest.param(None, 600, (600, 600), id="a short lifetime bounds the idle default"),
        pytest.param(None, 7200, (900, 7200), id="a long lifetime keeps the idle default"),
        pytest.param(120, None, (120, 28_800), id="only idle given"),
        pytest.param(60, 60, (60, 60), id="both given"),
    ],
)
def test_timeouts_default_as_on_aws(idle: int, most: int, expected: tuple[int, int]) -> None:
    assert Timeouts.of(idle, most) == expected


@pytest.mark.parametrize(("idle", "most"), [(601, 600), (60, 28_801), (0, 60), (-1, None)])
def test_timeouts_out_of_range_are_refused(idle: int, most: int | None) -> None:
    with pytest.raises(ValueError, match=r"idleRuntimeSessionTimeout|maxLifetime"):
        Timeouts.of(idle, most)


def test_a_new_session_is_provisioning_and_neither_pinged_nor_reaped() -> None:
    one = Life(Timeouts(1, 1), started=0.0)
    assert one.state is State.PROVISIONING
    assert one.overdue(HOUR) is None
    assert not one.ping_due(HOUR)


def test_idle_time_runs_out() -> None:
    one = life(idle_s=60)
    assert one.overdue(59.9) is None
    end = one.overdue(60.0)
    assert end is not None
    assert not end.lost


def test_a_request_in_flight_is_activity_however_long_it_takes() -> None:
    one = life(idle_s=60)
    one.begin()
    assert one.state is State.ACTIVE
    assert one.overdue(HOUR) is None
    assert not one.ping_due(HOUR)


def test_idle_time_counts_from_the_end_of_the_last_request() -> None:
    one = life(idle_s=60)
    one.begin()
    one.begin()
    one.end(100.0)
    assert one.state is State.ACTIVE
    one.end(200.0)
    assert one.overdue(259.0) is None
    assert one.overdue(260.0)


def test_a_busy_agent_is_not_idle_and_its_idle_time_starts_when_it_says_healthy() -> None:
    one = life(idle_s=60)
    one.pinged(50.0, busy=True)
    assert one.state is State.ACTIVE
    assert one.overdue(500.0) is None
    one.pinged(510.0, busy=False)
    assert one.overdue(569.0) is None
    assert one.overdue(570.0)


def test_pings_that_say_healthy_do_not_keep_a_session() -> None:
    one = life(idle_s=60)
    for now in range(5, 60, 5):
        one.pinged(float(now), busy=False)
    assert one.overdue(60.0)


def test_the_agents_own_time_of_last_update_delays_the_end() -> None:
    one = life(idle_s=60)
    one.pinged(50.0, busy=False, unchanged_s=5.0)
    assert one.overdue(104.0) is None
    assert one.overdue(105.0)


def test_a_time_of_last_update_in_the_future_or_long_ago_changes_nothing_unduly() -> None:
    one = life(idle_s=60)
    one.pinged(10.0, busy=False, unchanged_s=-1000.0)
    assert one.idle_since == 10.0
    one.pinged(20.0, busy=False, unchanged_s=1000.0)
    assert one.idle_since == 10.0


def test_the_lifetime_ends_even_a_busy_session_which_is_then_lost() -> None:
    one = life(idle_s=60, lifetime_s=100)
    one.begin()
    end = one.overdue(100.0)
    assert end is not None
    assert end.lost


def test_a_quiet_session_at_the_end_of_its_lifetime_is_not_lost() -> None:
    end = life(idle_s=100, lifetime_s=100).overdue(100.0)
    assert end is not None
    assert not end.lost


def test_pings_that_fail_in_a_row_make_it_unhealthy() -> None:
    one = life()
    for now in range(UNHEALTHY_AFTER - 1):
        one.ping_failed(float(now))
    one.pinged(5.0, busy=False)
    assert one.failed_pings == 0
    for now in range(UNHEALTHY_AFTER):
        one.ping_failed(10.0 + now)
    end = one.overdue(20.0)
    assert end is not None
    assert end.lost


def test_a_request_in_flight_excuses_failed_pings() -> None:
    one = life()
    for now in range(UNHEALTHY_AFTER):
        one.ping_failed(float(now))
    one.begin()
    assert one.overdue(20.0) is None


def test_a_finished_request_is_followed_by_a_ping_soon() -> None:
    one = life()
    one.begin()
    one.end(100.0)
    assert not one.ping_due(100.5)
    assert one.ping_due(101.0)


def test_stopping_happens_once_and_ends_the_timers() -> None:
    one = life(idle_s=1)
    assert one.stop()
    assert not one.stop()
    assert one.state is State.STOPPING
    assert one.overdue(HOUR) is None
    one.stopped()
    assert one.state is State.STOPPED
    assert not one.stop()
