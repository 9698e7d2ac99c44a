"""Claude Code as it comes from npm, headless, against the gateway and a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.admin import Finished, Opened
from agentcore_rl_toolkit.gateway.session import OpenSession

from .client_tool import CLAUDE_CODE, Missing, npm_tool
from .fakes import FakeScript, Say


@pytest.fixture(scope="module")
def claude() -> Path:
    try:
        return npm_tool(*CLAUDE_CODE)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    return folder


async def converse(
    claude: Path, prompt: str, repo: Path, engine: FakeScript
) -> tuple[dict[str, Any], Finished]:
    """What Claude Code says at the end, and what the gateway has of it."""
    settings = GatewaySettings(run_dir=repo.parent / "run", fsync=False)
    async with Gateway([ModelSpec.parse(f"*=vllm:{engine.url}#tiny")], settings) as gateway:
        opened = await gateway.open_session(OpenSession())
        said = await run(claude, prompt, repo, opened)
        return said, await gateway.finish_session(opened.session_id)


async def run(claude: Path, prompt: str, repo: Path, opened: Opened) -> dict[str, Any]:
    home = repo.parent / "home"
    home.mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": opened.anthropic_base_url,
        "ANTHROPIC_API_KEY": "EMPTY",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }
    options = ["--model", "policy", "--output-format", "json", "--dangerously-skip-permissions"]
    process = await asyncio.create_subprocess_exec(
        claude,
        *("-p", prompt, *options),
        cwd=repo,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 120)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
    assert process.returncode == 0, (out[-2000:], err[-2000:])
    return dict(json.loads(out))


def results(body: dict[str, Any]) -> int:
    return sum(message["role"] == "tool" for message in body["messages"])


def trained(finished: Finished) -> str:
    """Every token that would be trained: characters, here."""
    return "".join(
        chr(token)
        for row in finished.rows
        for token, mask in zip(row.token_ids, row.loss_mask, strict=True)
        if mask
    )


async def test_a_bug_is_fixed_and_the_conversation_is_one_row(claude: Path, repo: Path) -> None:
    path = str(repo / "calc.py")
    edit = {"file_path": path, "old_string": "a - b", "new_string": "a + b"}
    script = [
        Say("I look first.", [("Read", {"file_path": path})], reasoning="what is in it?"),
        Say(calls=[("Edit", edit)], reasoning="a sign"),
        Say(
            "Now I try it.",
            [("Bash", {"command": "python3 -c 'import calc; print(calc.add(2,3))'"})],
        ),
        Say("add(2, 3) is 5 now.", reasoning="done"),
    ]
    async with FakeScript(lambda body, n: script[results(body)]) as engine:
        said, finished = await converse(claude, "Fix add in calc.py", repo, engine)
    assert said["result"] == "add(2, 3) is 5 now."
    assert "a + b" in (repo / "calc.py").read_text()
    assert finished.count.trained_turns == finished.count.turns == 4
    assert len(finished.rows) == 1
    assert finished.count.forks == {}
    assert trained(finished) == "".join(engine.said), "delivered is trained"


async def test_a_sub_agent_is_a_fork_of_its_own(claude: Path, repo: Path) -> None:
    task = {
        "description": "count files",
        "prompt": "COUNT-THE-FILES",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }

    def say(body: dict[str, Any], n: int) -> Say:
        mine = any("COUNT-THE-FILES" in str(m["content"]) for m in body["messages"][:2])
        if mine and not results(body):
            return Say("Counting.", [("Bash", {"command": "ls | wc -l"})])
        if mine:
            return Say("There is one file.")
        return Say(calls=[("Agent", task)]) if not results(body) else Say("One file.")

    async with FakeScript(say) as engine:
        prompt = "How many files? Ask an agent."
        said, finished = await converse(claude, prompt, repo, engine)
    assert said["result"] == "One file."
    assert finished.count.forks == {"subagent": 1}
    assert len(finished.rows) == 2
    assert sorted(trained(finished)) == sorted("".join(engine.said)), "delivered is trained"
