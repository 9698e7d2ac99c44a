"""``art train`` as a user types it: its own runtime, its own sessions, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "tests" / "trainer" / "lucky_agent"
MODEL = ROOT / "examples" / "demo_policy" / "model"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"Say {i}."}) + "\n" for i in range(4)))
    path = tmp_path / "train.yaml"
    value = {
        "agent": {"path": str(AGENT), "env": {"TEST_MARK": str(tmp_path)}},
        "data": {"train": "data.jsonl", "eval": "data.jsonl"},
        "model": {"path": str(MODEL), "threads": 1},
        "rollout": {"group_size": 2, "tasks_per_step": 2, "sampling": {"max_tokens": 4}},
        "train": {"steps": 1, "lr": 1e-4, "eval_tasks": 2},
        "run_dir": str(tmp_path / "runs"),
    }
    path.write_text(yaml.safe_dump(value))
    return path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "train", *arguments]


def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TMPDIR": str(tmp_path)}


def art(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=250,
        env=env(tmp_path),
        check=False,
    )


@contextmanager
def started(tmp_path: Path, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        child = subprocess.Popen(command(*arguments), stdout=out, stderr=out, env=env(tmp_path))
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def wait_until(condition: Callable[[], object], what: str, timeout: float = 180.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain until {what}"
        time.sleep(0.02)


def marked(tmp_path: Path) -> list[int]:
    """Everything that was started for this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(tmp_path).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_dry_run_prints_the_resolved_configuration_and_starts_nothing(
    config: Path, tmp_path: Path
) -> None:
    done = art(tmp_path, str(config), "train.lr=3e-4", "--dry-run")
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)
    assert resolved["train"]["lr"] == 3e-4
    assert resolved["train"]["clip_high"] == 0.28
    assert not (tmp_path / "runs").exists()


def test_an_unknown_key_is_one_readable_line(config: Path, tmp_path: Path) -> None:
    done = art(tmp_path, str(config), "train.stpes=3")
    assert done.returncode == 1
    assert done.stderr.strip() == "error: unknown key 'train.stpes': did you mean 'steps'?"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["data.train=/nope.jsonl"], "data.train: there is no file /nope.jsonl"),
        (["model.path=/nope", "--dry-run"], "model.path: /nope is no model folder"),
    ],
)
def test_what_is_not_there_is_said_before_anything_starts(
    config: Path, tmp_path: Path, given: list[str], said: str
) -> None:
    done = art(tmp_path, str(config), *given)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_run_ends_with_the_held_out_success_and_leaves_no_process(
    config: Path, tmp_path: Path
) -> None:
    done = art(tmp_path, str(config), "--resume", str(tmp_path / "runs" / "named"))
    assert done.returncode == 0, done.stderr
    assert "holds no run yet, so one begins there" in done.stdout + done.stderr
    assert re.search(r"step +1/1 +reward", done.stdout)
    last = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"held-out success: \d+\.\d % -> \d+\.\d %", last)
    wait_until(lambda: not marked(tmp_path), "no process is left")
    assert not list(tmp_path.glob("art-*")), "the runtime's state is gone"


@pytest.mark.slow
def test_ctrl_c_saves_and_the_printed_command_goes_on(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(tmp_path, log, str(config), "train.steps=2000") as child:
        wait_until(lambda: "step    2/" in log.read_text(), "two steps are done")
        child.send_signal(signal.SIGINT)
        assert child.wait(150) == 130
    said = log.read_text()
    match = re.search(r"art train (\S+) (\S+) --resume (\S+)", said)
    assert match is not None, said
    wait_until(lambda: not marked(tmp_path), "no process is left")
    (saved,) = (Path(match[3]) / "checkpoints").iterdir()
    done_steps = int(saved.name.removeprefix("step-"))
    other = art(tmp_path, match[1], "--resume", match[3])
    assert "train.steps (2000, now 1)" in other.stderr, "another configuration is refused"
    with started(tmp_path, log, match[1], match[2], "--resume", match[3]) as child:
        wait_until(lambda: re.search(r"^step +\d+/", log.read_text(), re.M), "it goes on")
        child.send_signal(signal.SIGINT)
        assert child.wait(150) == 130
    first = re.search(r"^step +(\d+)/", log.read_text(), re.M)
    assert first is not None
    assert int(first[1]) == done_steps + 1


@pytest.mark.slow
def test_a_command_that_is_ended_saves_too(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(tmp_path, log, str(config), "train.steps=2000") as child:
        wait_until(lambda: "step    1/" in log.read_text(), "a step is done")
        assert len(marked(tmp_path)) > 1
        child.terminate()
        assert child.wait(150) == 130
    assert len(list((tmp_path / "runs").glob("*/checkpoints/step-*"))) == 1
    wait_until(lambda: not marked(tmp_path), "no process is left")
