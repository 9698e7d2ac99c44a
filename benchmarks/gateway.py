"""What capture costs: this gateway beside a direct connection, nginx and its peers, in one run.

    python benchmarks/gateway.py [--rounds 3] [--only direct,gateway] [--quick] [--json FILE]

``benchmarks/tools`` holds ``loadgen.c`` and ``fakevllm.c``: a closed-loop load generator and a
stand-in for vLLM, both compiled into a temporary folder. Rounds are interleaved, so that a noisy
machine is noisy for everybody; the table shows medians. Everything stays on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import report
from subjects import (
    ACR,
    MAKERS,
    NAMES,
    OURS,
    RLLM,
    Subject,
    cpu_s,
    free_port,
    process,
    rss_mb,
    subjects,
)

ANSWER_TOKENS = 256


@dataclass
class Bench:
    tools: Path
    folder: Path
    quick: bool
    bodies: dict[str, str] = field(default_factory=dict)

    def compile(self) -> None:
        for name in ("loadgen", "fakevllm"):
            source = self.tools / f"{name}.c"
            if not source.exists():
                raise SystemExit(f"{source} is missing: give the folder of the C tools as --tools")
            out = self.folder / name
            subprocess.run(["gcc", "-O2", "-w", "-o", out, source, "-lpthread"], check=True)

    def write_bodies(self) -> None:
        base = [
            {"role": "system", "content": "You are a careful agent."},
            {"role": "user", "content": "word " * 120},
        ]
        self.bodies["small"] = self._body("small", {"model": "policy", "messages": base})
        self.bodies["stream"] = self._body(
            "stream", {"model": "policy", "messages": base, "stream": True}
        )
        # the stand-in counts a token for every four bytes of a request: 8k to 32k in 13 turns
        messages: list[dict[str, str]] = [{"role": "system", "content": "s" * 31_500}]
        turns = []
        for turn in range(13):
            messages.append({"role": "user", "content": f"{turn} " + "u" * 7_600})
            turns.append(self._body(f"turn{turn}", {"model": "policy", "messages": messages}))
            messages.append({"role": "assistant", "content": "a" * 280})
        self.bodies["turns"] = ",".join(turns)
        large = [{"role": "user", "content": "l" * 64_000} for _ in range(8)]
        self.bodies["large"] = self._body("large", {"model": "policy", "messages": large})
        self.bodies["long"] = ",".join(self._long())

    def _long(self) -> Iterator[str]:
        """50 turns, up to 32k tokens."""
        messages: list[dict[str, str]] = [{"role": "system", "content": "s" * 1_000}]
        for turn in range(50):
            messages.append({"role": "user", "content": f"{turn} " + "u" * 2_250})
            yield self._body(f"long{turn}", {"model": "policy", "messages": messages})
            messages.append({"role": "assistant", "content": "a" * 280})

    def _body(self, name: str, body: dict[str, Any]) -> str:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(body, separators=(",", ":")))
        return str(path)

    def load(self, port: int, subject: Subject, sid: str, **options: Any) -> dict[str, Any]:
        command = [str(self.folder / "loadgen"), str(port), "--path", subject.path, "--sid", sid]
        if subject.header is not None:
            command += ["--header", subject.header]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        out = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(json.loads(out.stdout))


MEASURES = {
    "cpu_us": "CPU a request, µs",
    "rps": "requests/s, 256 in flight",
    "p50_1_ms": "p50 at concurrency 1, ms",
    "stream_cpu_us": "CPU a streamed request, µs",
    "stream_rps": "streamed requests/s, 256 in flight",
    "turn_cpu_us": "CPU a turn, 13 turns 8k to 32k, µs",
    "slow_p50_s": "p50 with a 2 s engine, 1,000 in flight, s",
    "slow_errors": "errors there",
    "rss_mb": "memory growth a 10,000 captures, MB",
    "lag_ms": "loop lag p99, 128k-token prompts 8 at a time, ms",
    "long_mb": "memory of a session of 50 turns and 32k tokens, MB",
}


AIMS: dict[str, dict[str, Any]] = {
    "cpu_us": {"aim": 1, "times": {RLLM: 5, ACR: 3}, "headline": True},
    "rps": {"higher": True, "times": {RLLM: 8, ACR: 4}, "headline": True},
    "stream_cpu_us": {"aim": 4, "times": {RLLM: 5}, "headline": True},
    "stream_rps": {"higher": True},
    "turn_cpu_us": {"aim": 3, "headline": True},
    "slow_errors": {"aim": 0},
    "rss_mb": {"aim": 50, "headline": True},
    "lag_ms": {"aim": 50},
    "long_mb": {"aim": 2},
}
ADDED = {
    "p50_1_ms": ("p50 added at concurrency 1, ms", 1.0, 1.5),
    "slow_p50_s": ("p50 added with a 2 s engine, 1,000 in flight, ms", 1e3, 50.0),
}
"""Of what is measured against the direct connection: title, factor to its unit, aim."""
ONLY_OURS = ("lag_ms", "long_mb")


class Round:
    """All measures of one subject, once."""

    def __init__(self, bench: Bench, subject: Subject, number: int) -> None:
        self.bench, self.subject, self.number = bench, subject, number
        self.found: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        with self._pair(latency_us=0) as (port, pid):
            self._small(port, pid)
            self._streamed(port, pid)
            self._turns(port, pid)
        if self.subject.name == "this gateway":
            with self._pair(latency_us=0) as (port, pid):
                self._long(port, pid)
                self._large(port, pid)
        with self._pair(latency_us=2_000_000) as (port, pid):
            self._slow(port)
        return self.found

    @contextlib.contextmanager
    def _pair(self, latency_us: int) -> Iterator[tuple[int, int]]:
        """An engine and the subject in front of it."""
        bench, engine = self.bench, free_port()
        fake = [str(bench.folder / "fakevllm"), str(engine), "--tokens", str(ANSWER_TOKENS)]
        fake += ["--latency-us", str(latency_us)]
        with process(fake, engine, bench.folder / "engine.log") as engine_pid:
            if self.subject.command is None:
                yield engine, engine_pid
                return
            port = free_port()
            run = Path(tempfile.mkdtemp(dir=bench.folder))
            log = bench.folder / f"{self.subject.name.split()[0]}.log"
            with process(self.subject.command(engine, port, run), port, log) as pid:
                self._register(port, engine)
                yield port, pid
            shutil.rmtree(run, ignore_errors=True)

    def _register(self, port: int, engine: int) -> None:
        if self.subject.name.startswith("rllm"):
            body = json.dumps({"url": f"http://127.0.0.1:{engine}/v1"}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/admin/workers",
                data=body,
                headers={"content-type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=10).close()

    def _measured(self, port: int, pid: int, n: int, sid: str, **options: Any) -> dict[str, Any]:
        before = cpu_s(pid)
        result = self.bench.load(
            port, self.subject, f"{sid}{self.number}", requests=n, seconds=40, **options
        )
        spent = cpu_s(pid) - before
        done = max(result["done"], 1)
        failed = result["errors"] + result["badstream"]
        if failed > done * 0.01:
            raise RuntimeError(f"{failed} of {done} requests failed")
        return {**result, "cpu_us": spent / done * 1e6}

    def _small(self, port: int, pid: int) -> None:
        small, scale = self.bench.bodies["small"], 4 if self.bench.quick else 1
        slow = self.subject.name not in ("direct", "nginx", "this gateway")
        # every connection once, so that what a connection costs is not taken for growth
        self._measured(port, pid, 256, "w", conc=256, bodies=small, episode=8)
        # growth levels off once the answers kept for retries are as many as may be: a few requests
        # alone would be taken for five times as much, so only the slow ones are cut short
        memory, count = rss_mb(pid), 8_000 // (8 * scale) if slow else 8_000
        result = self._measured(port, pid, count, "a", conc=256, bodies=small, episode=8)
        self.found["rps"], self.found["cpu_us"] = result["rps"], result["cpu_us"]
        self.found["rss_mb"] = (rss_mb(pid) - memory) * 10_000 / count
        alone = self._measured(port, pid, 400 // scale, "b", conc=1, bodies=small, episode=8)
        if alone["n"]:
            self.found["p50_1_ms"] = alone["p50"] / 1000

    def _streamed(self, port: int, pid: int) -> None:
        slow = 8 if self.subject.name not in ("direct", "nginx", "this gateway") else 1
        count = 1_600 // (4 if self.bench.quick else 1) // slow
        body = self.bench.bodies["stream"]
        result = self._measured(
            port, pid, count, "c", conc=min(256, count), bodies=body, stream=1, episode=8
        )
        self.found["stream_rps"], self.found["stream_cpu_us"] = result["rps"], result["cpu_us"]

    def _turns(self, port: int, pid: int) -> None:
        count = 13 * (4 if self.bench.quick else 20)
        result = self._measured(port, pid, count, "d", conc=4, bodies=self.bench.bodies["turns"])
        self.found["turn_cpu_us"] = result["cpu_us"]

    def _long(self, port: int, pid: int) -> None:
        bodies, count = self.bench.bodies["long"], 4 if self.bench.quick else 16
        self._measured(port, pid, 50 * 4, "f", conc=4, bodies=bodies)
        memory = rss_mb(pid)
        self._measured(port, pid, 50 * count, "g", conc=4, bodies=bodies)
        self.found["long_mb"] = (rss_mb(pid) - memory) / count

    def _large(self, port: int, pid: int) -> None:
        self._measured(port, pid, 200, "h", conc=8, bodies=self.bench.bodies["large"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        lag = next(line for line in lines if line.startswith("art_gateway_loop_lag_p99"))
        self.found["lag_ms"] = float(lag.split()[1]) * 1000

    def _slow(self, port: int) -> None:
        result = self.bench.load(
            port,
            self.subject,
            f"e{self.number}",
            conc=1000,
            requests=2000 if self.bench.quick else 3000,
            seconds=12 if self.bench.quick else 30,
            bodies=self.bench.bodies["small"],
            ramp_us=2000,
        )
        if not result["n"]:
            raise RuntimeError("no request was answered with 1,000 in flight")
        self.found["slow_p50_s"] = result["p50"] / 1e6
        self.found["slow_errors"] = result["errors"]


# --- the table ----------------------------------------------------------------------------------


def table(names: list[str], results: dict[str, list[dict[str, float]]]) -> str:
    rows = [["", *names], ["---"] * (len(names) + 1)]
    for key, title in MEASURES.items():
        cells = []
        for name in names:
            values = [found[key] for found in results[name] if key in found]
            cells.append(f"{statistics.median(values):,.{_digits(key)}f}" if values else "-")
        rows.append([title, *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def rows(results: dict[str, list[dict[str, float]]], absent: dict[str, str]) -> report.Report:
    """The same figures, beside their aims."""
    found = report.Report()
    others = [name for name in results if name not in (OURS, "direct")]
    why = {NAMES.get(key, key): reason.splitlines()[0][:80] for key, reason in absent.items()}

    def values(name: str, key: str, less: float, factor: float) -> Any:
        return [factor * (one[key] - less) for one in results[name] if key in one] or "no answer"

    for key, title in MEASURES.items() if OURS in results else ():
        less, factor, more = 0.0, 1e-3 if key.endswith("_us") else 1.0, AIMS.get(key, {})
        if key in ADDED:
            if "direct" not in results:
                continue
            title, factor, aim = ADDED[key]
            more = {"aim": aim, "headline": True}
            less = statistics.median(one[key] for one in results["direct"])
        name, _, unit = title.rpartition(", ")
        name, unit = (name, unit) if unit in ("µs", "ms", "MB") else (title, "")
        here = values(OURS, key, less, factor)
        peers = {one: values(one, key, less, factor) for one in others} | why
        if key in ONLY_OURS:
            peers = {}
        found.row(f"gateway, {name}", unit.replace("µs", "ms"), here, peers=peers, **more)
    return found


def _digits(key: str) -> int:
    return 2 if key.endswith(("_s", "_ms", "long_mb")) else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", type=Path, default=Path(__file__).with_name("tools"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help=f"comma list of {', '.join(MAKERS)}")
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests")
    report.option(parser)
    options = parser.parse_args()
    wanted = {name.strip() for name in options.only.split(",") if name.strip()}
    with tempfile.TemporaryDirectory(prefix="art-bench-") as folder:
        bench = Bench(options.tools, Path(folder), options.quick)
        bench.compile()
        bench.write_bodies()
        absent: dict[str, str] = {}
        chosen = list(subjects(wanted, absent))
        results: dict[str, list[dict[str, float]]] = {subject.name: [] for subject in chosen}
        for number in range(options.rounds):
            for subject in chosen:
                one = Round(bench, subject, number)
                try:
                    one.run()
                except (RuntimeError, OSError, subprocess.SubprocessError, ValueError) as error:
                    print(f"{subject.name}: {error}", file=sys.stderr)
                results[subject.name].append(one.found)
        print(table([subject.name for subject in chosen], results))
        for key, reason in absent.items():
            print(f"not measured: {key}: {reason}")
        rows(results, absent).write(options.json)


if __name__ == "__main__":
    main()
