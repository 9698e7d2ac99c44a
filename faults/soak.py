"""``python -m faults.soak``: many sessions at once, a slow engine, no faults, for long.

What must hold: memory is flat, latency is flat, nothing is lost. Each minute is a line; the first
fifth is warming up and is shown, not judged. Exit code 1 when something did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.run.reader import RunReader

from . import invariant, leak, ledger
from .__main__ import RESULTS, left
from .chaos import LAST_S
from .part import PartError, children, tree
from .show import say
from .stack import Stack

GROWTH_MB = 0.15, 16.0
"""Memory may end so much above the middle of the run: a share, and so many megabytes."""
LATENCY = 2.0
"""The last minutes' median against the first judged ones': generous, machines are shared."""
HEAD = (
    f"{'minute':>6} {'ended':>6} {'failed':>6} {'retried':>7} {'turns':>6} {'turn p50':>9} "
    f"{'p99':>7} {'start p50':>9} {'runtime':>8} {'gateway':>8} {'sessions':>14}"
)


class Soak:
    def __init__(self, stack: Stack, minutes: float, rollout_s: float) -> None:
        self.stack, self.minutes, self.rollout_s = stack, minutes, rollout_s
        self.lines: list[dict[str, Any]] = []

    async def run(self) -> None:
        began = time.monotonic()
        say(HEAD)
        for minute in range(1, max(1, round(self.minutes)) + 1):
            while time.monotonic() - began < 60 * minute:
                await asyncio.sleep(1.0)
                for part in self.stack.parts.values():
                    part.check()
            self.lines.append(await asyncio.to_thread(self._measure, minute))
            say(shown(self.lines[-1]))
        driver = self.stack.parts["driver"]
        await driver.stop(LAST_S + self.rollout_s)

    def _measure(self, minute: int) -> dict[str, Any]:
        since = time.time() - 60
        ends = [
            line
            for line in ledger.read(self.stack.ledger)
            if line["kind"] == "end" and line["at"] >= since
        ]
        turns = [
            turn.total_s or 0.0
            for record in RunReader(self.stack.run_dir).sessions().values()
            for turn in record.turns
            if turn.started >= since
        ]
        runtime, gateway = self.stack.parts["runtime"].pid, self.stack.parts["gateway"].pid
        below = [pid for child in children(runtime) for pid in tree(child)]
        return {
            "minute": minute,
            "ended": len(ends),
            "failed": sum(line["failure"] is not None for line in ends),
            "retried": sum(line["attempts"] - 1 for line in ends),
            "turns": len(turns),
            "turn_p50_s": quantile(turns, 0.5),
            "turn_p99_s": quantile(turns, 0.99),
            "start_p50_s": quantile([line["start_s"] for line in ends], 0.5),
            "runtime_mb": leak.memory_mb([runtime]),
            "gateway_mb": leak.memory_mb(tree(gateway)),
            "sessions_mb": leak.memory_mb(below),
            "processes": len(below),
        }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def shown(line: dict[str, Any]) -> str:
    return (
        f"{line['minute']:6} {line['ended']:6} {line['failed']:6} {line['retried']:7} "
        f"{line['turns']:6} {line['turn_p50_s']:7.2f} s {line['turn_p99_s']:5.2f} s "
        f"{line['start_p50_s']:7.2f} s {line['runtime_mb']:5.0f} MB {line['gateway_mb']:5.0f} MB "
        f"{line['sessions_mb']:6.0f} MB/{line['processes']}"
    )


def judged(lines: list[dict[str, Any]]) -> list[str]:
    """What is not flat, and what was lost."""
    wrong = [f"minute {x['minute']}: {x['failed']} rollouts failed" for x in lines if x["failed"]]
    kept = lines[max(1, len(lines) // 5) :]
    if len(kept) < 2:
        return wrong
    early, late = kept[: len(kept) // 2], kept[len(kept) // 2 :]
    share, more = GROWTH_MB
    for name in ("runtime_mb", "gateway_mb"):
        before, after = (statistics.median(x[name] for x in part) for part in (early, late))
        if after > before * (1 + share) + more:
            wrong.append(f"{name} grew from {before:.0f} to {after:.0f}")
    before, after = (statistics.median(x["turn_p50_s"] for x in part) for part in (early, late))
    if after > before * LATENCY:
        wrong.append(f"a turn took {before:.2f} s, then {after:.2f} s")
    return wrong


async def run(given: argparse.Namespace, work: Path) -> dict[str, Any]:
    stack = Stack(
        work,
        given.seed,
        concurrent=given.sessions,
        delay_s=given.delay,
        spread=0.0,
        turns=given.turns,
    )
    soak = Soak(stack, given.minutes, given.turns * given.delay)
    wrong: list[str] = []
    try:
        await stack.start()
        await soak.run()
        wrong += judged(soak.lines)
        lines = list(ledger.read(stack.ledger))
        journal = RunReader(stack.run_dir).sessions()
        told = {x["session"]: x["told"] or [] for x in lines if x["kind"] == "end"}
        wrong += invariant.exactly_once(lines, over=True)
        wrong += invariant.acknowledged(told, journal)
        wrong += invariant.trained(lines, told, journal)
        wrong += await stack.stop()
        wrong += await left(stack)
    except PartError as error:
        wrong.append(str(error))
    finally:
        await stack.kill()
    return {"sessions": given.sessions, "minutes": soak.lines, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--delay", type=float, default=10.0, help="seconds of a model's answer")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="faults-"))
    result = asyncio.run(run(given, work))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "soak.json").write_text(json.dumps(result, indent=1))
    for text in result["wrong"]:
        say(f"WRONG  {text}")
    if result["wrong"]:
        say(f"work folder: {work}")
        return 1
    shutil.rmtree(work, ignore_errors=True)
    say(f"all flat, nothing lost; figures in {RESULTS / 'soak.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
