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

from .conftest import (
    CLAUDE_CODE,
    EXAMPLES,
    EngineThread,
    FakeScript,
    Missing,
    Say,
    npm_tool,
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


@pytest.fixture(scope="module")
def reward(runner: ModuleType) -> Any:
    return runner.load(FOLDER, "reward")[0].RepoReward()


def test_a_right_solution_is_worth_one(reward: Any, tmp_path: Path) -> None:
    (tmp_path / "wallet.py").write_text(
        "def split(cents, people):\n"
        "    return [cents // people + (i < cents % people) for i in range(people)]\n"
    )
    assert reward(folder=tmp_path, repo="wallet") == 1.0


@pytest.mark.parametrize("repo", ["roman", "wallet"])
def test_doing_nothing_is_worth_nothing(reward: Any, repo: str) -> None:
    assert reward(folder=FOLDER / "repos" / repo, repo=repo) == 0.0


CHEATS = {
    "visible-tests-by-heart": "def split(c, p):\n    return [25] * 4 if p == 4 else [34, 34, 33]\n",
    "results-written-directly": "print('[[25, 25, 25, 25]]')\nraise SystemExit(0)\n",
    "process-ended": "import os\nos._exit(0)\n",
    "an-object-that-equals-everything": (
        "class Any(list):\n    __eq__ = lambda *a: True\ndef split(c, p):\n    return Any()\n"
    ),
    "comparison-replaced": (
        "import json\njson.dumps = lambda *a: 'true'\ndef split(c, p):\n    return []\n"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_worth_nothing(reward: Any, tmp_path: Path, cheat: str) -> None:
    (tmp_path / "wallet.py").write_text(CHEATS[cheat])
    assert reward(folder=tmp_path, repo="wallet") == 0.0
