"""Live sessions in numbers, and what an invocation costs on the way to one. Part of ``runtime.py``.

An invocation is a status request: the agent's app answers it, and no model is asked. Processes are
counted through /proc: what the machine says, not what the runtime says about itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from served import Served, serve

from agentcore_rl_toolkit.runtime.isolation.inside import tree
from agentcore_rl_toolkit.runtime.wire import SESSION_HEADER

TIMED = Path(__file__).parent / "agents" / "timed"
AT_ONCE = 32
STATUS = b'{"_rollout": {"action": "status", "result_key": "bench"}}'
SETTLE_S = 15.0
"""From the last answer to rest: sessions are frozen some seconds after they fell silent."""


class Line:
    """One keep-alive connection, by hand: a library would cost more than what is measured."""

    def __init__(self, host: str, port: int) -> None:
        self._address, self._streams = (host, port), None

    async def post(self, path: str, body: bytes = STATUS, **headers: str) -> bytes:
        if self._streams is None:
            self._streams: Any = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r")[0])
        answer: bytes = await reader.readexactly(length)
        if " 200 " not in head.partition("\r")[0]:
            raise RuntimeError(f"{head.partition(chr(13))[0]}: {answer[:300]!r}")
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Caller:
    """Invokes and stops sessions of one runtime, some at a time, each on a line of its own."""

    def __init__(self, served: Served) -> None:
        self._place = f"/runtimes/{quote(served.arn, safe='')}"
        address = urlsplit(served.url)
        self._lines = [Line(str(address.hostname), address.port or 0) for _ in range(AT_ONCE)]

    async def invoke(self, line: Line, session_id: str) -> bytes:
        return await line.post(f"{self._place}/invocations", **{SESSION_HEADER: session_id})

    async def stop(self, line: Line, session_id: str) -> bytes:
        return await line.post(f"{self._place}/stopruntimesession", **{SESSION_HEADER: session_id})

    async def each(
        self, session_ids: list[str], call: Callable[[Line, str], Awaitable[bytes]]
    ) -> list[float]:
        """Seconds that each call took."""
        waiting, took = list(session_ids), []

        async def work(line: Line) -> None:
            while waiting:
                session_id, began = waiting.pop(), time.perf_counter()
                await call(line, session_id)
                took.append(time.perf_counter() - began)

        await asyncio.gather(*(work(line) for line in self._lines))
        return took

    def close(self) -> None:
        for line in self._lines:
            line.close()


# --- the way to the agent -----------------------------------------------------------------------


@dataclasses.dataclass
class Overhead:
    direct: list[float]
    through: list[float]

    def ms(self) -> float:
        return 1e3 * (statistics.median(self.through) - statistics.median(self.direct))

    def text(self) -> str:
        direct, through = (1e3 * statistics.median(one) for one in (self.direct, self.through))
        return (
            f"invoke of a live session, {len(self.direct)} interleaved calls: {through:.2f} ms p50 "
            f"through the runtime, {direct:.2f} ms to the agent itself, {through - direct:.2f} ms "
            "over it"
        )


async def overhead(agent_port: int, calls: int = 400) -> Overhead:
    """``agent_port``: the timed agent as a plain process."""
    found = Overhead([], [])
    with ExitStack() as stack:
        caller = Caller(await asyncio.to_thread(serve, stack, TIMED))
        stack.callback(caller.close)
        line, agent, session_id = caller._lines[0], Line("127.0.0.1", agent_port), _session()
        stack.callback(agent.close)
        for number in range(calls + 20):
            for took, call in (
                (found.direct, agent.post("/invocations", **{SESSION_HEADER: session_id})),
                (found.through, caller.invoke(line, session_id)),
            ):
                began = time.perf_counter()
                await call
                if number >= 20:
                    took.append(time.perf_counter() - began)
    return found


# --- numbers ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Crowd:
    name: str
    count: int
    started_s: float = 0.0
    answer_s: float = 0.0
    """p50 of the second invocation of each, 32 at a time."""
    memory_mb: float = 0.0
    """Of the machine, for each."""
    idle_share: float = 0.0
    """Of one processor, half of them together."""
    own_share: float = 0.0
    """The runtime's part in it."""
    gone_s: float = 0.0

    def idle_percent(self) -> float:
        """Of one processor, 500 of them together."""
        return 100 * self.idle_share * 500 / (self.count / 2)

    def row(self) -> str:
        of_500 = 500 / (self.count / 2)
        return (
            f"{self.name:<22}{self.count:>9}{self.started_s:>10.1f}{self.answer_s * 1e3:>10.1f}"
            f"{self.memory_mb:>10.1f}{100 * self.idle_share * of_500:>13.1f}"
            f"{100 * self.own_share * of_500:>10.1f}{self.gone_s:>8.1f}"
        )


