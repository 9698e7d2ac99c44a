"""How fast the runtime is asked: one rate limit for everything sent to it.

``Pace`` is the state machine, without threads or clocks: requests join a queue, ``grant(now)``
says who may go. It is a token bucket of nearly no burst, because a runtime's own limit is counted
by the second. Two rules are its reason to exist:

- Stops yield to invokes, so that cleaning up does not cost half of the submission rate; but a
  stop that has waited ``STOP_PATIENCE_S`` gets every second grant, so the n-th waiting stop goes
  at the latest after the patience and 2n grants.
- Throttling halves the rate, at most once in ``CUT_EVERY_S`` (one burst of refusals is one
  signal); after ``HOLD_S`` of peace it climbs back by a tenth of the limit every second.

``Limiter`` makes it thread-safe: callers leave a callback and no thread waits. The limit holds
for one client: processes that share an account share its quota, and the halving is what makes
them settle.
"""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Callable
from typing import Literal

from .. import local
from ..errors import ConfigError
from .thread import Handle, Job, Timer

Kind = Literal["invoke", "stop"]

AWS_TPS, LOCAL_TPS = 25.0, 200.0

BURST_S = 0.05
"""Tokens kept for late timers, in seconds of the rate; at least one token."""
STOP_PATIENCE_S = 1.0
CUT_EVERY_S = 0.5
HOLD_S = 2.0
CLIMB_PER_S = 0.1
"""Share of the limit that comes back every second."""
FLOOR = 1 / 32
"""Share of the limit below which the rate is never cut."""


def check_rate(limit: object) -> float:
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or math.isnan(limit) or limit <= 0:  # type: ignore[operator, arg-type]
        raise ConfigError(
            f"tps_limit must be a number above 0 (requests a second, fractions allowed), "
            f"got {limit!r}"
        )
    return float(limit)  # type: ignore[arg-type]


class Ticket:
    """A place in the queue."""

    __slots__ = ("go", "joined", "kind")

    def __init__(self, kind: Kind, go: Job, joined: float) -> None:
        self.kind, self.go, self.joined = kind, go, joined


def rate_of(arn: str, tps_limit: float | None) -> float:
    """Calls a second, as they were set or as the runtime allows."""
    return tps_limit or (LOCAL_TPS if local.parse_arn(arn).is_local else AWS_TPS)


class Pace:
    def __init__(self, limit: float, now: float) -> None:
        self.limit = check_rate(limit)
        self.rate = self.limit
        self._burst = max(1.0, self.limit * BURST_S)
        self._tokens = self._burst
        self._at = now
        self._cut_at = -math.inf
        self._last: Kind = "stop"
        self._waiting: dict[Kind, collections.deque[Ticket]] = {
            "invoke": collections.deque(),
            "stop": collections.deque(),
        }

    def join(self, ticket: Ticket) -> None:
        self._waiting[ticket.kind].append(ticket)

    def leave(self, ticket: Ticket) -> None:
        try:
            self._waiting[ticket.kind].remove(ticket)
        except ValueError:
            pass  # has been granted

    def grant(self, now: float) -> Ticket | None:
        """Who goes now, or None when nobody waits or nobody may."""
        self._refill(now)
        kind = self._next_kind(now)
        if kind is None or self._tokens < 1.0 - 1e-9:
            return None
        self._tokens -= 1.0
        self._last = kind
        return self._waiting[kind].popleft()

    def next_grant(self, now: float) -> float | None:
        """When to ask again; None while nobody waits."""
        self._refill(now)
        if not any(self._waiting.values()):
            return None
        return now + max(0.0, 1.0 - self._tokens) / self.rate

    def throttled(self, now: float) -> None:
        self._refill(now)
        if now - self._cut_at < CUT_EVERY_S:
            return
        self._cut_at = now
        self.rate = max(self.limit * FLOOR, self.rate / 2)
        self._tokens = min(self._tokens, 0.0)

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        if self.rate < self.limit:
            calm = min(passed, max(0.0, now - self._cut_at - HOLD_S))
            self.rate = min(self.limit, self.rate + calm * CLIMB_PER_S * self.limit)
        self._tokens = min(self._burst, self._tokens + passed * self.rate)
        self._at = max(now, self._at)

    def _next_kind(self, now: float) -> Kind | None:
        invokes, stops = self._waiting["invoke"], self._waiting["stop"]
        if not invokes or not stops:
            return "invoke" if invokes else "stop" if stops else None
        overdue = now - stops[0].joined >= STOP_PATIENCE_S
        return "stop" if overdue and self._last == "invoke" else "invoke"


class Limiter:
    """Calls back when a request may be sent, at once when it may be sent now."""

    def __init__(
        self, limit: float, timer: Timer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._timer = clock, timer
        self._pace = Pace(limit, clock())
        self._lock = threading.Lock()
        self._alarm: Handle | None = None

    @property
    def rate(self) -> float:
        return self._pace.rate

    def request(self, kind: Kind, go: Job) -> Ticket:
        ticket = Ticket(kind, go, self._clock())
        with self._lock:
            self._pace.join(ticket)
        self._drain()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        with self._lock:
            self._pace.leave(ticket)

    def throttled(self) -> None:
        with self._lock:
            self._pace.throttled(self._clock())

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
        self._drain()

    def _drain(self) -> None:
        granted: list[Ticket] = []
        with self._lock:
            now = self._clock()
            while (ticket := self._pace.grant(now)) is not None:
                granted.append(ticket)
            at = self._pace.next_grant(now)
            if at is not None and self._alarm is None:
                self._alarm = self._timer.later(max(0.0, at - now), self._ring)
        for ticket in granted:
            ticket.go()
