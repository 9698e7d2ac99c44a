"""Does the dashboard stay quick on a large run? 100,000 rollouts, 1,000,000 turns, one long one.

Writes a run folder of that size (about 1.5 GB; ``--folder`` keeps it), starts the dashboard as a
process of its own and asks it what the page asks, then opens the long rollout in a browser. Cold
is the first answer of a new process, warm the best of the next five; on a machine that does other
things too, look at the CPU time. Memory is what that process holds of its own afterwards (mapped
files belong to the system). Writing is the CPU time that a caller of the journal spends on a turn.

A tenth, a hundredth and so on of the rollouts are asked too, to see what grows.

python benchmarks/dashboard.py [--rollouts 100000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import browser
import report

from agentcore_rl_toolkit.run import Journal, RunFolder, SessionOpened
from agentcore_rl_toolkit.run.frame import encode
from agentcore_rl_toolkit.run.segment import HEADER, seal_frame, segment_path
from agentcore_rl_toolkit.run.writer import LineWriter
from agentcore_rl_toolkit.trajectory.turn import Turn, pack_ids, pack_logprobs

AT = 1_790_000_000.0
GROUP = 8
LONG_TURNS = 50
LONG_TOKENS = 32_000
SEGMENT_BYTES = 64 << 20
MODEL = Path(__file__).resolve().parents[1] / "examples" / "demo_policy" / "model"
"""Its tokenizer gives the tokens their text."""
VOCABULARY = 1024
AIMS = {"list of runs": 1000, "run: curves and sums": 1000, "rollout of 50 turns, 32k tokens": 1000}
"""Milliseconds of the first answer, at 100,000 rollouts."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=10, help="of each rollout")
    parser.add_argument("--folder", type=Path, help="keep the run here, or use the one there")
    report.option(parser)
    options = parser.parse_args()
    found = report.Report()
    grown: dict[str, dict[float, float]] = {"curves": {}, "table": {}, "memory": {}}
    sizes = [n for n in (100, 1_000, 10_000) if n < options.rollouts]
    for size in (*sizes, options.rollouts):
        with tempfile.TemporaryDirectory(prefix="art-dashboard-") as own:
            last = size == options.rollouts
            kept = options.folder if last else None
            took, held, painted = one_size(kept or Path(own), size, options.turns, look=last)
        grown["curves"][size] = took["run: curves and sums"]
        grown["table"][size] = took["table, first page"]
        grown["memory"][size] = held / 1e6
    for name, cold in took.items():
        found.row(f"dashboard, {name}, first answer", "ms", cold, aim=AIMS.get(name))
    for name, values in painted.items():
        found.row(f"dashboard in chromium, {name}, painted", "ms", values, aim=1000)
    found.row("dashboard, memory", "MB", held / 1e6, aim=300, headline=True)
    name = f"dashboard, curves of {options.rollouts:,} rollouts, first answer"
    found.row(name, "ms", took["run: curves and sums"], aim=1000, headline=True)
    found.row("writing a turn, CPU of the caller", "µs", measure_writing() * 1e6, aim=50)
    memory = {"dashboard": grown.pop("memory")}
    found.curve("Dashboard by rollouts: first answer", "rollouts of the run", "ms", grown)
    found.curve("Dashboard by rollouts: memory", "rollouts of the run", "MB", memory)
    found.write(options.json)
    return 0


Painted = dict[str, list[float] | str]
Found = tuple[dict[str, float], float, Painted]
"""Milliseconds of each first answer, bytes of memory, milliseconds until a view is painted."""


def one_size(base: Path, rollouts: int, turns: int, *, look: bool) -> Found:
    run = RunFolder(base / "large")
    if not run.exists():
        write_run(run, rollouts, turns)
    size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    print(f"{rollouts:,} rollouts, {rollouts * turns:,} turns, {size / 1e9:.2f} GB")
    return measure(base, rollouts, look)


# --- asking -----------------------------------------------------------------------------------