HEAD = (
    f"{'live sessions':<22}{'number':>9}{'started':>10}{'answer':>10}{'memory':>10}"
    f"{'idle CPU':>13}{'runtime':>10}{'gone':>8}\n"
    f"{'':<22}{'':>9}{'s':>10}{'p50 ms':>10}{'MB each':>10}{'% for 500':>13}{'%':>10}{'s':>8}"
)


async def crowd(folder: Path, entry: str, count: int, idle_s: float) -> Crowd:
    """``count`` sessions of one runtime: start, answer, rest, stop."""
    found = Crowd("this, namespaces", count)
    session_ids = [_session() for _ in range(count)]
    with ExitStack() as stack:
        most = ("--max-sessions", str(count))
        served = await asyncio.to_thread(serve, stack, folder, entry, *most)
        caller = Caller(served)
        stack.callback(caller.close)
        free = available_mb()
        for part in (session_ids[: count // 2], session_ids[count // 2 :]):
            began = time.perf_counter()
            await caller.each(part, caller.invoke)
            found.started_s += time.perf_counter() - began
            if part[0] == session_ids[0]:
                await asyncio.sleep(SETTLE_S)
                found.idle_share, found.own_share = await shares(served.pid, idle_s)
        found.answer_s = statistics.median(await caller.each(session_ids, caller.invoke))
        found.memory_mb = (free - available_mb()) / count
        below = set(tree.descendants(served.pid))
        began = time.perf_counter()
        await caller.each(session_ids, caller.stop)
        found.gone_s = time.perf_counter() - began
        left = below & set(tree.descendants(served.pid))
        if len(left) > 40:  # keeper, zygote, and the pool of waiting sessions
            raise RuntimeError(f"{len(left)} processes outlived their sessions")
    return found


async def peers(
    name: str, start: Callable[[], Awaitable[Any]], answered: Any, count: int, idle_s: float
) -> Crowd:
    """The same of processes that something else starts, each with a port of its own."""
    found = Crowd(name, count)
    free = available_mb()
    began = time.perf_counter()
    running = []
    for _ in range(0, count, 2):  # two at a time, one for each processor of a small machine
        pair = await asyncio.gather(start(), start())
        await asyncio.gather(*(answered(one.connect) for one in pair))
        running += pair
    found.started_s = time.perf_counter() - began
    took = []
    for one in running:
        line = Line(*one.address)
        began = time.perf_counter()
        await line.post("/invocations", **{SESSION_HEADER: _session()})
        took.append(time.perf_counter() - began)
        line.close()
    found.answer_s, found.memory_mb = statistics.median(took), (free - available_mb()) / count
    pids = [pid for one in running for pid in (one.pid, *tree.descendants(one.pid))]
    before, began = cpu_s(pids), time.perf_counter()
    await asyncio.sleep(idle_s)
    found.idle_share = (cpu_s(pids) - before) / (time.perf_counter() - began) / 2
    began = time.perf_counter()
    await asyncio.gather(*(one.end() for one in running))
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        await asyncio.sleep(0.005)
    found.gone_s = time.perf_counter() - began
    return found


async def shares(runtime: int, seconds: float) -> tuple[float, float]:
    """Of one processor: the runtime with all below it, and the runtime alone."""
    all_of_it = [runtime, *tree.descendants(runtime)]
    before, own, began = cpu_s(all_of_it), cpu_s([runtime]), time.perf_counter()
    await asyncio.sleep(seconds)
    passed = time.perf_counter() - began
    return (cpu_s(all_of_it) - before) / passed, (cpu_s([runtime]) - own) / passed


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def available_mb() -> float:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / 1024


def _session() -> str:
    return str(uuid.uuid4())
