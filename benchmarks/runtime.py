"""What a session costs: start, memory and CPU when idle, stop; what an invocation costs on the way
to it; and a thousand of them at once.

    python benchmarks/runtime.py [--agent FOLDER] [--entry rl_app.py] [--rounds 15] [--live 1000]
                                 [--json FILE]

Each way starts the same agent; rounds are interleaved, so that all ways see the same machine.
"start" is from the call to the first answered /ping. "private" is memory that would be free if
the session were gone, over all its processes; "idle CPU" is measured over --idle seconds; "gone"
is from the call to the end of the last process. bubblewrap is in the tables where it is installed
(Debian's package of that name).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import live
import report

from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation import Agent, SessionSpec, Template
from agentcore_rl_toolkit.runtime.isolation.inside import tree
from agentcore_rl_toolkit.runtime.isolation.usage import private_bytes

EXAMPLE = Path(__file__).parents[1] / "examples" / "strands_math_agent"
ENV = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:8585",
    "AWS_EC2_METADATA_DISABLED": "true",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclasses.dataclass
class Running:
    pid: int
    connect: Callable[[], Awaitable[socket.socket]]
    end: Callable[[], Awaitable[None]]
    address: tuple[str, int] = ("", 0)
    """Of a process that listens on the machine's loopback."""


@dataclasses.dataclass
class Way:
    name: str
    start: Callable[[], Awaitable[Running]]
    settle: Callable[[], Awaitable[None]] | None = None
    """Brings it back to its ready state between rounds."""
    starts: list[float] = dataclasses.field(default_factory=list)
    stops: list[float] = dataclasses.field(default_factory=list)
    private: list[float] = dataclasses.field(default_factory=list)
    cpu: float = 0.0


async def answered(connect: Callable[[], Awaitable[socket.socket]]) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection(sock=await connect())
            writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        except OSError:  # not there yet, or not ready to accept
            await asyncio.sleep(0.002)
            continue
        if answer.startswith(b"HTTP/1.1 200"):
            return


def to(address: tuple[str, int]) -> Callable[[], Awaitable[socket.socket]]:
    async def connect() -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
        except OSError:
            sock.close()
            raise
        return sock

    return connect


# --- the ways ---------------------------------------------------------------------------------


def spawned(template: Template, folder: Path) -> Callable[[], Awaitable[Running]]:
    numbers = iter(range(10**9))

    async def start() -> Running:
        name = f"{id(template)}-{next(numbers)}"
        compute = await template.spawn(SessionSpec(name, {}, folder / f"{name}.log"))
        return Running(compute.pid, compute.connect, compute.kill)

    return start


