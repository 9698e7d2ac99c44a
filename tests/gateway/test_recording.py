"""A recorded run as an engine: the same agent gets the same conversation and the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.engines import make_engine

ARRAYS = ("token_ids", "loss_mask", "logprobs", "turn_index", "weight_versions", "status")
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "add", "arguments": json.dumps({"a": 9, "b": 8})},
}


def script(engine: Any) -> None:
    serve = engine._serve

    async def scripted(request: Any, body: Any, prompt: Any, chat: bool) -> Any:
        engine.tool_call = CALL if chat and body["messages"][-1]["role"] == "user" else None
        return await serve(request, body, prompt, chat)

    engine.answer, engine._serve = (lambda body, choice: f"the sum is 17 ({choice})"), scripted


def replaying(run: Path, session: str = "") -> list[ModelSpec]:
    return [ModelSpec("policy", (f"replay:{run}#{session}",))]


def same_rows(one: list[Any], other: list[Any]) -> None:
    pick = [[{name: row[name] for name in ARRAYS} for row in rows] for rows in (one, other)]
    assert pick[0] == pick[1]


async def run_agent(door: Any, stream: bool) -> tuple[list[Any], list[Any]]:
    opened = await door.open()

    @tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    model = OpenAIModel(
        client_args={"base_url": opened["base_url"], "api_key": "EMPTY"},
        model_id="policy",
        stream=stream,
    )
    agent = Agent(model=model, tools=[add], callback_handler=None)
    await agent.invoke_async("9+8?")
    talk = [{k: m[k] for k in ("role", "content")} for m in agent.messages]
    return talk, (await door.finish(opened))["rows"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_agent_gets_the_same_conversation_and_rows_from_a_recording(
    make_door: Any, engine: Any, tmp_path: Path, stream: bool
) -> None:
    script(engine)
    door = await make_door(run_dir=tmp_path / "recorded")
    await door.admin("POST", "/admin/weights", {"version": "3", "action": "version"})
    talk, rows = await run_agent(door, stream)
    assert len(engine.requests) == 2
    again = await make_door(replaying(tmp_path / "recorded"), run_dir=tmp_path / "again")
    replayed, replayed_rows = await run_agent(again, stream)
    assert len(engine.requests) == 2, "nothing is sampled"
    assert replayed == talk
    assert rows[0]["weight_versions"]
    same_rows(replayed_rows, rows)


async def test_sessions_with_the_same_prompt_are_told_apart(
    make_door: Any, engine: Any, tmp_path: Path
) -> None:
    ask: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "q"}]}
    door = await make_door(run_dir=tmp_path / "recorded")

    async def talk(door: Any, session_id: str, **more: Any) -> list[str]:
        opened = await door.open(session_id=session_id)
        reply = await door.client(opened).chat.completions.create(**ask, **more)
        return [choice.message.content for choice in reply.choices]

    said = {}
    for name in ("one", "two"):
        engine.answer = lambda body, choice, name=name: f"{name}-{choice}"
        said[name] = await talk(door, name, n=2)
    again = await make_door(replaying(tmp_path / "recorded"), run_dir=tmp_path / "all")
    assert [await talk(again, name, n=2) for name in ("a", "b")] == list(said.values())
    single = await make_door(replaying(tmp_path / "recorded", "two"), run_dir=tmp_path / "single")
    assert await talk(single, "c", n=2) == said["two"]


async def test_a_request_that_was_not_recorded_is_refused(
    make_door: Any, engine: Any, tmp_path: Path
) -> None:
    door = await make_door(run_dir=tmp_path / "recorded")
    opened = await door.open(session_id="s")
    await door.client(opened).completions.create(model="policy", prompt="once", max_tokens=4)
    again = await make_door(replaying(tmp_path / "recorded"), run_dir=tmp_path / "again")
    opened = await again.open(session_id="s")
    client = again.client(opened)
    reply = await client.completions.create(model="policy", prompt="once", max_tokens=4)
    assert reply.choices[0].text == "ok0"
    with pytest.raises(openai.NotFoundError, match="holds no"):
        await client.completions.create(model="policy", prompt="other", max_tokens=4)


def test_what_cannot_be_replayed_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run folder"):
        make_engine(f"replay:{tmp_path}")
    (tmp_path / "turns").mkdir()
    with pytest.raises(ConfigError, match="no session 'x'"):
        make_engine(f"replay:{tmp_path}#x")
