"""What the runtime's wire costs: invocations, stops, a thousand sessions, and growth.

    python benchmarks/wire.py [--sessions 1000] [--quick] [--json FILE]

The runtime runs in a process of its own with a bare ASGI agent at level process, so that what is
measured is the runtime and not an agent or its walls. "per core" is what one core would do if the
runtime alone used it: from its CPU time, user and system, read from /proc before and after. "gone"
is from the call of StopRuntimeSession to the end of the session's first process. Growth is measured
on the registry and the object store themselves; every number is per operation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import aiohttp
import report

from agentcore_rl_toolkit.runtime.objects import ObjectStore
from agentcore_rl_toolkit.runtime.registry import Registry

SID = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
AGENT = """
import uvicorn

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"20")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"Healthy"}'})

if __name__ == "__main__":
    uvicorn.run(app, port=8080, log_level="warning")
"""
FOUND = report.Report()
GROWTH: dict[str, dict[str, dict[float, float]]] = {
    "starts": {"this runtime": {}},
    "memory": {"this runtime": {}},
    "runtimes": {"add": {}, "find": {}},
    "objects": {"put": {}, "head": {}, "list": {}},
}
PAYLOAD = json.dumps({"prompt": "x" * 1000}).encode()


class Runtime:
    def __init__(self, folder: Path, sessions: int) -> None:
        command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--until-eof"]
        command += ["--port", "0", "--home", str(folder / "home"), "--isolation", "process"]
        command += ["--max-sessions", str(sessions + 100), "--session-mb", "4"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def cpu_s(self) -> float:
        """All threads, far finer than the clock ticks of the process."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 1e6

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)


