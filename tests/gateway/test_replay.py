"""Answers given again from recorded turns, and sessions that are folded away while idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.session import OpenSession

CHAT: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}
RETRY = {"x-stainless-retry-count": "1"}


async def read(reply: Any) -> str:
    return "".join([c.choices[0].delta.content or "" async for c in reply if c.choices])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_retry_after_a_restart_is_answered_without_sampling(
    engine: Any, tmp_path: Path, stream: bool
) -> None:
    settings = GatewaySettings(run_dir=tmp_path, fsync=False)
    models = [ModelSpec.parse(f"policy=vllm:{engine.url}")]
    async with Gateway(models, settings) as gateway:
        session, key = gateway.sessions.open(OpenSession())
        await gateway.capture.write(session.frame())
        async with openai.AsyncOpenAI(base_url=gateway.base_url(key), api_key="x") as client:
            reply = await client.chat.completions.create(**CHAT, stream=stream, n=1)
            first = await read(reply) if stream else reply.choices[0].message.content
    async with (
        Gateway(models, settings) as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url(key), api_key="x") as client,
    ):
        reply = await client.chat.completions.create(
            **CHAT, stream=stream, n=1, extra_headers=RETRY
        )
        again = await read(reply) if stream else reply.choices[0].message.content
        assert again == first == "ok0"
        assert len(engine.requests) == 1
        await client.chat.completions.create(**CHAT, n=1)
        assert len(engine.requests) == 2, "asking again is not a retry"


async def test_streamed_tool_calls_are_replayed_whole(door: Any, engine: Any) -> None:
    engine.tool_call = {
        "id": "call-1",
        "type": "function",
        "function": {"name": "calc", "arguments": '{"x": 1}'},
    }
    opened = await door.open()
    client = door.client(opened)
    await client.chat.completions.create(**CHAT)
    door.gateway.shelf.drop(door.gateway.sessions.by_id(opened["session_id"]))
    reply = await client.chat.completions.create(**CHAT, extra_headers=RETRY)
    assert reply.choices[0].message.tool_calls[0].function.arguments == '{"x": 1}'
    assert len(engine.requests) == 1


async def test_idle_sessions_are_folded_and_go_on(make_door: Any, until: Any) -> None:
    door = await make_door(park_s=0.0)
    opened = await door.open()
    session = door.gateway.sessions.by_id(opened["session_id"])
    messages: list[Any] = [{"role": "user", "content": "q" * 3000}]
    for _ in range(3):
        await until(lambda: session.is_parked)
        reply = await door.client(opened).chat.completions.create(model="policy", messages=messages)
        messages += [{"role": "assistant", "content": reply.choices[0].message.content}]
        messages += [{"role": "user", "content": "more"}]
    await until(lambda: session.is_parked)
    assert (await door.admin("GET", f"/sessions/{session.session_id}"))["drift"]["clean"] == 2
    assert session.is_parked, "looking does not unfold"
    (row,) = (await door.finish(opened))["rows"]
    assert len(row["turns"]) == 3
