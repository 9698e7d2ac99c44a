"""What the object store costs: CPU per put and head beside moto's server, and growth with keys.

    python benchmarks/objects.py [--quick] [--json FILE]

Both servers run in processes of their own and get the same requests, 16 KB objects, from one
keep-alive connection, in interleaved rounds. CPU is the server's own, user and system, read
from /proc before and after a round; the table has the median round. moto's server closes every
connection, which is part of its cost. A put of ours creates a file, which ext4 makes many times
dearer for some seconds after many files were deleted: run it on a machine at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import nan
from pathlib import Path

import report
from aiohttp import web
from peer import environment

from agentcore_rl_toolkit.runtime.objects import ROUTE, RUNNER_OPTIONS, ObjectServer, ObjectStore

BODY = os.urandom(16 * 1024)
ANYBODY = (
    "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=00"
)
"""Neither server checks the signature; moto wants to see one."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


async def serve(folder: Path, port: int) -> None:
    store = ObjectStore(folder)
    app = web.Application()
    app.router.add_route("*", ROUTE, ObjectServer(store).handle)
    runner = web.AppRunner(app, **RUNNER_OPTIONS)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


class Server:
    def __init__(self, command: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [part.format(port=self.port) for part in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        deadline = time.monotonic() + 120
        while True:
            try:
                self.request("GET", "/")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                self.connection.close()
                time.sleep(0.05)

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        self.connection.request(method, path, body, {"Authorization": ANYBODY})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:200]!r}")
        return answer

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


def ours(folder: Path) -> Server:
    return Server([sys.executable, __file__, "--serve", str(folder), "--port", "{port}"])


def moto() -> Server | None:
    """In an environment of its own; None where that cannot be made."""
    python = environment("moto", "moto[s3,server]>=5.1")
    if python is None:
        return None
    return Server([str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", "{port}"])


def cost(server: Server, calls: int, call: Callable[[int], object]) -> tuple[float, float]:
    """(CPU seconds of the server, wall seconds) of one call."""
    cpu, wall = server.cpu_s(), time.perf_counter()
    for n in range(calls):
        call(n)
    return (server.cpu_s() - cpu) / calls, (time.perf_counter() - wall) / calls


def compare(folder: Path, rounds: int, calls: int, found: report.Report) -> None:
    servers = {"this": ours(folder)}
    if peer := moto():
        servers["moto"] = peer
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    try:
        for server in servers.values():
            server.request("PUT", "/bench")
        for turn in range(rounds + 1):
            for name, server in servers.items():
                for kind, call in (
                    ("put", lambda n, s=server, t=turn: s.request("PUT", f"/bench/{t}/{n}", BODY)),
                    ("head", lambda n, s=server, t=turn: s.request("HEAD", f"/bench/{t}/{n}")),
                    ("get", lambda n, s=server, t=turn: s.request("GET", f"/bench/{t}/{n}")),
                ):
                    measured = cost(server, calls, call)
                    if turn:  # the first round warms up
                        seen.setdefault((kind, name), []).append(measured)
        memory = {name: server.rss_mb() for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.close()
    print(f"16 KB objects, {rounds} interleaved rounds of {calls} calls, median round\n")
    for kind in ("put", "head", "get"):
        cost_ms = {n: [1e3 * c for c, _ in seen[kind, n]] for n in servers}
        theirs_ms = {"moto": cost_ms.get("moto", "could not be installed")}
        more = {"times": {"moto": 2}, "headline": kind != "get"}
        name = f"object store, CPU per {kind}"
        found.row(name, "ms", cost_ms["this"], peers=theirs_ms, **more)
    print("call   CPU this    CPU moto    ratio    wall this   wall moto")
    for kind in ("put", "head", "get"):
        mine, theirs = seen[kind, "this"], seen.get((kind, "moto"), [(nan, nan)])
        cpu = [statistics.median(c for c, _ in side) * 1000 for side in (mine, theirs)]
        wall = [statistics.median(w for _, w in side) * 1000 for side in (mine, theirs)]
        print(
            f"{kind:<5} {cpu[0]:7.3f} ms {cpu[1]:8.3f} ms {cpu[0] / cpu[1]:8.2f} "
            f"{wall[0]:9.3f} ms {wall[1]:8.3f} ms"
        )
    print(f"memory {memory['this']:6.0f} MB {memory.get('moto', nan):8.0f} MB\n")


def median_ms(repeat: int, call: Callable[[], object]) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def asked(server: Server) -> list[float]:
    listed = "/bench?list-type=2"
    return [
        median_ms(9, lambda: server.request("GET", listed)),
        median_ms(9, lambda: server.request("GET", f"{listed}&prefix=exp5/00000")),
        median_ms(9, lambda: server.request("GET", f"{listed}&delimiter=/")),
        median_ms(99, lambda: server.request("PUT", "/bench/exp5/new", b"{}")),
        median_ms(99, lambda: server.request("HEAD", "/bench/exp5/000000/session.json")),
    ]


def grow(folder: Path, sizes: list[int], found: report.Report) -> None:
    grown: dict[str, dict[float, float]] = {"page of 1000": {}, "put": {}, "head": {}}
    print("keys      start    page of 1000   10 of a prefix   10 prefixes    put       head")
    have = 0
    for size in sizes:
        store = ObjectStore(folder)
        store.ensure_bucket("bench")
        for n in range(have, size):
            store.put("bench", f"exp{n % 10}/{n // 10:06d}/session.json", b"{}")
        store.close()
        have = size
        start = time.perf_counter()
        ObjectStore(folder).close()
        started = time.perf_counter() - start
        server = ours(folder)
        try:
            times = asked(server)
        finally:
            server.close()
        for name, took in zip(grown, (times[0], *times[3:]), strict=True):
            grown[name][size] = took
        print(
            f"{size:<8} {started:5.2f} s {times[0]:12.2f} ms {times[1]:13.2f} ms "
            f"{times[2]:10.2f} ms {times[3]:8.2f} ms {times[4]:6.2f} ms"
        )
    found.curve("Object store's answers by keys", "keys", "ms", grown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    report.option(parser)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.port))
        return
    folder, found = Path(tempfile.mkdtemp(prefix="objects-")), report.Report()
    try:
        compare(folder / "compare", *((2, 200) if options.quick else (5, 400)), found)
        sizes = [100, 10_000] if options.quick else [100, 10_000, 100_000]
        grow(folder / "grow", sizes, found)
        found.write(options.json)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
