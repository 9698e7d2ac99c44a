"""Whether a session that reports no work really does none. Pure: no clock, no I/O.

An agent need not report what it does after its answer, and AWS lets it go on. So before a session
is frozen, its processor time, its calls through the runtime's doors and what its threads wait for
are looked at, too; and what comes through a door wakes it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

QUIET_SHARE = 0.02
"""Of one processor, between two looks."""
QUIET_S = 0.03
"""On top: what an answered ping and the kernel's clock ticks amount to."""


@dataclass
class Traffic:
    """What passes through the doors of one session."""

    asked: set[object] = field(default_factory=set)
    """Connections on which the session spoke last: it waits for an answer."""
    last: float = 0.0
    """When anything passed."""
    wake: Callable[[], None] = lambda: None
    """Called before anything is given to the session."""

    def spoke(self, line: object, now: float) -> None:
        self.asked.add(line)
        self.last = now

    def hears(self, line: object, now: float) -> None:
        self.wake()
        self.asked.discard(line)
        self.last = now

    @contextlib.contextmanager
    def dialling(self) -> Iterator[None]:
        """While it waits for a connection to be made."""
        line = object()
        self.asked.add(line)
        try:
            yield
        finally:
            self.wake()
            self.asked.discard(line)


@dataclass
class Rest:
    after_s: float
    """0 for never."""
    since: float
    """The last time that it was seen at work, or was asked and could not say."""
    _cpu_s: float | None = None
    _looked: float = 0.0

    def due(self, now: float, idle_since: float) -> bool:
        return self.after_s > 0 and now - max(self.since, idle_since) >= self.after_s

    def look(self, now: float, cpu_s: float, traffic: Traffic | None) -> bool:
        """Whether nothing was seen to happen since the last look."""
        before, self._cpu_s = self._cpu_s, cpu_s
        passed, self._looked = now - self._looked, now
        spent = None if before is None else cpu_s - before
        idle = spent is not None and spent <= QUIET_SHARE * passed + QUIET_S
        if traffic is not None and (traffic.asked or now - traffic.last < self.after_s):
            idle = False
        if not idle:
            self.since = now
        return idle