def measure(base: Path, rollouts: int, look: bool) -> Found:
    command = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "dashboard", str(base)]
    child = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        asked = {
            "list of runs": "api/runs",
            "run: curves and sums": "api/runs/large",
            "table, first page": "api/runs/large/rollouts?limit=100",
            "table, filtered and sorted": "api/runs/large/rollouts?outcome=solved&sort=-tokens",
            "time line of a step": "api/runs/large/timeline",
            "a rollout in the middle": f"api/runs/large/rollouts/{rollouts // 2}",
            "rollout of 50 turns, 32k tokens": f"api/runs/large/rollouts/{rollouts}",
            "its tokens": f"api/runs/large/rollouts/{rollouts}/tokens",
        }
        print(f"{'':34}{'cold':>10}{'its CPU':>10}{'warm':>10}{'size':>12}")
        took = {}
        for name, path in asked.items():
            before = cpu_of(child.pid)
            cold, size = timed(f"{url}/{path}")
            cpu, took[name] = cpu_of(child.pid) - before, cold * 1e3
            warm = min(timed(f"{url}/{path}")[0] for _ in range(5))
            spent = f"{cold * 1e3:7.0f} ms{cpu * 1e3:7.0f} ms"
            print(f"{name:34}{spent}{warm * 1e3:7.0f} ms{size / 1e3:9.1f} kB")
        held, mapped = memory_of(child.pid)
        print(f"memory of the dashboard: {held / 1e6:.0f} MB of its own, {mapped / 1e6:.0f} mapped")
        return took, held, painted_of(f"{url}/#/run/large", rollouts) if look else {}
    finally:
        child.terminate()
        child.wait()


def painted_of(run: str, rollouts: int) -> Painted:
    """The run and its long rollout in a browser, from navigation on."""
    rollout = f"{run}/rollout/{rollouts}"
    painted = browser.open_views(
        {
            f"curves of {rollouts:,} rollouts": (run, ".chart path.line"),
            "conversation of 50 turns": (rollout, ".turn .answer"),
            "its 32k tokens": (f"{rollout}/tokens", ".box .t.on"),
        }
    )
    for name, values in painted.items():
        told = values if isinstance(values, str) else [f"{value:.0f} ms" for value in values]
        print(f"{name}, painted in chromium: {told}")
    return painted


def timed(url: str) -> tuple[float, int]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    started = time.perf_counter()
    with opener.open(url, timeout=120) as answer:
        size = len(answer.read())
    return time.perf_counter() - started, size


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> tuple[int, int]:
    facts = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            facts[name] = int(value.split()[0]) * 1024
    return facts["RssAnon"], facts["RssFile"]


# --- writing ----------------------------------------------------------------------------------


def measure_writing(turns: int = 5_000) -> float:
    """What one turn costs the loop that awaits it; the journal's own thread does the rest."""

    async def write(journal: Journal) -> float:
        frames = [turn("s", seq, 20, 400, AT) for seq in range(turns)]
        spent = time.thread_time()
        for start in range(0, turns, 64):
            some = frames[start : start + 64]
            await asyncio.gather(*(journal.write(encode(one)) for one in some))
        return (time.thread_time() - spent) / turns

    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder), fsync=False)
        try:
            cost = asyncio.run(write(journal))
        finally:
            journal.close()
    print(f"writing a turn: {cost * 1e6:.0f} us of the caller's CPU time")
    return cost