class Caller:
    """Plain HTTP: boto3 would be most of what is measured."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http, self.url, self.arn = http, url, ""

    async def deploy(self, folder: Path) -> None:
        uri = f"{folder.as_uri()}#rl_app.py"
        body = {
            "agentRuntimeName": "bench",
            "agentRuntimeArtifact": {"containerConfiguration": {"containerUri": uri}},
            "roleArn": "arn:aws:iam::000000000000:role/local",
        }
        async with self.http.put(f"{self.url}/runtimes/", json=body) as answer:
            self.arn = quote((await answer.json())["agentRuntimeArn"], safe="")

    async def call(self, operation: str, session_id: str, body: bytes) -> None:
        url = f"{self.url}/runtimes/{self.arn}/{operation}"
        async with self.http.post(url, data=body, headers={SID: session_id}) as answer:
            text = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{operation} answered {answer.status}: {text[:300]!r}")

    async def invoke(self, session_id: str) -> None:
        await self.call("invocations", session_id, PAYLOAD)

    async def stop(self, session_id: str) -> None:
        await self.call("stopruntimesession", session_id, b"{}")


async def at_once(width: int, work: list[Callable[[], object]]) -> None:
    todo = iter(work)

    async def worker() -> None:
        for one in todo:
            await one()  # type: ignore[misc]

    await asyncio.gather(*(worker() for _ in range(width)))


def row(what: str, value: str, note: str = "") -> None:
    print(f"{what:<52}{value:>14}  {note}", flush=True)


async def invokes(runtime: Runtime, caller: Caller, names: list[str], count: int) -> None:
    for width in (1, len(names)):
        work = [lambda n=n: caller.invoke(names[n % len(names)]) for n in range(count)]
        cpu, began = runtime.cpu_s(), time.perf_counter()
        await at_once(width, work)
        took, used = time.perf_counter() - began, runtime.cpu_s() - cpu
        row(
            f"invokes/s, {width} in flight on {min(width, len(names))} sessions",
            f"{count / took:,.0f}",
            f"{used / count * 1e3:.2f} ms CPU each: {count / used:,.0f} per core",
        )
        FOUND.row(f"CPU of an invoke, {width} in flight", "ms", used / count * 1e3)


async def stops(caller: Caller, names: list[str], pids: dict[str, int]) -> None:
    taken = []
    for name in names:
        began = time.perf_counter()
        stopping = asyncio.create_task(caller.stop(name))
        while os.path.exists(f"/proc/{pids[name]}"):
            await asyncio.sleep(0.0005)
        taken.append(time.perf_counter() - began)
        await stopping
    taken.sort()
    p90 = taken[int(len(taken) * 0.9)]
    row("stop to gone, p50", f"{statistics.median(taken) * 1e3:.1f} ms", f"p90 {p90 * 1e3:.1f} ms")
    FOUND.row("stop to gone", "ms", statistics.median(taken) * 1e3)


async def many(runtime: Runtime, caller: Caller, count: int, idle_s: float) -> None:
    before, cpu, began = runtime.resident_mb(), runtime.cpu_s(), time.perf_counter()
    names = [str(uuid.uuid4()) for _ in range(count)]
    await at_once(8, [lambda n=n: caller.invoke(n) for n in names])
    took, used, after = time.perf_counter() - began, runtime.cpu_s() - cpu, runtime.resident_mb()
    row(
        f"memory of the runtime with {count} sessions",
        f"{after:.0f} MB",
        f"{before:.0f} MB before: {(after - before) / count * 1e3:.0f} KB a session",
    )
    row("starting them", f"{took:.1f} s", f"{used / count * 1e3:.1f} ms CPU of the runtime each")
    GROWTH["starts"]["this runtime"][count] = used / count * 1e3
    GROWTH["memory"]["this runtime"][count] = after
    cpu = runtime.cpu_s()
    await asyncio.sleep(idle_s)
    row("idle CPU with them", f"{(runtime.cpu_s() - cpu) / idle_s * 100:.1f} %")
    began = time.perf_counter()
    await at_once(32, [lambda n=n: caller.stop(n) for n in names])
    row("stopping them", f"{time.perf_counter() - began:.1f} s", f"{runtime.resident_mb():.0f} MB")


def live(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/_art/sessions") as answer:
        return {s["session_id"]: s["pid"] for s in json.load(answer)["sessions"]}


# --- growth -----------------------------------------------------------------------------------


def timed(work: Callable[[int], object], times: int) -> float:
    """Microseconds of CPU of one."""
    began = time.process_time()
    for number in range(times):
        work(number)
    return (time.process_time() - began) / times * 1e6


def registry_growth(folder: Path, count: int) -> None:
    path = folder / f"registry-{count}"
    registry = Registry(path)
    config = {"roleArn": "r" * 40, "agentRuntimeArtifact": {"containerConfiguration": {}}}

    def add(number: int) -> None:
        runtime = registry.add_runtime(f"agent{number}", f"token-{number}", {})
        version = registry.add_version(runtime, "1", config, "rl_app.py", "")
        version.status = "READY"
        registry.save(runtime)

    sync, os.fsync = os.fsync, lambda _: None  # the disk's time, not ours
    try:
        timed(add, count)
        more = timed(lambda n: add(count + n), 100)
    finally:
        os.fsync = sync
    found = timed(lambda n: registry.by_name(f"agent{n % count}"), 1000)
    began = time.process_time()
    Registry(path)
    start = time.process_time() - began
    row(
        f"registered runtimes: {count:,}",
        f"{more:.0f} us add",
        f"{found:.1f} us find, {start * 1e3:.0f} ms start",
    )
    GROWTH["runtimes"]["add"][count], GROWTH["runtimes"]["find"][count] = more, found


def object_growth(folder: Path, count: int) -> None:
    store = ObjectStore(folder / f"objects-{count}")
    store.create_bucket("bench")
    names = [f"exp/{number:07d}/{uuid.uuid4()}.json" for number in range(count)]
    for name in names:
        store.put("bench", name, b"{}")
    put = timed(lambda n: store.put("bench", f"exp/{n % count:07d}/x{n}", b"{}"), 100)
    head = timed(lambda n: store.head("bench", names[n * 7919 % count]), 2000)
    page = timed(lambda n: store.list("bench", f"exp/{n * 7919 % count:07d}/"), 500)
    store.close()
    began = time.process_time()
    ObjectStore(folder / f"objects-{count}").close()
    start = time.process_time() - began
    row(
        f"objects: {count:,}",
        f"{put:.0f} us put",
        f"{head:.1f} us head, {page:.1f} us list a prefix, {start * 1e3:.0f} ms start",
    )
    for name, cost in (("put", put), ("head", head), ("list", page)):
        GROWTH["objects"][name][count] = cost


def write(path: Path | None) -> None:
    starts, memory = GROWTH["starts"]["this runtime"], GROWTH["memory"]["this runtime"]
    last = max(starts)
    FOUND.row("CPU of the runtime for a session's start", "ms", starts[last])
    FOUND.row(f"memory of the runtime with {last:,.0f} sessions", "MB", memory[last])
    name = "Starting many sessions: CPU of the runtime for each"
    FOUND.curve(name, "sessions", "ms", GROWTH["starts"])
    FOUND.curve("Memory of the runtime by live sessions", "sessions", "MB", GROWTH["memory"])
    FOUND.curve("Registry by runtimes", "registered runtimes", "µs of CPU", GROWTH["runtimes"])
    FOUND.curve("Object store by objects", "objects", "µs of CPU", GROWTH["objects"])
    FOUND.write(path)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    report.option(parser)
    given = parser.parse_args()
    scale = 10 if given.quick else 1
    folder = Path(tempfile.mkdtemp(prefix="art-bench-"))
    agent = folder / "agent"
    agent.mkdir()
    (agent / "rl_app.py").write_text(AGENT)
    runtime = Runtime(folder, given.sessions)
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            caller = Caller(http, runtime.url)
            await caller.deploy(agent)
            names = [str(uuid.uuid4()) for _ in range(16)]
            await at_once(4, [lambda n=n: caller.invoke(n) for n in names])
            await invokes(runtime, caller, names, 5000 // scale)
            await stops(caller, names, await asyncio.to_thread(live, runtime.url))
            for count in (n for n in (1, 10, 100) if n < given.sessions // scale):
                await many(runtime, caller, count, idle_s=1)
            await many(runtime, caller, given.sessions // scale, idle_s=5)
        for grow in (registry_growth, object_growth):
            for count in (10, 1000, 100_000 // scale):
                grow(folder, count)
        write(given.json)
        print(f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    finally:
        runtime.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
