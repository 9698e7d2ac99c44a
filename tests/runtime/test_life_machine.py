"""The life of a session under random events, beside a model that only remembers what happened."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentcore_rl_toolkit.runtime.life import UNHEALTHY_AFTER, Life, State, Timeouts

LEGAL = {
    State.PROVISIONING: {State.IDLE, State.STOPPING, State.STOPPED},
    State.IDLE: {State.ACTIVE, State.FROZEN, State.STOPPING},
    State.ACTIVE: {State.IDLE, State.STOPPING},
    State.FROZEN: {State.IDLE, State.ACTIVE, State.STOPPING},
    State.STOPPING: {State.STOPPED},
    State.STOPPED: set(),
}
seconds = st.floats(0.0, 400.0, allow_nan=False)


class SessionLife(RuleBasedStateMachine):
    @initialize(idle=st.integers(1, 900), more=st.integers(0, 2000))
    def begin_life(self, idle: int, more: int) -> None:
        self.now = 1000.0
        self.life = Life(Timeouts.of(idle, idle + more), self.now)
        self.before = State.PROVISIONING
        self.requests, self.busy, self.failed = 0, False, 0
        self.active_at = self.now

    def note(self) -> None:
        """A request and a busy agent are activity now."""
        if self.requests or self.busy:
            self.active_at = self.now

    @rule(passed=seconds)
    def wait(self, passed: float) -> None:
        self.note()
        self.now += passed
        self.note()

    @precondition(lambda self: self.life.phase is State.PROVISIONING)
    @rule()
    def ready(self) -> None:
        self.life.ready(self.now)
        self.active_at = self.now

    @precondition(lambda self: self.life.live)
    @rule()
    def request(self) -> None:
        self.life.begin()
        self.requests += 1
        self.note()

    @precondition(lambda self: self.requests > 0)
    @rule()
    def answer(self) -> None:
        self.note()
        self.life.end(self.now)
        self.requests -= 1

    @precondition(lambda self: self.life.live)
    @rule(busy=st.booleans())
    def pinged(self, busy: bool) -> None:
        self.life.pinged(self.now, busy)
        if busy or self.busy:
            self.active_at = self.now
        self.busy, self.failed = busy, 0

    @precondition(lambda self: self.life.live)
    @rule()
    def ping_failed(self) -> None:
        self.life.ping_failed(self.now)
        self.failed += 1

    @precondition(lambda self: self.life.state is State.IDLE)
    @rule()
    def freeze(self) -> None:
        self.life.freeze()

    @rule()
    def stop(self) -> None:
        stopping = self.life.phase in (State.STOPPING, State.STOPPED)
        assert self.life.stop() is not stopping

    @precondition(lambda self: self.life.phase is State.STOPPING)
    @rule()
    def stopped(self) -> None:
        self.life.stopped()

    @invariant()
    def only_legal_changes(self) -> None:
        state = self.life.state
        assert state is self.before or state in LEGAL[self.before]
        self.before = state

    @invariant()
    def work_is_activity(self) -> None:
        if self.life.live:
            assert (self.life.state is State.ACTIVE) == bool(self.requests or self.busy)
        assert self.life.in_flight == self.requests

    @invariant()
    def it_ends_when_it_must_and_never_before(self) -> None:
        self.note()
        end = self.life.overdue(self.now)
        times = self.life.timeouts
        if not self.life.live:
            assert end is None
            return
        working = bool(self.requests or self.busy)
        old = self.now - self.life.started >= times.lifetime_s
        sick = self.failed >= UNHEALTHY_AFTER and not self.requests
        idle = not working and self.now - self.active_at >= times.idle_s
        assert (end is not None) == (old or sick or idle)
        if end is not None:
            assert end.lost == (working if old else sick)

    @invariant()
    def only_a_quiet_live_session_is_pinged(self) -> None:
        if self.life.ping_due(self.now):
            assert self.life.live
            assert not self.requests
            assert not self.life.frozen


SessionLife.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, database=None, derandomize=True
)
test_a_life_keeps_its_promises = SessionLife.TestCase
