"""The life of one session as a pure state machine: no clock, no I/O, fed with numbers.

    PROVISIONING ──ready──► IDLE ◄──► ACTIVE        a request in flight or HealthyBusy is activity
          │                   │          │          FROZEN is idle, and stands still
          └────── stop ───────┴──────────┴──► STOPPING ──► STOPPED

Invariants: a state never goes back to PROVISIONING (a revived session is a new ``Life``); idle time
counts only while nothing is in flight and the agent is not busy; the lifetime counts from the start
and nothing resets it. All times are seconds of one monotonic clock that the owner reads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_IDLE_S = 900
DEFAULT_LIFETIME_S = 28_800
UNHEALTHY_AFTER = 3
"""Failed pings in a row. AWS does not document its threshold."""


class State(enum.StrEnum):
    PROVISIONING = "provisioning"
    ACTIVE = "active"
    IDLE = "idle"
    FROZEN = "frozen"
    STOPPING = "stopping"
    STOPPED = "stopped"


class End(NamedTuple):
    """Why a session has to end without anyone asking for it."""

    reason: str
    lost: bool
    """It was working, or could not say: whoever waits for its result waits in vain."""


class Timeouts(NamedTuple):
    idle_s: float
    lifetime_s: float

    @classmethod
    def of(cls, idle_s: float | None, lifetime_s: float | None) -> Timeouts:
        """AWS's defaulting. ValueError says which value is wrong.

        AWS refuses less than 60 s; here shorter ones serve tests and small machines.
        """
        lifetime = DEFAULT_LIFETIME_S if lifetime_s is None else lifetime_s
        idle = min(DEFAULT_IDLE_S, lifetime) if idle_s is None else idle_s
        for name, value in (("idleRuntimeSessionTimeout", idle), ("maxLifetime", lifetime)):
            if not 1 <= value <= DEFAULT_LIFETIME_S:
                raise ValueError(f"{name} must be 1 to {DEFAULT_LIFETIME_S} seconds, got {value}")
        if idle > lifetime:
            raise ValueError(
                f"idleRuntimeSessionTimeout ({idle}) must not exceed maxLifetime ({lifetime})"
            )
        return cls(idle, lifetime)


@dataclass
class Life:
    timeouts: Timeouts
    started: float
    in_flight: int = 0
    busy: bool = False
    idle_since: float = 0.0
    last_ping: float = 0.0
    failed_pings: int = 0
    frozen: bool = False
    """It was idle and healthy then, so there is nothing to ask it; its times run on."""
    ends_at: float = 0.0
    """While it is frozen: when one of its times is up."""
    phase: State = State.PROVISIONING
    """PROVISIONING, IDLE (meaning live), STOPPING or STOPPED; ``state`` tells active from idle."""

    @property
    def state(self) -> State:
        if self.phase is State.IDLE and (self.in_flight or self.busy):
            return State.ACTIVE
        return State.FROZEN if self.phase is State.IDLE and self.frozen else self.phase

    @property
    def live(self) -> bool:
        return self.phase is State.IDLE

    def ready(self, now: float) -> None:
        if self.phase is State.PROVISIONING:
            self.phase = State.IDLE
            self.idle_since = self.last_ping = now

    def freeze(self) -> None:
        self.frozen = True
        idle_end = self.idle_since + self.timeouts.idle_s
        self.ends_at = min(idle_end, self.started + self.timeouts.lifetime_s)

    def thaw(self) -> None:
        self.frozen = False

    def begin(self) -> None:
        self.in_flight += 1
        self.thaw()

    def end(self, now: float) -> None:
        self.in_flight -= 1
        self.idle_since = now
        # The answer may have left background work behind: ask soon, not an interval later.
        self.last_ping = now - self.ping_interval_s + min(1.0, self.ping_interval_s)

    def pinged(self, now: float, busy: bool, unchanged_s: float | None = None) -> None:
        """``unchanged_s``: how long ago, by the agent's own account, its status last changed."""
        self.last_ping, self.failed_pings = now, 0
        if busy or self.busy:
            self.idle_since = now
        elif unchanged_s is not None:
            self.idle_since = max(self.idle_since, now - max(unchanged_s, 0.0))
        self.busy = busy
        if busy:
            self.thaw()

    def ping_failed(self, now: float) -> None:
        self.last_ping = now
        self.failed_pings += 1

    @property
    def ping_interval_s(self) -> float:
        return min(max(self.timeouts.idle_s / 10, 0.25), 30.0)

    def ping_due(self, now: float) -> bool:
        """A request in flight is activity enough; only a quiet session has to be asked."""
        quiet = self.live and not self.in_flight and not self.frozen
        return quiet and now - self.last_ping >= self.ping_interval_s

    def overdue(self, now: float) -> End | None:
        if not self.live:
            return None
        working = self.state is State.ACTIVE
        if now - self.started >= self.timeouts.lifetime_s:
            return End(f"maxLifetime of {self.timeouts.lifetime_s:g} s reached", lost=working)
        if self.failed_pings >= UNHEALTHY_AFTER and not self.in_flight:
            return End(f"unhealthy: /ping failed {self.failed_pings} times in a row", lost=True)
        if not working and now - self.idle_since >= self.timeouts.idle_s:
            return End(f"idle for {self.timeouts.idle_s:g} s", lost=False)
        return None

    def stop(self) -> bool:
        """False when it is already stopping or gone."""
        if self.phase in (State.STOPPING, State.STOPPED):
            return False
        self.phase = State.STOPPING
        return True

    def stopped(self) -> None:
        self.phase = State.STOPPED
