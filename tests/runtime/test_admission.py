"""Who is let in when memory is short: with numbers, and then through boto3."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime import admission as module
from agentcore_rl_toolkit.runtime import wire
from agentcore_rl_toolkit.runtime.admission import MB, Admission
from agentcore_rl_toolkit.runtime.isolation.base import Stats
from agentcore_rl_toolkit.runtime.memory import Memory
from agentcore_rl_toolkit.runtime.quota import Quota
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import Aws, until


class Machine:
    """Memory and a clock that the test sets."""

    def __init__(self, free_mb: int, **quota: object) -> None:
        self.free_mb = free_mb
        self.now = 0.0
        settings = {"reserve_mb": 100, "session_mb": 50, "wait_s": 30.0, "starts_at_once": 100}
        self.gate = Admission(
            Quota(**{**settings, **quota}),  # type: ignore[arg-type]
            read_memory=lambda: Memory(1000 * MB, self.free_mb * MB),
            clock=lambda: self.now,
        )
        self.order: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(
        self, name: str, agent: str = "agent", check: Callable[[], None] = lambda: None
    ) -> None:
        """Asks for a start, which then lasts until ``started``."""
        self._ends[name] = asyncio.Event()

        async def session() -> None:
            async with self.gate.start(name, agent, check):
                self.order.append(name)
                await self._ends[name].wait()

        self._tasks[name] = asyncio.create_task(session())
        await settle()

    async def started(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]

    async def outcome(self, name: str) -> wire.WireError | None:
        with contextlib.suppress(wire.WireError):
            await self._tasks[name]
        error = self._tasks[name].exception()
        assert error is None or isinstance(error, wire.WireError)
        return error

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.gate.look()
        await settle()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_sessions_are_admitted_while_memory_is_left_for_them() -> None:
    machine = Machine(free_mb=210)
    for name in "abc":
        await machine.come(name)
    assert machine.order == ["a", "b"], "two of 50 MB fit between 210 MB and the reserve of 100"
    assert len(machine.gate) == 1
    await machine.close()


async def test_a_start_that_has_settled_is_counted_by_the_machine_alone() -> None:
    machine = Machine(free_mb=160)
    await machine.come("a")
    await machine.come("b")
    await machine.started("a")
    assert machine.order == ["a"], "its memory may not be taken yet"
    machine.gate.ended("a")
    await settle()
    assert machine.order == ["a", "b"]
    await machine.close()


async def test_a_start_that_failed_gives_its_place_to_the_next() -> None:
    machine = Machine(free_mb=160)
    await machine.come("a")
    await machine.come("b")
    machine._tasks["a"].cancel()
    await settle()
    assert machine.order == ["a", "b"]
    await machine.close()


async def test_nobody_overtakes_not_even_the_small() -> None:
    machine = Machine(free_mb=160)
    for _ in range(10):
        machine.gate.saw("large", 400 * MB)
    await machine.come("large", agent="large")
    await machine.come("small")
    assert machine.order == []
    machine.free_mb = 1000
    await machine.pass_time(1)
    assert machine.order == ["large", "small"]
    await machine.close()


async def test_who_waited_the_whole_time_is_refused_and_told_what_to_do() -> None:
    machine = Machine(free_mb=120)
    await machine.come("a")
    await machine.pass_time(20)
    await machine.come("b")
    await machine.pass_time(10)
    refused = await machine.outcome("a")
    assert refused is not None
    assert (refused.status, refused.name) == (402, "ServiceQuotaExceededException")
    assert "31 MB are lacking" in refused.message
    assert "--reserve-mb" in refused.message
    assert len(machine.gate) == 1, "the later one has ten seconds more to wait"
    machine.free_mb = 200
    await machine.pass_time(1)
    assert machine.order == ["b"]
    await machine.close()


async def test_waiting_for_a_place_to_start_in_is_not_waiting_for_memory() -> None:
    machine = Machine(free_mb=1000, starts_at_once=1)
    await machine.come("a")
    await machine.come("b")
    await machine.pass_time(1000)
    assert (machine.order, len(machine.gate)) == (["a"], 1)
    await machine.started("a")
    await settle()
    assert machine.order == ["a", "b"]
    await machine.close()


async def test_who_is_not_wanted_any_more_leaves_the_queue() -> None:
    machine = Machine(free_mb=0)
    left = False

    def check() -> None:
        if left:
            raise wire.unavailable("the caller left")

    await machine.come("a", check=check)
    await machine.come("b")
    left = True
    machine.free_mb = 160
    await machine.pass_time(1)
    assert machine.order == ["b"]
    error = await machine.outcome("a")
    assert error is not None
    assert error.status == 503
    await machine.close()


async def test_a_waiter_that_is_cancelled_leaves_no_trace() -> None:
    machine = Machine(free_mb=0)
    await machine.come("a")
    machine._tasks["a"].cancel()
    await settle()
    assert len(machine.gate) == 0
    machine.free_mb = 160
    await machine.come("b")
    machine._tasks["b"].cancel()
    await machine.come("c")
    assert machine.order == ["b", "c"]
    await machine.close()


async def test_one_cancelled_in_the_moment_of_its_admission_gives_its_place_back() -> None:
    machine = Machine(free_mb=0, starts_at_once=1)
    await machine.come("a")
    machine.free_mb = 160
    machine.gate.look()
    machine._tasks["a"].cancel()
    await machine.come("b")
    assert machine.order == ["b"]
    await machine.close()


def test_the_expectation_follows_the_agents_sessions_but_not_one_that_runs_wild() -> None:
    gate = Admission(Quota(session_mb=16))
    assert gate.expected("a") == 16 * MB
    for used in (30, 31, 32, 33, 34, 35, 36, 37, 38, 900, *range(30, 60)):
        gate.saw("a", used * MB)
    assert 50 * MB < gate.expected("a") < 70 * MB
    for _ in range(module.SAMPLES):
        gate.saw("a", 2 * MB)
    assert gate.expected("a") == 16 * MB, "the floor"


async def test_live_sessions_are_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEARN_S", 0.001)
    monkeypatch.setattr(module, "LEARN_AT_ONCE", 2)
    asked: set[int] = set()

    class Compute:
        def __init__(self, number: int) -> None:
            self.number = number

        def stats(self) -> Stats:
            asked.add(self.number)
            return Stats(64 * MB, 2, 0.0)

    gate = Admission(Quota(session_mb=16))
    live = [("agent", Compute(number)) for number in range(5)]
    gate.learn(lambda: live)
    async with asyncio.timeout(10):
        while len(asked) < 5:
            await asyncio.sleep(0.001)
    gate.close()
    assert gate.expected("agent") == 64 * MB


def test_where_memory_cannot_be_read_only_the_number_counts() -> None:
    gate = Admission(Quota(max_sessions=2), read_memory=lambda: None)
    assert gate._lacks("agent") <= 0
    gate.check_count(1)
    with pytest.raises(wire.WireError, match="--max-sessions"):
        gate.check_count(2)


# --- through boto3 ----------------------------------------------------------------------------


@pytest.fixture
def full(tmp_path: Path) -> Iterator[RuntimeThread]:
    """A runtime whose machine has room for one session, as long as one lives."""
    quota = Quota(wait_s=1.0, session_mb=10, reserve_mb=0)
    with RuntimeThread(home=tmp_path / "home", quota=quota) as runtime:
        sessions = runtime.server.sessions

        def read() -> Memory:
            live = sum(s.life.live for s in sessions.table.values())
            return Memory(100 * MB, (15 - 10 * live) * MB)

        sessions.admission.read_memory = read
        yield runtime


def waiting(runtime: RuntimeThread) -> int:
    return int(runtime.call(lambda: len(runtime.server.sessions.admission)))


def test_a_session_without_room_is_refused_after_the_wait(
    full: RuntimeThread, connect: Callable[..., Aws], new_session: Callable[[], str]
) -> None:
    aws = connect(full.url)
    arn = aws.deploy()
    first, second = new_session(), new_session()
    aws.ask(arn, {}, first)
    with pytest.raises(aws.data.exceptions.ServiceQuotaExceededException, match="No memory"):
        aws.invoke(arn, {}, second)
    aws.ask(arn, {}, first)
    assert set(aws.sessions()) == {first}


def test_a_waiting_session_starts_when_another_ends(
    full: RuntimeThread, connect: Callable[..., Aws], new_session: Callable[[], str]
) -> None:
    full.server.sessions.admission.quota = Quota(wait_s=60, session_mb=10, reserve_mb=0)
    aws = connect(full.url)
    arn = aws.deploy()
    first, second = new_session(), new_session()
    aws.ask(arn, {}, first)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(aws.ask, arn, {"n": 2}, second)
        until(lambda: waiting(full) == 1, "the second waits")
        assert aws.sessions()[second]["state"] == "provisioning"
        aws.stop(arn, first)
        assert answer.result(30) is not None
    assert set(aws.sessions()) == {second}


def test_a_caller_that_hangs_up_leaves_the_queue(
    full: RuntimeThread, connect: Callable[..., Aws], new_session: Callable[[], str]
) -> None:
    full.server.sessions.admission.quota = Quota(wait_s=60, session_mb=10, reserve_mb=0)
    aws = connect(full.url)
    arn = aws.deploy()
    aws.ask(arn, {}, new_session())
    path = f"/runtimes/{arn.replace('/', '%2F')}/invocations"
    with socket.create_connection((full.server.host, full.server.port)) as caller:
        caller.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n"
            f"{wire.SESSION_HEADER}: {new_session()}\r\n\r\n{{}}".encode()
        )
        until(lambda: waiting(full) == 1, "it waits")
    until(lambda: waiting(full) == 0, "it has left")
    until(lambda: len(aws.sessions()) == 1, "its session is forgotten")


def test_a_runtime_with_waiting_callers_stops(
    full: RuntimeThread, connect: Callable[..., Aws], new_session: Callable[[], str]
) -> None:
    full.server.sessions.admission.quota = Quota(wait_s=600, session_mb=10, reserve_mb=0)
    aws = connect(full.url)
    arn = aws.deploy()
    aws.ask(arn, {}, new_session())
    errors: list[Exception] = []

    def wait() -> None:
        try:
            aws.invoke(arn, {}, new_session())
        except Exception as error:
            errors.append(error)

    caller = threading.Thread(target=wait)
    caller.start()
    until(lambda: waiting(full) == 1, "it waits")
    full.stop()
    caller.join(20)
    assert not caller.is_alive()
    assert len(errors) == 1
