"""Every benchmark in one go: figures with their peers, their spread and their aims.

    python benchmarks/suite.py [--quick] [--repeats 3] [--only gateway,objects]
    python benchmarks/suite.py --check | --readme         # of the last results

Writes ``results/results.json``, ``.md`` and a drawing of each curve; ``results-quick.*`` with
``--quick``, which takes less than five minutes on a machine at rest. A benchmark that is not run
keeps its last entry. Repeats go round: all benchmarks once, then all again, so that an hour of
noise does not fall on one of them. Each runs in a process group of its own with a limit; one that
fails or hangs is named, and the rest goes on. Ctrl-C ends the running one and whatever it started,
and writes what there is. ``--check`` fails when a ratio to a peer misses its aim by more than a
third; ``--readme`` writes the README's table.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import figures
import report

GRACE_S = 15.0
"""From the request to end to the end by force."""
REAP_S = 0.02
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Benchmark:
    name: str
    full: str = ""
    """Arguments of one repeat."""
    quick: str | None = None
    """The same when there are five minutes for all of them; None leaves it out."""
    limit_s: float = 900.0
    once: bool = False
    """Too long, or too steady, to be repeated."""
    named: bool = False
    """Runs only when named: it needs a machine that few have."""


PLAN = (
    Benchmark("train", "--seeds 1,2,3 --control", limit_s=2400, once=True),
    Benchmark("gpu", once=True, named=True),
    Benchmark("gateway", "--rounds 1", "--quick --rounds 1 --only direct,gateway,acr"),
    Benchmark("dialects", "--rounds 1", "--quick --rounds 1"),
    Benchmark("clients", "", "--quick", once=True),
    Benchmark("workers", "", "--quick"),
    Benchmark("runtime", "--rounds 3", "--rounds 1 --live 0 --idle 1"),
    Benchmark("wire", "", "--quick"),
    Benchmark("rollouts", "--rounds 1", "--quick"),
    Benchmark("objects", "", "--quick"),
    Benchmark("backends", "", ""),
    Benchmark("dashboard", "", "--rollouts 3000", once=True),
    Benchmark("engine"),
    Benchmark("overlap", "", None, once=True),
)


def main() -> int:
    options = parse_arguments()
    path = figures.RESULTS / f"{options.out}.json"
    if options.readme:
        text = figures.README.read_text(encoding="utf-8")
        table = figures.readme_table(figures.load(path))
        figures.README.write_text(figures.with_table(text, table), encoding="utf-8")
        return 0
    return check(figures.load(path)) if options.check else run_all(options, path)


def check(entries: dict[str, Any]) -> int:
    if not entries:
        sys.exit("nothing was measured yet: run this without --check first")
    found = figures.missed(entries)
    for sentence in found:
        print(f"missed by more than a third: {sentence}")
    return int(bool(found))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="smaller, once, in five minutes")
    parser.add_argument("--repeats", type=int, default=0, help="3; with --quick 1")
    parser.add_argument("--only", default="", help="comma list of benchmarks")
    parser.add_argument("--out", help="name of the results; default: results or results-quick")
    parser.add_argument("--check", action="store_true", help="only look at the last ratios")
    parser.add_argument("--readme", action="store_true", help="only write the README")
    options = parser.parse_args()
    options.out = options.out or ("results-quick" if options.quick else "results")
    options.repeats = options.repeats or (1 if options.quick else 3)
    names = [name.strip() for name in options.only.split(",") if name.strip()]
    unknown = set(names) - {one.name for one in PLAN}
    if unknown:
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}")
    options.plan = [
        one for one in PLAN if (one.name in names if names else _usual(one, options.quick))
    ]
    return options


def _usual(one: Benchmark, quick: bool) -> bool:
    return not one.named and (not quick or one.quick is not None)


# --- running ------------------------------------------------------------------------------------


def run_all(options: argparse.Namespace, path: Path) -> int:
    adopt_orphans()
    began, found = time.monotonic(), {one.name: Found() for one in options.plan}
    rounds = [(n, one) for n in range(options.repeats) for one in options.plan]
    rounds = [(n, one) for n, one in rounds if n == 0 or not one.once]
    stopped = False
    try:
        for at, (number, one) in enumerate(rounds):
            place = f"[{at + 1}/{len(rounds)}] {one.name}"
            place += f", repeat {number + 1}" if options.repeats > 1 else ""
            run_one(one, options.quick, place, found[one.name])
    except KeyboardInterrupt:
        stopped = True
        print("\nstopped; what was measured is kept", file=sys.stderr)
    entries = figures.load(path)
    for one in options.plan:
        if found[one.name].tried:
            entries[one.name] = found[one.name].entry(one, options.quick)
    order = [one.name for one in PLAN]
    figures.save(dict(sorted(entries.items(), key=lambda e: _place(order, e[0]))), path)
    failures = {name: one.failed for name, one in found.items() if one.failed}
    for name, reason in failures.items():
        print(f"{name} failed: {reason}")
    print(f"{time.monotonic() - began:.0f} s in all; results/{path.stem}.md has the figures")
    return 130 if stopped else int(bool(failures))


def _place(order: list[str], name: str) -> int:
    return order.index(name) if name in order else 0


class Found:
    """What the repeats of one benchmark gave."""

    def __init__(self) -> None:
        self.reports: list[report.Report] = []
        self.seconds: list[float] = []
        self.failed = ""

    @property
    def tried(self) -> bool:
        return bool(self.reports or self.failed)

    def entry(self, one: Benchmark, quick: bool) -> dict[str, Any]:
        command = f"python benchmarks/{one.name}.py {arguments(one, quick)}".strip()
        return {
            "command": command,
            "at": date.today().isoformat(),
            "machine": machine(),
            "seconds": [round(s, 1) for s in self.seconds],
            "failed": self.failed or None,
            **asdict(report.merged(self.reports)),
        }


def arguments(one: Benchmark, quick: bool) -> str:
    return one.quick if quick and one.quick is not None else one.full


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    about = f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}"
    return f"{about}, Python {platform.python_version()}"


def run_one(one: Benchmark, quick: bool, place: str, found: Found) -> None:
    with tempfile.TemporaryDirectory(prefix="art-suite-") as folder:
        out, log = Path(folder) / "rows.json", Path(folder) / "log"
        script = figures.HERE / f"{one.name}.py"
        command = [sys.executable, str(script), *shlex.split(arguments(one, quick))]
        began = time.monotonic()
        with log.open("wb") as said:
            child = subprocess.Popen(
                [*command, "--json", str(out)],
                stdout=said,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            reason = watch(child, place, one.limit_s, began, log)
        took = time.monotonic() - began
        text = log.read_text(errors="replace").rstrip()
        print(f"{place}: {f'failed, {reason}' if reason else 'done'} in {took:.0f} s\n{text}\n")
        if reason:
            last = text.splitlines()[-1][:300] if text else "it said nothing"
            found.failed = f"{reason}: {last}"
        else:
            found.seconds.append(took)
            found.reports.append(report.read(json.loads(out.read_text())))


def watch(child: subprocess.Popen[bytes], place: str, limit: float, began: float, log: Path) -> str:
    """Waits until the end; why it failed, if it did. Nothing of it is left afterwards."""
    shown = sys.stdout.isatty()
    if not shown:
        print(f"{place} ...", flush=True)
    try:
        while child.poll() is None:
            took = time.monotonic() - began
            if took > limit:
                return f"not done after {limit:.0f} s"
            if shown:
                said = log.read_bytes()[-400:].decode(errors="replace").strip().splitlines()
                print(f"\r\033[K{place} {took:4.0f} s  {said[-1][:60] if said else ''}", end="")
            reap(child.pid)
            with suppress(subprocess.TimeoutExpired):
                child.wait(REAP_S)
        return f"exit status {child.returncode}" if child.returncode else ""
    finally:
        if shown:
            print("\r\033[K", end="", flush=True)
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """A request first: benchmarks take down what they started. Then by force."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + GRACE_S
    while left := own_children():  # orphans, which are ours by now
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if time.monotonic() > deadline:
            return


def adopt_orphans() -> None:
    """Whatever loses its parent becomes a child of this process, so that it can be ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(kept: int) -> None:
    """Orphans that have ended are gone only when we say so, and a benchmark may wait for that."""
    for pid in own_children():
        if pid != kept:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def own_children() -> list[int]:
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
