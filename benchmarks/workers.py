"""Requests per second of a gateway with one worker and with two.

    python benchmarks/workers.py [--quick] [--json FILE]

The same load as in ``gateway.py``, small requests with answers of 256 tokens, from 32 sessions
that are spread evenly. Both gateways are up and take turns of two seconds, so that they meet the
same machine. Load, engine and workers share its cores: with two cores, two workers cannot be twice
as fast, and what such cores are worth is measured, too: by processes that do nothing but count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import report
from subjects import cpu_s, free_port, process

from agentcore_rl_toolkit.gateway.crew.peers import owner_of
from gateway import ANSWER_TOKENS, Bench

SESSIONS = 32
TOKEN = "benchmark"
SERVE = """
import asyncio, sys
from pathlib import Path
from agentcore_rl_toolkit.gateway import GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.crew.workers import serve_workers
from agentcore_rl_toolkit.loop import new_loop
engine, port, folder, count, token = sys.argv[1:]
settings = GatewaySettings(port=int(port), run_dir=Path(folder), admin_token=token)
models = [ModelSpec.parse(f"policy=vllm:http://127.0.0.1:{engine}#fake-model")]
with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(serve_workers(models, settings, count=int(count)))
"""

SPIN = """
import sys, time
end, n = time.perf_counter() + float(sys.argv[1]), 0
while time.perf_counter() < end:
    n += 1
print(n)
"""


def sessions(port: int, count: int) -> list[str]:
    """Keys of sessions, as many for each worker."""
    by_owner: dict[int, list[str]] = {owner: [] for owner in range(count)}
    each = SESSIONS // count
    while any(len(keys) < each for keys in by_owner.values()):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/sessions",
            data=b"{}",
            headers={"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            key = json.load(reply)["key"]
        by_owner[owner_of(key, count)].append(key)
    return [key for keys in by_owner.values() for key in keys[:each]]


def load(bench: Bench, port: int, keys: list[str], seconds: float) -> float:
    """Requests per second, one in flight in each session."""
    command = [str(bench.folder / "loadgen"), str(port), "--conc", str(len(keys))]
    command += ["--requests", "1000000", "--bodies", bench.bodies["small"], "--episode", "8"]
    command += ["--path", "/v1/chat/completions", "--header", "Authorization: Bearer %s"]
    command += ["--sids", ",".join(keys), "--seconds", str(seconds)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = json.loads(told)
    if found["errors"]:
        raise RuntimeError(f"{found['errors']} requests failed: {told}")
    rate: float = found["rps"]
    return rate


@dataclass
class Crew:
    """A gateway with some workers, and what its rounds gave."""

    bench: Bench
    count: int
    port: int
    pid: int
    keys: list[str]
    rates: list[float] = field(default_factory=list)
    """Requests per second."""
    costs: list[float] = field(default_factory=list)
    """Milliseconds of CPU of a request."""

    def measure(self, seconds: float) -> None:
        before, began = cpu_s(self.pid), time.perf_counter()
        rate = load(self.bench, self.port, self.keys, seconds)
        spent, took = cpu_s(self.pid) - before, time.perf_counter() - began
        self.rates.append(rate)
        self.costs.append(1e3 * spent / (rate * took))


@contextmanager
def crew(bench: Bench, count: int) -> Iterator[Crew]:
    engine, port = free_port(), free_port()
    fake = [str(bench.folder / "fakevllm"), str(engine), "--tokens", str(ANSWER_TOKENS)]
    with (
        tempfile.TemporaryDirectory(dir=bench.folder) as run,
        process([*fake, "--latency-us", "0"], engine, bench.folder / f"engine-{count}.log"),
        process(
            [sys.executable, "-c", SERVE, str(engine), str(port), run, str(count), TOKEN],
            port,
            bench.folder / f"workers-{count}.log",
        ) as pid,
    ):
        found = Crew(bench, count, port, pid, sessions(port, count))
        load(bench, port, found.keys, 0.5)
        yield found


def spun(count: int, seconds: float) -> float:
    """How far so many processes come that do nothing but count."""
    command = [sys.executable, "-c", SPIN, str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return sum(float(one.communicate()[0]) for one in running)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one round instead of five")
    report.option(parser)
    options = parser.parse_args()
    rounds, scales = 1 if options.quick else 5, []
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        bench = Bench(Path(__file__).with_name("tools"), Path(folder), options.quick)
        bench.compile()
        bench.write_bodies()
        with crew(bench, 1) as one, crew(bench, 2) as two:
            for _ in range(rounds):
                one.measure(2.0)
                two.measure(2.0)
                scales.append(spun(2, 0.5) / spun(1, 0.5))
    for found in (one, two):
        rate, cost = statistics.median(found.rates), statistics.median(found.costs)
        print(f"{found.count} workers: {rate:7,.0f} requests/s, {cost:.2f} ms CPU each")
    ratio = statistics.median(two.rates) / statistics.median(one.rates)
    print(f"two workers are {ratio:.2f} times as fast")
    print(f"two processes that only count are {statistics.median(scales):.2f} times as fast as one")
    write(one, two, scales, options.json)


def write(one: Crew, two: Crew, scales: list[float], path: Path | None) -> None:
    found = report.Report()
    found.row(
        "gateway, requests/s with two workers, 32 in flight",
        "/s",
        two.rates,
        higher=True,
        peers={"one worker": one.rates},
        times={"one worker": 1.6},
        headline=True,
    )
    found.row("gateway, CPU a request with two workers", "ms", two.costs)
    found.row("two processes that only count, beside one", "times", scales, higher=True)
    rates = {1: one.rates, 2: two.rates}
    found.curve("Requests by workers", "workers", "requests/s", {"requests/s": rates})
    found.write(path)


if __name__ == "__main__":
    main()