def command(prefix: list[str], agent: Agent) -> Callable[[], Awaitable[Running]]:
    module = agent.entry.removesuffix(".py")

    async def start() -> Running:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        code = f"import {module} as agent; agent.app.run(port={port})"
        process = await asyncio.create_subprocess_exec(
            *prefix,
            *(agent.python, "-c", code),
            cwd=agent.folder,
            env={**ENV, "PYTHONPATH": str(agent.folder)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

        async def end() -> None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

        address = ("127.0.0.1", port)
        return Running(process.pid, to(address), end, address)

    return start


def peers(agent: Agent) -> dict[str, Callable[[], Awaitable[Running]]]:
    found = {"plain subprocess": command([], agent)}
    if bubblewrap := shutil.which("bwrap"):
        wall = [bubblewrap, *("--ro-bind", "/", "/"), *("--dev", "/dev"), *("--proc", "/proc")]
        wall += [*("--tmpfs", "/tmp"), "--unshare-all", "--share-net", "--die-with-parent"]
        found["bubblewrap"] = command(wall, agent)
    else:
        print("bubblewrap: not installed (apt-get install bubblewrap)")
    return found


async def ways(agent: Agent, folder: Path) -> tuple[list[Way], list[Template]]:
    found = [Way(name, start) for name, start in peers(agent).items()]
    templates: list[Template] = []
    for level, driver in isolation.drivers().items():
        if not driver.probe().available:
            print(f"{level}: {driver.probe().reason}")
            continue
        for mode, changes in (
            ("fork", {"pool": 0}),
            ("pool", {"pool": 4}),
            ("fresh interpreter", {"pool": 0, "zygote": False}),
        ):
            template = await driver.prepare(dataclasses.replace(agent, **changes))
            templates.append(template)
            way = Way(f"{level}, {mode}", spawned(template, folder))
            if mode == "pool":
                way.settle = full(template)
                await (await way.start()).end()
            elif mode == "fork" and template.mode != "zygote":
                print(f"{level}: cannot fork ({template.note})")
            found.append(way)
    return found, templates


def full(template: Any) -> Callable[[], Awaitable[None]]:
    async def settle() -> None:
        while len(template._pool) < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    return settle


# --- measuring --------------------------------------------------------------------------------


async def measure(way: Way, idle_s: float) -> None:
    if way.settle is not None:
        await way.settle()
    began = time.perf_counter()
    running = await way.start()
    await answered(running.connect)
    way.starts.append(time.perf_counter() - began)
    family = [running.pid, *tree.descendants(running.pid)]
    way.private.append(sum(private_bytes(pid) for pid in family))
    if idle_s:
        before = live.cpu_s(family)
        await asyncio.sleep(idle_s)
        way.cpu = (live.cpu_s(family) - before) / idle_s
    began = time.perf_counter()
    await running.end()
    while any(os.path.exists(f"/proc/{pid}") for pid in family):
        await asyncio.sleep(0.0005)
    way.stops.append(time.perf_counter() - began)


def table(found: list[Way]) -> str:
    head = f"{'way':<30}{'start p50':>11}{'p90':>8}{'min':>8}"
    head += f"{'private':>10}{'idle CPU':>11}{'gone':>8}"
    lines = [head, f"{'':<30}{'ms':>11}{'ms':>8}{'ms':>8}{'MB':>10}{'ms/s':>11}{'ms':>8}"]
    for way in found:
        starts = sorted(way.starts)
        p90 = starts[min(int(len(starts) * 0.9), len(starts) - 1)]
        lines.append(
            f"{way.name:<30}{statistics.median(starts) * 1e3:>11.1f}{p90 * 1e3:>8.1f}"
            f"{starts[0] * 1e3:>8.1f}{statistics.median(way.private) / 1e6:>10.1f}"
            f"{way.cpu * 1e3:>11.2f}{statistics.median(way.stops) * 1e3:>8.1f}"
        )
    return "\n".join(lines)


def start_rows(ways: list[Way], found: report.Report) -> None:
    """The default level beside what starts processes without any of this."""
    by_name = {way.name: way for way in ways}
    peers = [way for name, way in by_name.items() if name in ("plain subprocess", "bubblewrap")]
    absent = {} if len(peers) == 2 else {"bubblewrap": "not installed"}

    def row(name: str, unit: str, here: Way, value: Callable[[Way], object], **more: Any) -> None:
        others = {peer.name: value(peer) for peer in peers} | absent
        found.row(name, unit, value(here), peers=others, headline=True, **more)

    def start_ms(way: Way) -> float:
        return 1e3 * statistics.median(way.starts)

    level = "namespace" if "namespace, fork" in by_name else "process"
    fork, pool = by_name[f"{level}, fork"], by_name[f"{level}, pool"]
    more = {"aim": 40, "times": {"plain subprocess": 25}}
    row("session start to first `/ping`, by fork", "ms", fork, start_ms, **more)
    row("session start to first `/ping`, from the pool", "ms", pool, start_ms, aim=5)
    private = "private memory of an idle session"
    row(private, "MB", fork, lambda way: statistics.median(way.private) / 1e6, aim=10)
    row("CPU of an idle session, in a second", "ms", fork, lambda way: way.cpu * 1e3)
    found.row("session stop to gone", "ms", 1e3 * statistics.median(fork.stops))


async def starts(agent: Agent, rounds: int, idle_s: float, found: report.Report) -> None:
    folder = Path(tempfile.mkdtemp(prefix="art-bench-"))
    templates: list[Template] = []
    try:
        measured, templates = await ways(agent, folder)
        for number in range(rounds):
            for way in measured:
                await measure(way, idle_s if number == rounds - 1 else 0)
        print(table(measured))
        start_rows(measured, found)
        load = os.getloadavg()[0]
        print(f"\n{rounds} interleaved rounds, {os.cpu_count()} CPUs, load {load:.1f}\n")
    finally:
        for template in templates:
            await template.close()
        shutil.rmtree(folder, ignore_errors=True)


async def invocations(agent: Agent, found: report.Report) -> None:
    running = await command([], dataclasses.replace(agent, folder=live.TIMED))()
    try:
        await answered(running.connect)
        overhead = await live.overhead(running.address[1])
        print(overhead.text() + "\n")
        found.row("invoke of a live session, over the agent itself", "ms", overhead.ms(), aim=3)
    finally:
        await running.end()


async def crowds(
    agent: Agent, count: int, peer_count: int, idle_s: float, out: report.Report
) -> None:
    print(live.HEAD)
    crowd = await live.crowd(agent.folder, agent.entry, count, idle_s)
    print(crowd.row(), flush=True)
    out.row(
        f"{count:,} live sessions, gone after the stop", "s", crowd.gone_s, aim=5, headline=True
    )
    out.row("idle CPU of 500 sessions, of a core", "%", crowd.idle_percent(), aim=10, headline=True)
    out.row("memory of the machine for a live session", "MB", crowd.memory_mb)
    for name, start in peers(agent).items() if peer_count else ():
        found = await live.peers(name, start, answered, peer_count, idle_s)
        print(found.row(), flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agent", type=Path, default=EXAMPLE)
    parser.add_argument("--entry", default="rl_app.py")
    parser.add_argument("--rounds", type=int, default=15, help="0 leaves the starts out")
    parser.add_argument("--idle", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--live", type=int, default=1000, metavar="SESSIONS", help="0 for none")
    parser.add_argument("--peers", type=int, default=16, help="processes of each peer beside them")
    report.option(parser)
    given = parser.parse_args()
    found = report.Report()
    agent = Agent(
        "bench-0000000000", "1", given.agent.resolve(), given.entry, sys.executable, env=ENV
    )
    if given.rounds:
        await starts(agent, given.rounds, given.idle, found)
    await invocations(agent, found)
    if given.live:
        await crowds(agent, given.live, given.peers, given.idle, found)
    found.write(given.json)


if __name__ == "__main__":
    asyncio.run(main())
