"""Clients of the Responses API as they come: Codex and the OpenAI Agents SDK, nothing changed.

The engine is scripted, the clients are real and run as processes of their own. Whatever they do
with their history, every sampled token is trained exactly once, in as few rows as there were
conversations.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .client_stand import Stand, stand
from .client_tool import AGENTS_SDK, CODEX, Missing, npm_tool, python_with
from .fakes import Say

pytestmark = pytest.mark.timeout(450)  # a first run installs the clients

PATCH = """*** Begin Patch
*** Update File: calc.py
@@
 def add(a, b):
-    return a - b
+    return a + b
*** End Patch
"""


@pytest.fixture(scope="module")
def codex() -> Path:
    try:
        return npm_tool(*CODEX)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def agents_python() -> Path:
    try:
        return python_with(*AGENTS_SDK)
    except Missing as missing:
        pytest.skip(str(missing))


def shell(command: str) -> tuple[str, dict[str, str]]:
    return ("exec_command", {"cmd": command})


def answers_so_far(body: dict[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


async def run_codex(
    codex: Path, at: Stand, folder: Path, model: str, config: str = ""
) -> list[dict[str, Any]]:
    """Lets Codex mend a file in a repository; the items that it reports."""
    home, repo = folder / "home", folder / "repo"
    home.mkdir()
    repo.mkdir()
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    (repo / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (home / "config.toml").write_text(
        f'{config}\nmodel = "{model}"\nmodel_provider = "gateway"\napproval_policy = "never"\n'
        'sandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n'
        "[analytics]\nenabled = false\n"
        f'[model_providers.gateway]\nname = "gateway"\nbase_url = "{at.base_url}"\n'
        'wire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    )
    env = {"CODEX_HOME": str(home)}
    out = await at.run(codex, "exec", "--json", "mend add in calc.py", cwd=repo, env=env)
    events = [json.loads(line) for line in out.split("\n") if line.startswith("{")]
    assert events[-1]["type"] == "turn.completed", events
    return [event["item"] for event in events if event["type"] == "item.completed"]


@pytest.mark.parametrize(
    ("model", "patch"),
    [
        pytest.param("policy", shell(f"apply_patch <<'EOF'\n{PATCH}EOF"), id="with the shell"),
        pytest.param("gpt-5.5", ("apply_patch", {"input": PATCH}), id="with its custom tool"),
    ],
)
async def test_codex_mends_a_file_and_becomes_one_row(
    codex: Path, tmp_path: Path, model: str, patch: tuple[str, dict[str, str]]
) -> None:
    script = [
        Say(reasoning="look first", calls=[shell("cat calc.py"), shell("ls")]),
        Say("I mend it.", [patch], reasoning="the sign is wrong"),
        Say(calls=[shell("python3 -c 'import calc; print(calc.add(1, 2))'")]),
        Say("Mended: 1 + 2 = 3 \u2028 ✓", reasoning="done"),
    ]
    async with stand(tmp_path, lambda body, n: script[answers_so_far(body)], model) as at:
        items = await run_codex(codex, at, tmp_path, model)
        finished = await at.finish()
    assert "a + b" in (tmp_path / "repo" / "calc.py").read_text()
    assert items[-1]["text"] == script[-1].text
    assert finished.count.trained_turns == len(script)
    assert finished.count.forks == {}
    (row,) = finished.rows
    assert "tool_left_out:web_search" in row.metadata["flags"]


async def test_codex_sub_agents_are_forks_of_the_same_session(codex: Path, tmp_path: Path) -> None:
    task = "count the files"

    def say(body: dict[str, Any], n: int) -> Say:
        asked = [m["content"] for m in body["messages"] if m["role"] == "user"]
        told = answers_so_far(body)
        if task in asked[-1]:
            return Say("one file", reasoning="I am a helper")
        if told == 0:
            return Say(calls=[("multi_agent_v1__spawn_agent", {"message": task})])
        if told == 1:
            tools = [m["content"] for m in body["messages"] if m["role"] == "tool"]
            name = json.loads(tools[-1])["agent_id"]
            return Say(calls=[("multi_agent_v1__wait_agent", {"targets": [name]})])
        return Say("the helper says: one file")

    async with stand(tmp_path, say) as at:
        items = await run_codex(codex, at, tmp_path, "policy")
        finished = await at.finish()
    assert items[-1]["text"] == "the helper says: one file"
    assert finished.count.forks == {"subagent": 1}
    assert len(finished.rows) == 2


async def test_codex_compacts_its_history_and_both_parts_are_trained(
    codex: Path, tmp_path: Path
) -> None:
    def say(body: dict[str, Any], n: int) -> Say:
        if n < 2:
            told = 90_000 if n == 1 else None
            return Say(reasoning="a long look", calls=[shell("ls")], prompt_tokens=told)
        return Say("so far: listed the files" if n == 2 else "done after all")

    async with stand(tmp_path, say) as at:
        limit = "model_auto_compact_token_limit = 80000"
        items = await run_codex(codex, at, tmp_path, "policy", limit)
        finished = await at.finish()
    assert items[-1]["text"] == "done after all"
    assert finished.count.forks == {"compaction": 1}
    assert [row.metadata["fork"] for row in finished.rows] == [None, "compaction"]


def hand_over_and_add(body: dict[str, Any], n: int) -> Say:
    offered = [tool["function"]["name"] for tool in body.get("tools", [])]
    last = body["messages"][-1]
    if "transfer_to_expert" in offered:
        return Say(calls=[("transfer_to_expert", {})], reasoning="not mine")
    if last["role"] == "tool" and last["content"].isdigit():
        return Say(f"it is {last['content']}", reasoning="simple")
    question = [m["content"] for m in body["messages"] if m["role"] == "user"][-1]
    a, b = (int(c) for c in question if c.isdigit())
    return Say("I add.", [("add", {"a": a, "b": b})], reasoning="with the tool")


async def test_agents_sdk_hands_over_and_stays_in_its_conversations(
    agents_python: Path, tmp_path: Path
) -> None:
    script = Path(__file__).parent / "agents_sdk" / "two_agents.py"
    async with contextlib.AsyncExitStack() as stack:
        stands = {
            way: await stack.enter_async_context(stand(tmp_path / way, hand_over_and_add))
            for way in ("whole", "stream", "previous")
        }
        urls = [f"{way}={at.base_url}" for way, at in stands.items()]
        out = await stands["whole"].run(agents_python, script, *urls, cwd=tmp_path)
        assert json.loads(out.split("\n")[-2]) == [["it is 17", "it is 2"]] * len(stands)
        for way, at in stands.items():
            finished = await at.finish()
            assert finished.count.trained_turns == 5, way
            assert len(finished.rows) == 2, way  # the front agent's conversation, the expert's
