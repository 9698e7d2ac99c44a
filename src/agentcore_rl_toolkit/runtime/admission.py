"""Who may start a session now: one queue, first come first served, before every start.

A start needs a free place among those that start at a time, and memory: what is free, less the
reserve, less what sessions admitted a moment ago have yet to take, must hold one more session of
this agent. What a session takes is learnt from the agent's own live sessions.

Invariants: nobody overtakes; who has waited ``wait_s`` while memory was short is refused with 402;
who no longer wants to start (the caller left, the session was ended) leaves the queue. The queue
is looked at when someone comes, starts or ends, and four times a second while anyone waits, for
memory is also given back by others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from .. import local
from . import memory, wire
from .isolation.base import Stats
from .quota import Quota

logger = logging.getLogger(__name__)

LOOK_S = 0.25
SETTLE_S = 5.0
"""After its start a session's memory stands in the machine's account, no longer in ours."""
LEARN_S = 1.0
LEARN_AT_ONCE = 2
SAMPLES = 64
MB = 1024**2


class Measured(Protocol):
    def stats(self) -> Stats: ...


Live = Callable[[], Sequence[tuple[str, Measured]]]
"""Runtime id and compute of every live session."""


@dataclass(eq=False)
class _Waiter:
    session: object
    agent: str
    check: Callable[[], None]
    turn: asyncio.Future[None]
    short_s: float = 0.0
    """How long it has waited while memory was short; a place to start in comes by itself."""


@dataclass(eq=False)
class Admission:
    quota: Quota = field(default_factory=Quota)
    read_memory: Callable[[], memory.Memory | None] = memory.read
    clock: Callable[[], float] = time.monotonic
    _waiting: deque[_Waiter] = field(default_factory=deque, init=False)
    _starting: int = field(default=0, init=False)
    _claims: dict[object, str] = field(default_factory=dict, init=False)
    """Admitted and not settled: session to runtime id."""
    _samples: dict[str, deque[int]] = field(default_factory=dict, init=False)
    _short: bool = field(default=False, init=False)
    _looked: float = field(default=0.0, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _learner: asyncio.Task[None] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    def check_count(self, live: int) -> None:
        """WireError when there may not be one more session."""
        if live >= self.quota.max_sessions:
            raise wire.quota_exceeded(
                f"maxVms limit exceeded for account {local.ACCOUNT}: {live} sessions are live, at "
                f"most {self.quota.max_sessions} may be. Stop some, or raise --max-sessions of "
                "'art runtime serve'"
            )

    @asynccontextmanager
    async def start(
        self, session: object, agent: str, check: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Waits for its turn; the block is the start. ``check`` raises when it is not wanted."""
        await self._turn(_Waiter(session, agent, check, asyncio.get_running_loop().create_future()))
        try:
            yield
        except BaseException:
            self._claims.pop(session, None)
            raise
        else:
            asyncio.get_running_loop().call_later(SETTLE_S, self.ended, session)
        finally:
            self._starting -= 1
            self.look()

    def ended(self, session: object) -> None:
        """Also called for a session whose memory has become visible: it has no claim any more."""
        self._claims.pop(session, None)
        self.look()

    async def _turn(self, waiter: _Waiter) -> None:
        self._waiting.append(waiter)
        self.look()
        try:
            await waiter.turn
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif self._claims.pop(waiter.session, None) is not None:
                self._starting -= 1  # cancelled in the moment in which it was admitted
            self.look()
            raise

    # --- the queue ----------------------------------------------------------------------------

    def look(self) -> None:
        """Admits whom it can, refuses whom it must, and comes back while anyone waits."""
        if not self._waiting:
            self._short = False
            return
        self._count_shortage()
        self._let_leave()
        while self._waiting and self._starting < self.quota.starts_at_once:
            waiter = self._waiting[0]
            if self._lacks(waiter.agent) > 0:
                self._short = True
                break
            self._waiting.popleft()
            if not waiter.turn.done():  # done: it was cancelled, and is about to leave
                self._starting += 1
                self._claims[waiter.session] = waiter.agent
                waiter.turn.set_result(None)
        if self._short:
            self._refuse_overdue()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.look)

    def _count_shortage(self) -> None:
        now = self.clock()
        if self._short:
            for waiter in self._waiting:
                waiter.short_s += now - self._looked
        self._looked, self._short = now, False

    def _let_leave(self) -> None:
        for waiter in list(self._waiting):
            try:
                waiter.check()
            except wire.WireError as error:
                self._dismiss(waiter, error)

    def _refuse_overdue(self) -> None:
        for waiter in [one for one in self._waiting if one.short_s >= self.quota.wait_s]:
            lacking = self._lacks(waiter.agent) // MB + 1
            logger.warning("runtime=<%s> lacking_mb=<%d> | no memory", waiter.agent, lacking)
            self._dismiss(
                waiter,
                wire.quota_exceeded(
                    f"No memory for one more session: {lacking} MB are lacking, and none became "
                    f"free in {self.quota.wait_s:g} s (a session of this agent is expected to take "
                    f"{self.expected(waiter.agent) // MB} MB). Run fewer sessions at a time, stop "
                    "idle ones, or give 'art runtime serve' a smaller --reserve-mb or a longer "
                    "--memory-wait"
                ),
            )

    def _dismiss(self, waiter: _Waiter, error: wire.WireError) -> None:
        self._waiting.remove(waiter)
        if not waiter.turn.done():
            waiter.turn.set_exception(error)

    # --- memory -------------------------------------------------------------------------------

    def _lacks(self, agent: str) -> int:
        """Bytes that one more session of the agent has too little of; not positive: it fits."""
        found = self.read_memory()
        if found is None:
            return 0
        claims = Counter(self._claims.values())
        promised = sum(self.expected(one) * count for one, count in claims.items())
        return self.quota.reserve(found.total) + promised + self.expected(agent) - found.free

    def expected(self, agent: str) -> int:
        """Nine in ten of the agent's sessions were seen to take no more."""
        samples = sorted(self._samples.get(agent, ()))
        seen = samples[len(samples) * 9 // 10] if samples else 0
        return max(seen, self.quota.session_mb * MB)

    def saw(self, agent: str, used: int) -> None:
        if used > 0:
            self._samples.setdefault(agent, deque(maxlen=SAMPLES)).append(used)

    def learn(self, live: Live) -> None:
        """Begins to measure: a few sessions a second, in turn, which costs the same for a thousand
        as for ten."""
        self._learner = asyncio.create_task(self._learn(live), name="measure sessions")

    async def _learn(self, live: Live) -> None:
        for turn in itertools.count():
            await asyncio.sleep(LEARN_S)
            known = live()
            picked = [known[(turn * LEARN_AT_ONCE + i) % len(known)] for i in range(len(known))]
            for agent, compute in picked[:LEARN_AT_ONCE]:
                stats = await asyncio.to_thread(compute.stats)
                self.saw(agent, stats.memory_bytes)
            for agent in self._samples.keys() - {agent for agent, _ in known}:
                if len(self._samples) > SAMPLES:
                    del self._samples[agent]

    def close(self) -> None:
        """Those who wait are asked once more whether they are wanted."""
        if self._learner is not None:
            self._learner.cancel()
        self.look()
