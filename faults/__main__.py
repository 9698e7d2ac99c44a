"""``python -m faults``: one chaos run. Exit code 1 when something did not hold."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import leak
from .chaos import Chaos, ViolationError
from .event import KINDS, schedule
from .part import PartError
from .show import say, table
from .stack import Stack
from .train import Training

RESULTS = Path(__file__).parent / "results"
GONE_S = 20.0


async def run(given: argparse.Namespace, work: Path) -> dict[str, Any]:
    seconds = given.minutes * 60
    kinds = tuple(k for k in KINDS if not given.only or any(k.startswith(o) for o in given.only))
    stack = Stack(work, given.seed, concurrent=given.concurrent, delay_s=0.1)
    chaos = Chaos(stack, schedule(given.seed, seconds, kinds), seconds, say)
    training = Training(work, stack.env(), given.seed)
    wrong: list[str] = []
    try:
        await stack.start()
        beside = asyncio.create_task(training.run()) if given.train else None
        try:
            await chaos.run()
            if beside is not None:
                say("waiting for art train")
                await beside
                wrong += training.check()
                chaos.injected["kill_train"] += training.kills
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.gather(beside, return_exceptions=True)
        wrong += returned(chaos)
        wrong += await stack.stop()
        wrong += await left(stack)
    except (ViolationError, PartError) as error:
        wrong.append(str(error))
    finally:
        await stack.kill()
    return outcome(given, chaos, stack, wrong)


def returned(chaos: Chaos) -> list[str]:
    """Memory and open files at the end against the level of the first tenth."""
    wrong: list[str] = []
    for what, levels in (("memory (MB)", chaos.levels), ("open files", chaos.files)):
        for name, values in levels.items():
            early = max(values[: max(3, len(values) // 10)])
            wrong += leak.grown(f"{what} of the {name}", early, min(values[-3:]))
    return wrong


async def left(stack: Stack) -> list[str]:
    deadline = time.monotonic() + GONE_S
    while True:
        found = [
            *leak.processes(str(stack.work)),
            *leak.sockets([*stack.ports.values(), *(x.port for x in stack.links.values())]),
            *leak.mounts(stack.work),
            *leak.groups(stack.parts["runtime"].pids),
            *leak.folders(stack.tmp),
        ]
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


def outcome(
    given: argparse.Namespace, chaos: Chaos, stack: Stack, wrong: list[str]
) -> dict[str, Any]:
    return {
        "seed": given.seed,
        "minutes": given.minutes,
        "wrong": wrong,
        "events": chaos.happened,
        "injected": dict(chaos.injected),
        "skipped": dict(chaos.skipped),
        "requests": {
            name: {"requests": link.requests, **link.done} for name, link in stack.links.items()
        },
        "checked": dict(chaos.checked),
        "rollouts": chaos.report,
        "tokens": chaos.fates,
        "memory_mb": {
            name: {"first": values[0], "most": max(values), "last": values[-1]}
            for name, values in chaos.levels.items()
        },
    }


def show(result: dict[str, Any]) -> None:
    table(
        "injected",
        {**result["injected"], **{f"{k} (skipped)": v for k, v in result["skipped"].items()}},
    )
    for name, counts in result["requests"].items():
        table(f"relay {name}", counts)
    table("rollouts", result["rollouts"])
    table("sampled tokens", result["tokens"])
    table("checks", result["checked"])
    table("memory, MB", result["memory_mb"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--concurrent", type=int, default=8, help="rollouts under way")
    parser.add_argument("--only", action="append", help="kinds that begin so; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep the work folder")
    parser.add_argument(
        "--train", action=argparse.BooleanOptionalAction, help="default: from 5 minutes on"
    )
    given = parser.parse_args()
    given.train = given.minutes >= 5 if given.train is None else given.train
    given.seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    say(f"seed {given.seed}, {given.minutes:g} minutes")
    work = Path(tempfile.mkdtemp(prefix="faults-"))
    result = asyncio.run(run(given, work))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"faults-{given.seed}.json"
    path.write_text(json.dumps(result, indent=1))
    show(result)
    if given.keep or result["wrong"]:
        say(f"work folder: {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    if not result["wrong"]:
        say(f"all held; figures in {path}")
        return 0
    say("\nevents so far:\n  " + "\n  ".join(result["events"]))
    for text in result["wrong"]:
        say(f"WRONG  {text}")
    say(f"again: {again(given)}")
    return 1


def again(given: argparse.Namespace) -> str:
    words = [sys.executable, "-m", "faults", "--seed", str(given.seed)]
    words += ["--minutes", f"{given.minutes:g}", "--concurrent", str(given.concurrent)]
    words += ["--train" if given.train else "--no-train"]
    words += [word for one in given.only or () for word in ("--only", one)]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
