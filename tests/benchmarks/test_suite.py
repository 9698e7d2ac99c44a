"""The suite with tiny benchmarks: it goes on past failures, and nothing is left after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import suite

BENCHMARKS = Path(suite.__file__).parent

GOOD = """
import argparse, report
parser = argparse.ArgumentParser()
report.option(parser)
found = report.Report()
found.row("cost", "ms", 1.0)
found.write(parser.parse_args().json)
print("a table")
"""
BAD = "import sys; sys.exit('no compiler here')"
HANGING = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
pathlib.Path(__file__).with_name("pid").write_text(str(child.pid))
time.sleep(600)
"""
DRIVER = """
import sys
from pathlib import Path
import figures, suite
folder = Path(sys.argv[1])
figures.HERE, figures.RESULTS, suite.GRACE_S = folder, folder / "results", 2.0
names = [path.stem for path in sorted(folder.glob("*.py"))]
suite.PLAN = [suite.Benchmark(name, quick="", limit_s=float(sys.argv[2])) for name in names]
sys.argv[1:] = sys.argv[3:]
sys.exit(suite.main())
"""


ORPHANED = """
import pathlib, subprocess, sys, time
made = subprocess.run(
    [sys.executable, "-c", "import subprocess; print(subprocess.Popen(['true']).pid)"],
    capture_output=True, text=True, check=True,
)
while pathlib.Path("/proc", made.stdout.strip()).exists():
    time.sleep(0.01)
"""
"""Waits until an orphan is gone, which it is when its new parent has noticed its end."""


def start(folder: Path, limit_s: float, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), str(limit_s), *arguments],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def results(folder: Path, name: str = "results") -> dict[str, Any]:
    return dict(json.loads((folder / "results" / f"{name}.json").read_text())["benchmarks"])


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.02)
    return False


def test_it_goes_on_past_a_failing_benchmark_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a_bad.py").write_text(BAD)
    (tmp_path / "b_good.py").write_text(GOOD)
    child = start(tmp_path, 60, "--repeats", "2")
    said = child.communicate(timeout=100)[0]
    assert child.returncode == 1, said
    assert "a_bad failed: exit status 1: no compiler here" in said
    assert "a table" in said
    found = results(tmp_path)
    assert found["a_bad"]["failed"] == "exit status 1: no compiler here"
    assert found["b_good"]["rows"][0]["here"] == [1.0, 1.0]
    assert not found["b_good"]["failed"]


def test_a_benchmark_that_is_not_run_keeps_its_entry(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(GOOD)
    first = start(tmp_path, 60, "--quick")
    assert "one: done" in first.communicate(timeout=100)[0]
    (tmp_path / "one.py").write_text(BAD)
    second = start(tmp_path, 60, "--quick", "--only", "two")
    assert "two: done" in second.communicate(timeout=100)[0]
    assert second.returncode == 0
    assert not results(tmp_path, "results-quick")["one"]["failed"]


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_a_benchmark_may_wait_for_the_end_of_an_orphan(tmp_path: Path) -> None:
    (tmp_path / "a_parent.py").write_text(ORPHANED + GOOD)
    said = start(tmp_path, 60, "--repeats", "1").communicate(timeout=100)[0]
    assert "a_parent: done" in said


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_a_benchmark_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "a_hanging.py").write_text(HANGING)
    child = start(tmp_path, 2)
    said = child.communicate(timeout=100)[0]
    assert child.returncode == 1
    assert "not done after 2 s" in said
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_ctrl_c_ends_what_runs_and_keeps_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "a_good.py").write_text(GOOD)
    (tmp_path / "b_hanging.py").write_text(HANGING)
    child = start(tmp_path, 60, "--repeats", "1")
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=60)[0]
    assert child.returncode == 130, said
    assert ends(int((tmp_path / "pid").read_text()))
    found = results(tmp_path)
    assert found["a_good"]["rows"]
    assert "b_hanging" not in found


def test_the_plan_names_every_benchmark_that_can_be_run() -> None:
    helpers = {
        "browser",
        "figures",
        "live",
        "peer",
        "plot",
        "report",
        "served",
        "subjects",
        "suite",
    }
    scripts = {path.stem for path in BENCHMARKS.glob("*.py")} - helpers
    assert {one.name for one in suite.PLAN} == scripts
