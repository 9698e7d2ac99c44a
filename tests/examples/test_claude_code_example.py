"""Claude Code, unchanged, in a session of the local runtime, captured by the gateway."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore_rl_toolkit import RolloutClient
from agentcore_rl_toolkit.gateway import GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.gateway.thread import GatewayThread

from . import snoop
from .conftest import (
    CLAUDE_CODE,
    EXAMPLES,
    EngineThread,
    FakeScript,
    Missing,
    Say,
    npm_tool,
    signals_are_scoped,
    trained,
)

FOLDER = EXAMPLES / "claude_code_agent"


@pytest.fixture(scope="module")
def claude() -> str:
    try:
        return str(npm_tool(*CLAUDE_CODE))
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(300)
def test_a_repository_is_mended_and_every_token_is_captured(
    runner: ModuleType, claude: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CLI", claude)
    (oracle,) = runner.load(FOLDER, "oracle")

    def say(body: dict[str, Any], _: int) -> Say:
        text, calls = oracle.reply(body)
        return Say(text, list(calls))

    engine = FakeScript(say)
    settings = GatewaySettings(run_dir=tmp_path / "run", fsync=False)
    deployed = runner.deployed(FOLDER.name, environment=oracle.environment())
    with EngineThread(engine), deployed as (url, arn):
        models = [ModelSpec.parse(f"*=vllm:{engine.url}#tiny")]
        with GatewayThread(models, settings) as gateway:
            opened = gateway.call(gateway.gateway.open_session(OpenSession()))
            with RolloutClient(
                arn, "rollouts", "x", base_url=opened.base_url, model_id="policy", endpoint_url=url
            ) as client:
                (item,) = client.run_batch([next(oracle.tasks())], 1, timeout=200)
            finished = gateway.call(gateway.gateway.finish_session(opened.session_id))
    assert item.error is None
    assert item.result["rewards"] == 1.0
    assert item.result["response"] == "The tests pass now."
    assert trained(finished) == ["".join(engine.said)]


@pytest.mark.timeout(300)
def test_the_cli_finds_neither_the_tests_that_decide_nor_the_oracle(
    runner: ModuleType, claude: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CLI", claude)
    (oracle,) = runner.load(FOLDER, "oracle")
    row = next(oracle.tasks())
    row["checks"] = [*row["checks"], ["to_roman", [5], "what-is-right-4711"]]
    said: list[str] = []

    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        said[:] = [str(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        looks = f"ls /app; python3 - <<'END'\n{snoop.code('what-is-right-4711')}\nEND"
        asked = str(request["messages"])
        if "Mend roman.py" not in asked or said:
            return "I found nothing.", []
        return "", [("Bash", {"command": looks, "description": "look around"})]

    with runner.serve(reply) as model, runner.translated(model) as url:
        environment = oracle.environment()
        done = runner.run_tasks(FOLDER.name, "rl_app.py", [row], url, 1, environment)
        assert dict(done) == {0: 0.0}
    assert snoop.NOTHING in said[0], said
    assert "rl_app.py" in said[0].split()
    assert not {"oracle.py", "make_data.py"} & set(said[0].split())


class Judge:
    def __init__(self, runner: ModuleType) -> None:
        reward, self.data = runner.load(FOLDER, "reward", "make_data")
        self.reward = reward.RepoReward()

    def __call__(self, folder: Path, repo: str) -> float:
        return float(self.reward(folder=folder, repo=repo, checks=self.data.CHECKS[repo]))


@pytest.fixture(scope="module")
def judge(runner: ModuleType) -> Judge:
    return Judge(runner)


def test_a_right_solution_is_worth_one(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "wallet.py").write_text(
        "def split(cents, people):\n"
        "    return [cents // people + (i < cents % people) for i in range(people)]\n"
    )
    assert judge(tmp_path, "wallet") == 1.0


@pytest.mark.parametrize("repo", ["roman", "wallet"])
def test_doing_nothing_is_worth_nothing(judge: Judge, repo: str) -> None:
    assert judge(FOLDER / "repos" / repo, repo) == 0.0


CHEATS = {
    "visible-tests-by-heart": "def split(c, p):\n    return [25] * 4 if p == 4 else [34, 34, 33]\n",
    "results-written-directly": "print('[[25, 25, 25, 25]]')\nraise SystemExit(0)\n",
    "process-ended": "import os\nos._exit(0)\n",
    "printing-without-end": "while True:\n    print('x' * 100_000)\n",
    "brackets-without-end": "print('[' * 500_000)\nraise SystemExit(0)\n",
    "an-object-that-equals-everything": (
        "class Any(list):\n    __eq__ = lambda *a: True\ndef split(c, p):\n    return Any()\n"
    ),
    "comparison-replaced": (
        "import json\njson.dumps = lambda *a: 'true'\ndef split(c, p):\n    return []\n"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_worth_nothing(judge: Judge, tmp_path: Path, cheat: str) -> None:
    (tmp_path / "wallet.py").write_text(CHEATS[cheat])
    assert judge(tmp_path, "wallet") == 0.0


def test_what_is_judged_cannot_end_the_agent(judge: Judge, tmp_path: Path) -> None:
    signals_are_scoped()
    (tmp_path / "wallet.py").write_text(
        "import os\n"
        "try:\n    os.kill(os.getppid(), 0)\n"
        "except PermissionError:\n    open('refused', 'w').close()\n"
        "def split(cents, people):\n    return []\n"
    )
    assert judge(tmp_path, "wallet") == 0.0
    assert (tmp_path.parent / "refused").exists()


ENDS = {
    "killed-by-its-own-command": ("kill -9 $$", "[stopped by a signal: -9]"),
    "asked-to-end-by-its-own-command": ("exit 143", "[stopped by a signal: 143]"),
}


def cli(tmp_path: Path, script: str) -> str:
    command = tmp_path / "claude"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return str(command)


@pytest.mark.parametrize("end", ENDS)
def test_a_command_that_was_ended_is_judged_by_what_it_left(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (module,) = runner.load(FOLDER, "claude_code")
    script, says = ENDS[end]
    monkeypatch.setenv("CLAUDE_CLI", cli(tmp_path, script))
    (tmp_path / "repo").mkdir()
    assert module.claude("p", tmp_path / "repo", "m", "http://127.0.0.1:9", "k") == says


def test_a_command_that_fails_fails_the_rollout(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (module,) = runner.load(FOLDER, "claude_code")
    monkeypatch.setenv("CLAUDE_CLI", cli(tmp_path, "echo no model; exit 1"))
    (tmp_path / "repo").mkdir()
    with pytest.raises(RuntimeError, match="ended with 1: no model"):
        module.claude("p", tmp_path / "repo", "m", "http://127.0.0.1:9", "k")