def write_run(run: RunFolder, rollouts: int, turns: int) -> None:
    run.create()
    run.config.write_text(f"train: {{steps: 1000}}\nmodel: {{path: {MODEL}}}\n")
    segments = Segments(run.turns)
    lines = LineWriter(run.rollouts)
    block: list[bytes] = []
    for number in range(rollouts):
        at = AT + number / 10
        name = f"train-{number // 512:06d}-{number % 512 // GROUP:04d}-{number % GROUP}"
        session = f"00000000-0000-4000-8000-{number:012d}"
        segments.put(encode(SessionOpened(session_id=session, at=at, rollout_id=name)))
        for seq in range(turns):
            segments.put(encode(turn(session, seq, 20, 400, at + seq / 10)))
        block.append(json.dumps(record(name, session, at + 2, turns)).encode() + b"\n")
    run.rollouts.write_bytes(b"".join(block))
    lines.append(long_rollout(segments, AT + rollouts / 10))
    lines.close()
    segments.close()
    metrics = LineWriter(run.metrics)
    for step in range(1, rollouts // 512 + 1):
        metrics.append(metric(step))
    metrics.close()


class Segments:
    """Frames as the journal writes them, without its thread: a million take a minute less."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number, self._parts, self._size = folder, 0, [HEADER], 0

    def put(self, payload: bytes) -> None:
        self._parts += [seal_frame(payload), payload]
        self._size += len(payload)
        if self._size >= SEGMENT_BYTES:
            self.close()

    def close(self) -> None:
        self._number += 1
        path = segment_path(self._folder, "gateway", self._number)
        path.write_bytes(b"".join(self._parts))
        self._parts, self._size = [HEADER], 0


def turn(session: str, seq: int, n_sampled: int, n_request: int, at: float) -> Turn:
    history = [{"role": "user", "content": "x" * n_request}]
    ids = [9] * n_sampled, [-0.5] * n_sampled
    return made(session, seq, history, "an answer of some words", [7] * n_sampled, ids, at)


def made(
    session: str,
    seq: int,
    history: list[dict[str, str]],
    answer: str,
    prompt: list[int],
    sampled: tuple[list[int], list[float]],
    at: float,
) -> Turn:
    ids, logprobs = sampled
    return Turn(
        turn_id=f"{session}/{seq}",
        session_id=session,
        seq=seq,
        parent=f"{session}/{seq - 1}" if seq else None,
        prompt_shared=seq * (len(prompt) + len(ids)),
        prompt_delta=pack_ids(prompt),
        sampled=pack_ids(ids),
        logprobs=pack_logprobs(logprobs),
        request=json.dumps({"messages": history, "model": "policy"}).encode(),
        response=json.dumps({"role": "assistant", "content": answer}).encode(),
        versions=[("3", 0, len(ids))],
        started=at,
        total_s=0.1,
    )


def long_rollout(segments: Segments, at: float) -> dict[str, object]:
    session, each = "00000000-0000-4000-8000-ffffffffffff", LONG_TOKENS // LONG_TURNS // 2
    segments.put(encode(SessionOpened(session_id=session, at=at)))
    chance = random.Random(0)
    history: list[dict[str, str]] = []
    for seq in range(LONG_TURNS):
        # every request repeats the whole history, as agents do
        history.append({"role": "user", "content": words(chance, 200)})
        answer, prompt = words(chance, 200), [chance.randrange(VOCABULARY) for _ in range(each)]
        ids = [chance.randrange(VOCABULARY) for _ in range(each)]
        sampled = ids, [-chance.expovariate(1.0) for _ in range(each)]
        moment = at + seq / 10
        segments.put(encode(made(session, seq, history, answer, prompt, sampled, moment)))
        history.append({"role": "assistant", "content": answer})
    return record("train-999999-0000-0", session, at + 6, LONG_TURNS)


def words(chance: random.Random, count: int) -> str:
    return " ".join("abcdefghijklmnop"[: chance.randrange(2, 12)] for _ in range(count))


def record(name: str, session: str, at: float, turns: int) -> dict[str, object]:
    return {
        "at": at,
        "phase": "train",
        "step": int(name[6:12]),
        "task": 0,
        "sample": int(name[-1]),
        "group_id": name[:-2],
        "rollout_id": name,
        "session_id": session,
        "reward": float(len(session) % 2 == int(name[-1]) % 2),
        "failure": None,
        "error": None,
        "attempts": 1,
        "rows": 1,
        "turns": turns,
        "tokens": turns * 20,
        "versions": ["3"],
        "metrics": {},
        "timings": {
            "queue_s": 0.1,
            "start_s": 0.2,
            "agent_s": 0.3,
            "model_s": 1.0,
            "reward_s": 0.1,
            "finish_s": 0.1,
        },
    }


def metric(step: int) -> dict[str, object]:
    return {
        "at": AT + step * 51.2,
        "kind": "step",
        "step": step,
        "steps": 1000,
        "reward": 0.5,
        "success": 0.5,
        "rollouts": 512,
        "tokens": 102_400,
        "tokens_per_s": 2000.0,
        "staleness": 0.5,
        "max_staleness": 1,
        "failures": {},
        "seconds": {"collect": 40.0, "train": 11.0},
        "stages": {"queue_s": 0.1, "agent_s": 0.3, "model_s": 1.0},
        "report": {"grad_norm": 0.3, "measures": {"entropy": 0.2, "kl_old": 1e-5}},
    }


if __name__ == "__main__":
    sys.exit(main())
