"""Requests per second of a gateway with one worker and with two.

    python benchmarks/workers.py [--quick] [--json FILE]

The same load as in ``gateway.py``, small requests with answers of 256 tokens, from 32 sessions
that are spread evenly. Load, engine and workers share the machine's cores: with two cores, two
workers cannot be twice as fast.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
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
    """Requests per second."""
    command = [str(bench.folder / "loadgen"), str(port), "--conc", "1", "--requests", "1000000"]
    command += ["--bodies", bench.bodies["small"], "--seconds", str(seconds), "--episode", "8"]
    header, path = f"Authorization: Bearer {TOKEN}", "/v1/chat/completions"
    running = [
        subprocess.Popen(
            [*command, "--path", path, "--header", header.replace(TOKEN, key)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for key in keys
    ]
    found = [json.loads(one.communicate()[0]) for one in running]
    if errors := sum(one["errors"] for one in found):
        raise RuntimeError(f"{errors} requests failed")
    return sum(one["done"] for one in found) / seconds


def measure(bench: Bench, count: int, seconds: float) -> tuple[float, float]:
    """Requests per second, and milliseconds of CPU of one."""
    engine, port = free_port(), free_port()
    fake = [str(bench.folder / "fakevllm"), str(engine), "--tokens", str(ANSWER_TOKENS)]
    with (
        tempfile.TemporaryDirectory(dir=bench.folder) as run,
        process([*fake, "--latency-us", "0"], engine, bench.folder / "engine.log"),
        process(
            [sys.executable, "-c", SERVE, str(engine), str(port), run, str(count), TOKEN],
            port,
            bench.folder / "workers.log",
        ) as pid,
    ):
        keys = sessions(port, count)
        load(bench, port, keys, 0.5)
        before, began = cpu_s(pid), time.perf_counter()
        rate = load(bench, port, keys, seconds)
        spent = cpu_s(pid) - before
        return rate, 1e3 * spent / (rate * (time.perf_counter() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two seconds each instead of ten")
    report.option(parser)
    options = parser.parse_args()
    rates, costs = {}, {}
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        bench = Bench(Path(__file__).with_name("tools"), Path(folder), options.quick)
        bench.compile()
        bench.write_bodies()
        for count in (1, 2):
            rates[count], costs[count] = measure(bench, count, 2.0 if options.quick else 10.0)
            print(
                f"{count} workers: {rates[count]:7,.0f} requests/s, {costs[count]:.2f} ms CPU each"
            )
    print(f"two workers are {rates[2] / rates[1]:.2f} times as fast")
    found = report.Report()
    found.row(
        "gateway, requests/s with two workers, 32 in flight",
        "/s",
        rates[2],
        higher=True,
        peers={"one worker": rates[1]},
        times={"one worker": 1.6},
        headline=True,
    )
    found.row("gateway, CPU a request with two workers", "ms", costs[2])
    found.curve("Requests by workers", "workers", "requests/s", {"requests/s": rates})
    found.write(options.json)


if __name__ == "__main__":
    main()
