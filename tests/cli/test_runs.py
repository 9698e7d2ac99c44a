"""Run folders in a terminal: the same reader as the dashboard's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli.app import app
from agentcore_rl_toolkit.errors import ConfigError

from ..dashboard.sample import HOSTILE, Sample, Talk, conversation, said, turn, user, whole


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    whole(tmp_path / "runs" / "one").close()
    return tmp_path


class Art:
    """``art`` in this process: what it printed, or how it refused."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        app(arguments, standalone_mode=False)
        return self._capsys.readouterr().out

    def refused(self, *arguments: str) -> str:
        with pytest.raises(ConfigError) as error:
            self(*arguments)
        return str(error.value)


@pytest.fixture
def art(home: Path, capsys: pytest.CaptureFixture[str]) -> Art:
    return Art(capsys)


def test_runs_are_listed(art: Art) -> None:
    assert art("runs").splitlines()[1].split()[:5] == ["one", "ended", "1/2", "8", "0.500"]
    assert "no runs below" in art("runs", "elsewhere")


@pytest.mark.parametrize("columns", ["80", ""])
def test_a_usual_run_is_one_line(home: Path, columns: str) -> None:
    name = "20260101-120000-strands_math_agent"
    (home / "runs" / "one").rename(home / "runs" / name)
    done = subprocess.run(
        [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "runs"],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    )
    [_, line] = done.stdout.splitlines()
    assert line.startswith(f"{name} ended 1/2")


def test_a_rollout_is_shown_with_its_calls_and_its_group(art: Art) -> None:
    shown = art("show", "train-000000-0000-0")
    assert 'calculator({"expression": "2 + 2"})' in shown
    assert "[rewrite]" in shown
    assert "+1.41" in shown
    stages = "queue 0.50 s, start 0.25 s, agent 1.00 s, model 2.00 s, reward 0.15 s, store 50.0 ms"
    assert f"time: {stages}" in shown
    tokens = art("show", "train-000000-0000-0", "--tokens")
    assert "0   -0.1000    0.010     +1.41" in tokens
    assert '"rewards": 1.0' in shown
    assert "&& art invoke math " in shown


def test_a_rollout_that_is_not_there_is_refused(art: Art) -> None:
    assert "has a rollout 'nobody'" in art.refused("show", "nobody")
    assert "6 rollouts begin" in art.refused("show", "train-000000-0", "--run", "one")


def test_what_agents_wrote_cannot_steer_the_terminal(home: Path, art: Art) -> None:
    sample = Sample(home / "runs" / "two")
    graph = Talk("train-000009-0000-0")
    evil = "".join(HOSTILE) + "[bold]\x1b]0;title\x07"
    turn(graph, [user(evil)], [1], said(evil), [2])
    sample.rollout("train-000009-0000", 0, 1.0, graph=graph, error=evil)
    sample.close()
    shown = art("show", "train-000009-0000-0")
    assert "<script>" in shown
    assert "[bold]" in shown
    assert "\x1b" not in shown


def test_a_run_is_followed_to_its_end(art: Art) -> None:
    told = art("tail")
    assert "train-000000-0000-3  session_lost" in told
    assert "step 1: reward 0.500" in told
    assert "session_lost: it broke" in told
    lines = told.splitlines()
    assert lines[0].startswith("eval 0:"), "by time, not rollouts first"


def test_a_log_that_the_run_keeps_is_shown_with_its_rollout(home: Path, art: Art) -> None:
    log = home / "runs" / "one" / "logs" / "session-train-000000-0000-0.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)) + "\x1b[2Jthe end\n")
    shown = art("show", "train-000000-0000-0")
    assert "last 20 of 101 lines" in shown
    assert "the end" in shown
    assert "\x1b" not in shown
    assert "line 80" not in shown


def test_rewards_are_computed_again_without_running_agents(home: Path, art: Art) -> None:
    (home / "mine.py").write_text(
        "from agentcore_rl_toolkit import RewardFunction\n"
        "class Kind(RewardFunction):\n"
        "    def __call__(self, *, response, answer, **kwargs):\n"
        "        return float(answer in response)\n"
        "def broken(**kwargs):\n"
        "    raise ValueError('no')\n"
    )
    told = art("rescore", "one", "--reward", "mine:Kind")
    assert "5 of 7 rewards differ; mean 0.4286 -> 0.8571" in told
    only = art("rescore", "one", "--reward", "mine:Kind", "--phase", "eval")
    assert "1 of 1 rewards differ" in only
    assert "raised ValueError: no" in art.refused("rescore", "one", "--reward", "mine:broken")
    refused = art.refused("rescore", "one", "--reward", "mine:Nothing")
    assert "mine has no 'Nothing': it has Kind" in refused
    assert "cannot be made" in art.refused("rescore", "one", "--reward", "nowhere:Nothing")


def test_a_port_that_is_taken_says_how_to_choose_another(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "dashboard"]
        done = subprocess.run(
            [*command, "--port", port], cwd=home, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert "choose another port with --port" in done.stderr


def test_the_dashboard_command_serves_and_ends(home: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "dashboard", "--port", "0"],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/api/runs", timeout=60) as answer:
            assert b'"one"' in answer.read()
        child.terminate()
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_a_growing_run_is_followed_while_it_grows(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "runs" / "now")
    child = subprocess.Popen(
        [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "tail", "now"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert child.stdout is not None
        for number in range(2):
            name = f"train-{number:06d}-0000"
            sample.rollout(name, 0, 1.0, graph=conversation(f"{name}-0"))
            assert name in child.stdout.readline()
        sample.close()
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
