"""The rate limit, with numbers only."""

from __future__ import annotations

import threading
import time

import pytest

from agentcore_rl_toolkit.client.pace import (
    FLOOR,
    HOLD_S,
    STOP_PATIENCE_S,
    Kind,
    Limiter,
    Pace,
    Ticket,
)
from agentcore_rl_toolkit.client.thread import Timer
from agentcore_rl_toolkit.errors import ConfigError


def join(pace: Pace, kind: Kind, now: float) -> Ticket:
    ticket = Ticket(kind, lambda: None, now)
    pace.join(ticket)
    return ticket


def granted(pace: Pace, until: float, step: float = 0.001, start: float = 0.0) -> list[str]:
    """Kinds in the order of their grants while the clock runs."""
    kinds: list[str] = []
    for tick in range(round((until - start) / step) + 1):
        while (ticket := pace.grant(start + tick * step)) is not None:
            kinds.append(ticket.kind)
    return kinds


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "25", True, None])
def test_a_rate_that_is_not_above_zero_is_refused(limit: object) -> None:
    with pytest.raises(ConfigError, match="tps_limit"):
        Pace(limit, 0.0)  # type: ignore[arg-type]


def test_a_second_never_grants_more_than_the_limit_and_one_burst() -> None:
    pace = Pace(25, 0.0)
    for _ in range(100):
        join(pace, "invoke", 0.0)
    assert len(granted(pace, 1.0)) == 26


def test_an_idle_second_is_not_saved_up() -> None:
    pace = Pace(10, 0.0)
    for _ in range(50):
        join(pace, "invoke", 100.0)
    assert len(granted(pace, 100.0, start=100.0)) == 1


def test_a_fractional_rate_grants_one_in_its_time() -> None:
    pace = Pace(0.5, 0.0)
    for _ in range(3):
        join(pace, "invoke", 0.0)
    assert pace.grant(0.0) is not None
    assert pace.next_grant(0.0) == pytest.approx(2.0)
    assert pace.grant(1.9) is None
    assert pace.grant(2.0) is not None


def test_nobody_waiting_means_no_alarm() -> None:
    assert Pace(1, 0.0).next_grant(5.0) is None


def test_stops_yield_to_invokes() -> None:
    pace = Pace(10, 0.0)
    for _ in range(3):
        join(pace, "stop", 0.0)
        join(pace, "invoke", 0.0)
    assert granted(pace, 0.6) == ["invoke"] * 3 + ["stop"] * 3


def test_a_stop_is_not_starved_by_endless_invokes() -> None:
    pace = Pace(10, 0.0)
    for _ in range(100):
        join(pace, "invoke", 0.0)
    for _ in range(5):
        join(pace, "stop", 0.0)
    kinds = granted(pace, STOP_PATIENCE_S + 1.1)
    assert kinds.count("stop") == 5
    assert "stop" not in kinds[: int(STOP_PATIENCE_S * 10)]


def test_who_leaves_the_queue_is_not_granted() -> None:
    pace = Pace(1, 0.0)
    pace.leave(join(pace, "invoke", 0.0))
    kept = join(pace, "invoke", 0.0)
    assert pace.grant(0.0) is kept


def test_throttling_halves_the_rate_once_for_one_burst_of_refusals() -> None:
    pace = Pace(100, 0.0)
    for _ in range(20):
        pace.throttled(1.0)
    assert pace.rate == 50
    pace.throttled(2.0)
    assert pace.rate == 25


def test_the_rate_climbs_back_to_the_limit_and_not_above() -> None:
    pace = Pace(100, 0.0)
    pace.throttled(0.0)
    pace.next_grant(HOLD_S)
    assert pace.rate == 50
    pace.next_grant(HOLD_S + 2)
    assert pace.rate == pytest.approx(70)
    pace.next_grant(HOLD_S + 60)
    assert pace.rate == 100


def test_the_rate_is_never_cut_to_nothing() -> None:
    pace = Pace(32, 0.0)
    for second in range(100):
        pace.throttled(float(second))
    assert pace.rate >= 32 * FLOOR


def test_ten_threads_at_once_do_not_pass_the_limit() -> None:
    timer = Timer()
    limiter = Limiter(20, timer)
    passed: list[float] = []
    done = threading.Event()

    def go() -> None:
        passed.append(time.monotonic())
        if len(passed) == 10:
            done.set()

    threads = [threading.Thread(target=lambda: limiter.request("invoke", go)) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert done.wait(5)
    timer.close()
    for thread in threads:
        thread.join()
    assert max(passed) - min(passed) >= 8 / 20
