"""Several engines and several models: routing, health, draining, weights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from fake_tokens import FakeTokenizer, FakeTokens
from fake_vllm import FakeVLLM

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.engines import make_engine
from agentcore_rl_toolkit.gateway.text.render import Renderer

CHAT: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}


def two(engine: Any, other: Any) -> list[Any]:
    return [ModelSpec.parse(f"policy=vllm:{engine.url},vllm:{other.url}")]


async def ask(door: Any, opened: Any, text: str = "hi", **extra: Any) -> Any:
    body = {**CHAT, "messages": [{"role": "user", "content": text}], **extra}
    return await door.client(opened).chat.completions.create(**body)


async def test_sessions_stick_to_one_engine_and_spread_over_all(
    make_door: Any, engine: Any
) -> None:
    async with FakeVLLM() as other:
        door = await make_door(two(engine, other))
        sessions = [await door.open() for _ in range(4)]
        for turn in range(3):
            for opened in sessions:
                await ask(door, opened, f"turn {turn}")
        assert len(engine.requests) == len(other.requests) == 6
        for opened in sessions:
            status = await door.admin("GET", f"/sessions/{opened['session_id']}")
            turns = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
            assert {turn.engine for turn in turns} == {status["engines"]["policy"]}


async def test_adding_and_draining_an_engine_moves_only_who_must_move(
    make_door: Any, engine: Any
) -> None:
    async with FakeVLLM() as other, FakeVLLM() as third:
        door = await make_door(two(engine, other))
        sessions = [await door.open() for _ in range(4)]
        for opened in sessions:
            await ask(door, opened)
        before = {s.session_id: s.engines["policy"] for s in door.gateway.sessions}
        await door.admin(
            "POST", "/admin/engines", {"model": "policy", "engine": f"vllm:{third.url}"}
        )
        for opened in sessions:
            await ask(door, opened, "again")
        assert {s.session_id: s.engines["policy"] for s in door.gateway.sessions} == before
        await door.admin(
            "DELETE", "/admin/engines", {"model": "policy", "engine": f"vllm:{other.url}"}
        )
        for opened in sessions:
            await ask(door, opened, "and again")
        gone = other.url.rpartition("/")[2]
        for session in door.gateway.sessions:
            if before[session.session_id] == gone:
                assert session.engines["policy"] == third.url.rpartition("/")[2]
            else:
                assert session.engines["policy"] == before[session.session_id]


async def test_dead_engine_is_left_before_the_first_byte(make_door: Any, engine: Any) -> None:
    other = await FakeVLLM().__aenter__()
    door = await make_door(two(engine, other))
    sessions = [await door.open() for _ in range(4)]
    await other.__aexit__()
    for opened in sessions:
        await ask(door, opened)
    assert len(engine.requests) == 4
    assert {s.engines["policy"] for s in door.gateway.sessions} == {engine.url.rpartition("/")[2]}


async def test_ill_engine_gets_no_new_sessions_until_it_is_well(
    make_door: Any, engine: Any, until: Any
) -> None:
    async with FakeVLLM() as other:
        door = await make_door(two(engine, other), health_s=0.05)
        slots = door.gateway.models.pools["policy"].slots
        slot = slots[other.url.rpartition("/")[2]]
        other.healthy = False
        await until(lambda: not slot.healthy)
        for _ in range(3):
            await ask(door, await door.open())
        assert other.requests == []
        other.healthy = True
        await until(lambda: slot.healthy)
        await ask(door, await door.open())
        assert len(other.requests) == 1


async def test_unreachable_engine_is_a_502_in_the_apis_shape(make_door: Any) -> None:
    door = await make_door([ModelSpec.parse("policy=vllm:http://127.0.0.1:9")])
    with pytest.raises(openai.InternalServerError, match="cannot reach the engine") as caught:
        await ask(door, await door.open())
    assert caught.value.status_code == 502


async def test_untrained_model_is_recorded_and_gives_no_rows(make_door: Any, engine: Any) -> None:
    models = [
        ModelSpec.parse(f"policy=vllm:{engine.url}"),
        ModelSpec.parse(f"judge=chat:{engine.url}#tiny"),
    ]
    door = await make_door(models)
    opened = await door.open()
    await ask(door, opened)
    reply = await ask(door, opened, "judge this", model="judge", logprobs=True)
    assert reply.choices[0].logprobs is not None
    assert "return_token_ids" not in engine.requests[1]
    finished = await door.finish(opened)
    assert finished["turns"] == 2
    assert len(finished["rows"]) == 1
    assert finished["count"]["left_turns"] == {"untrained_model": 1}
    names = {m["model"]: m["train"] for m in (await door.admin("GET", "/admin/models"))["models"]}
    assert names == {"policy": True, "judge": False}


async def test_model_that_is_trained_needs_an_engine_with_ids() -> None:
    with pytest.raises(ConfigError, match="gives no token ids"):
        ModelSpec("policy", ("chat:http://127.0.0.1:9",), train=True).pool()
    with pytest.raises(ConfigError, match="is not an engine"):
        make_engine("llama:http://x")
    with pytest.raises(ConfigError, match="is not a model"):
        ModelSpec.parse("policy")


async def test_capabilities_are_probed_and_shown(door: Any) -> None:
    (model,) = (await door.admin("GET", "/admin/models"))["models"]
    (shown,) = model["engines"]
    assert shown["capabilities"]["models"] == ["tiny"]
    assert shown["capabilities"]["max_tokens"] == 2048


async def test_weight_versions_are_on_every_sampled_token(door: Any, engine: Any) -> None:
    opened = await door.open()
    await ask(door, opened, "one")
    await door.admin("POST", "/admin/weights", {"version": "7", "engines": True})
    assert [path for path, _ in engine.control] == [
        "/pause?mode=keep",
        "/update_weight_version",
        "/resume",
    ]
    await ask(door, opened, "two")
    turns = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert [turn.versions for turn in turns] == [[], [("7", 0, 3)]]


async def test_version_that_changes_during_a_stream_is_marked_where_it_changed(
    door: Any, engine: Any, until: Any
) -> None:
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    await door.admin("POST", "/admin/weights", {"version": "1", "action": "version"})
    opened = await door.open()
    stream = await ask(door, opened, stream=True)
    await until(lambda: any(call.tokens for call in door.gateway.relay.calls))
    await door.admin("POST", "/admin/weights", {"version": "2", "action": "version"})
    engine.hold.set()
    [chunk async for chunk in stream]
    (turn,) = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert turn.versions == [("1", 0, 1), ("2", 1, 5)]
    assert turn.flags == ["version_estimated"]


async def test_calls_wait_while_paused_and_pause_can_wait_for_calls(
    door: Any, engine: Any, until: Any
) -> None:
    engine.hold = asyncio.Event()
    opened = await door.open()
    first = asyncio.create_task(ask(door, opened, "one"))
    await until(lambda: engine.requests)
    pausing = asyncio.create_task(
        door.admin("POST", "/admin/weights", {"action": "pause", "mode": "wait"})
    )
    await until(lambda: not door.gateway.models.pools["policy"].gate.is_set())
    assert not pausing.done()
    engine.hold.set()
    await asyncio.gather(first, pausing)
    second = asyncio.create_task(ask(door, opened, "two"))
    await until(lambda: len(door.gateway.relay.calls) == 1)
    assert len(engine.requests) == 1
    await door.admin("POST", "/admin/weights", {"action": "resume", "version": "3"})
    await second
    turns = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert turns[1].versions == [("3", 0, 3)]


async def test_a_start_can_sample_a_token_to_see_what_comes_back(
    make_door: Any, engine: Any, tmp_path: Path
) -> None:
    door = await make_door(probe=True)
    shown = (await door.admin("GET", "/admin/models"))["models"][0]["engines"][0]["capabilities"]
    assert (shown["token_ids"], shown["logprobs"]) == (True, True)
    assert [body["max_tokens"] for body in engine.requests] == [1]
    engine.leave_out.add("logprobs")
    other = await make_door(probe=True, run_dir=tmp_path / "other")
    shown = (await other.admin("GET", "/admin/models"))["models"][0]["engines"][0]["capabilities"]
    assert shown["logprobs"] is False
    assert "log-probabilit" in shown["problem"]


@pytest.mark.parametrize("kind", ["vllm-generate", "sglang"])
async def test_versions_that_an_engine_streams_are_kept_token_by_token(
    make_door: Any, kind: str
) -> None:
    async with FakeTokens() as fake:
        spec = ModelSpec("policy", (f"{kind}:{fake.url}",), tokenizer=Renderer(FakeTokenizer()))
        door = await make_door([spec])
        fake.sampled, fake.versions = [*map(ord, "abc"), 2], ["6", "6", "7", "7"]
        opened = await door.open()
        [chunk async for chunk in await ask(door, opened, stream=True, max_tokens=9)]
        (row,) = (await door.finish(opened))["rows"]
    start = row["turns"][0]["start"] if isinstance(row["turns"][0], dict) else row["turns"][0][2]
    spans = [(version, a - start, b - start) for version, a, b in row["weight_versions"]]
    assert spans == [("6", 0, 2), ("7", 2, 4)]
