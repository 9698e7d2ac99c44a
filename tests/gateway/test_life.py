"""Life of a gateway: crash and restart, threads, notices, metrics, clean ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai import OpenAI

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, GatewayThread, ModelSpec
from agentcore_rl_toolkit.run import journal as journal_module
from agentcore_rl_toolkit.run.reader import RunReader
from agentcore_rl_toolkit.run.segment import segments
from agentcore_rl_toolkit.trajectory.turn import Turn

CHAT: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}

SERVER = """
import asyncio, sys
from pathlib import Path
import uvloop
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
async def main():
    settings = GatewaySettings(run_dir=Path(sys.argv[2]), admin_token="admin")
    async with Gateway([ModelSpec.parse(f"policy=vllm:{sys.argv[1]}")], settings) as gateway:
        print(gateway.url, flush=True)
        await asyncio.Event().wait()
uvloop.run(main())
"""


class Process:
    """A gateway of its own, to be killed."""

    def __init__(self, engine_url: str, run_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, engine_url, str(run_dir)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


async def admin(http: Any, url: str, path: str, body: Any = None) -> Any:
    headers = {"authorization": "Bearer admin"}
    async with http.post(url + path, json=body or {}, headers=headers) as reply:
        return await reply.json()


async def test_killed_under_load_nothing_acknowledged_is_lost_and_keys_go_on(
    door: Any, engine: Any, tmp_path: Path
) -> None:
    run_dir = tmp_path / "killed"
    first = await asyncio.to_thread(Process, engine.url, run_dir)
    opened = [await admin(door.http, first.url, "/sessions") for _ in range(4)]
    acknowledged: dict[str, list[str]] = {one["session_id"]: [] for one in opened}

    async def talk(one: dict[str, Any], base: str, turns: int, who: str) -> None:
        client = door.client({"base_url": base})
        for turn in range(turns):
            text = f"{who} {turn}"
            reply = await client.chat.completions.create(
                model="policy", messages=[{"role": "user", "content": text}], stream=turn % 2 == 0
            )
            if turn % 2 == 0:
                [chunk async for chunk in reply]
            acknowledged[one["session_id"]].append(text)

    tasks = [asyncio.create_task(talk(one, one["base_url"], 1000, "a")) for one in opened]
    while not all(len(texts) >= 5 for texts in acknowledged.values()):
        await asyncio.sleep(0.01)
    await asyncio.to_thread(first.kill)
    await asyncio.gather(*tasks, return_exceptions=True)

    second = await asyncio.to_thread(Process, engine.url, run_dir)
    try:
        for one in opened:
            base = second.url + one["base_url"].removeprefix(first.url)
            await talk(one, base, 2, "b")
            finished = await admin(door.http, second.url, f"/sessions/{one['session_id']}/finish")
            assert finished["turns"] >= len(acknowledged[one["session_id"]])
    finally:
        await asyncio.to_thread(second.kill)
    records = RunReader(run_dir).sessions()
    for session_id, texts in acknowledged.items():
        written = [json.loads(turn.request) for turn in records[session_id].turns]
        asked = {body["messages"][0]["content"] for body in written}
        assert set(texts) <= asked
        assert records[session_id].closed is not None


async def test_rows_after_a_restart_are_the_rows_before_it(
    engine: Any, tmp_path: Path, make_door: Any
) -> None:
    run_dir = tmp_path / "again"
    settings = GatewaySettings(run_dir=run_dir, fsync=False)
    models = [ModelSpec.parse(f"policy=vllm:{engine.url}")]
    async with Gateway(models, settings) as gateway:
        key = gateway.sessions.open(spec := _spec())[1]
        await gateway.capture.write(gateway.sessions.by_id("s").frame())
        messages: list[Any] = [{"role": "user", "content": "q" * 3000}]
        async with openai.AsyncOpenAI(base_url=gateway.base_url(key), api_key="EMPTY") as client:
            for _ in range(2):
                reply = await client.chat.completions.create(model="policy", messages=messages)
                messages += [{"role": "assistant", "content": reply.choices[0].message.content}]
                messages += [{"role": "user", "content": "more"}]
        before = gateway.sessions.by_id("s").graph.rows()
    async with Gateway(models, settings) as gateway:
        session = gateway.sessions.by_key(key)
        assert session is not None
        assert (session.turns, session.tokens, session.spec) == (2, 6, spec)
        after = session.graph.rows()
        assert [row.token_ids.tolist() for row in after] == [r.token_ids.tolist() for r in before]
        async with openai.AsyncOpenAI(base_url=gateway.base_url(key), api_key="EMPTY") as client:
            await client.chat.completions.create(model="policy", messages=messages)
        assert len(session.graph.rows()) == 1, "a restart does not break a row"


async def test_long_requests_are_journalled_once_and_read_whole(
    engine: Any, tmp_path: Path
) -> None:
    """Nine long turns with a fork, before and after a restart and while parked."""
    settings = GatewaySettings(run_dir=tmp_path / "long", fsync=False)
    models = [ModelSpec.parse(f"policy=vllm:{engine.url}")]
    bodies: list[bytes] = []

    async def say(gateway: Gateway, key: str, messages: list[Any]) -> str:
        body = json.dumps({"model": "policy", "messages": messages, "stream": False}).encode()
        url = f"{gateway.base_url(key)}/chat/completions"
        async with aiohttp.ClientSession() as http, http.post(url, data=body) as reply:
            assert reply.status == 200
            bodies.append(body)
            return str((await reply.json())["choices"][0]["message"]["content"])

    async def talk(gateway: Gateway, key: str, messages: list[Any], turns: int) -> None:
        for turn in range(turns):
            messages.append({"role": "user", "content": f"{turn} " + "more " * 300})
            content = await say(gateway, key, messages)
            messages.append({"role": "assistant", "content": content})

    def requests(gateway: Gateway) -> list[bytes]:
        graph = gateway.sessions.by_id("s").graph
        assert [graph.turn(head.turn_id).request for head in graph.heads()] == [
            turn.request for turn in graph.turns()
        ]
        return [turn.request for turn in graph.turns()]

    messages = [{"role": "user", "content": "q" * 100_000}]
    messages.append({"role": "assistant", "content": "well"})
    async with Gateway(models, settings) as gateway:
        key = gateway.sessions.open(_spec())[1]
        await gateway.capture.write(gateway.sessions.by_id("s").frame())
        await talk(gateway, key, messages, 6)
        await say(gateway, key, [*messages[:6], {"role": "user", "content": "another way"}])
        assert requests(gateway) == bodies
        gateway.sessions.by_id("s").park()
        assert requests(gateway) == bodies
    async with Gateway(models, settings) as gateway:
        await talk(gateway, key, messages, 2)
        assert requests(gateway) == bodies
        assert gateway.sessions.by_id("s").bytes == sum(map(len, bodies))
    record = RunReader(settings.run_dir).session("s")
    assert record is not None
    assert [turn.request for turn in record.turns] == bodies
    frames = [frame for frame in RunReader(settings.run_dir).frames() if isinstance(frame, Turn)]
    assert [len(turn.request) > 100_000 for turn in frames] == [n in (0, 7) for n in range(9)], (
        "the first and the first after a restart are written whole"
    )


def _spec() -> Any:
    from agentcore_rl_toolkit.gateway.session import OpenSession

    return OpenSession(session_id="s", rollout_id="r", sampling={"temperature": 0.5})


async def test_finished_sessions_leave_memory(make_door: Any, until: Any) -> None:
    door = await make_door(linger_s=0.0)
    opened = await door.open()
    await door.client(opened).chat.completions.create(**CHAT)
    await door.finish(opened)
    await until(lambda: len(door.gateway.sessions) == 0)


async def test_sessions_that_nobody_finishes_are_closed(make_door: Any, until: Any) -> None:
    door = await make_door(session_ttl_s=3600.0, linger_s=0.0)
    opened = await door.open()
    await door.client(opened).chat.completions.create(**CHAT)
    door.gateway.sessions.by_id(opened["session_id"]).touched -= 3601.0
    await until(lambda: len(door.gateway.sessions) == 0)
    record = RunReader(door.gateway.run_dir).session(opened["session_id"])
    assert record is not None
    assert len(record.turns) == 1
    assert record.closed is not None
    assert record.closed.reason == "expired"


async def test_finish_can_be_asked_again(door: Any) -> None:
    opened = await door.open()
    await door.client(opened).chat.completions.create(**CHAT)
    assert (await door.finish(opened))["rows"] == (await door.finish(opened))["rows"] != []


async def test_two_gateways_do_not_share_a_run_folder(door: Any, engine: Any) -> None:
    settings = GatewaySettings(run_dir=door.gateway.run_dir)
    with pytest.raises(ConfigError, match="another process writes the journal"):
        await Gateway([ModelSpec.parse(f"policy=vllm:{engine.url}")], settings).start()


async def test_done_notices_are_passed_on(door: Any) -> None:
    opened = await door.open()
    headers = {"authorization": f"Bearer {door.gateway.settings.admin_token}"}
    async with door.http.get(door.gateway.url + "/events", headers=headers) as events:
        assert await events.content.readuntil(b"\n\n") == b"event: hello\ndata: {}\n\n"
        notice = {"session_id": "runtime-1", "result_key": "e/i/s.json", "status_code": 200}
        async with door.http.post(opened["done_url"], json=notice) as reply:
            assert reply.status == 200
        event = await events.content.readuntil(b"\n\n")
    assert event.startswith(b"event: done\n")
    data = json.loads(event.split(b"data: ")[1])
    assert data == {"gateway_session": opened["session_id"], **notice}
    async with door.http.post(door.gateway.url + "/sessions/guess/done", json=notice) as reply:
        assert reply.status == 401


async def test_metrics_count_what_happened(door: Any, engine: Any) -> None:
    opened = await door.open()
    await door.client(opened).chat.completions.create(**CHAT)
    engine.fail = [(500, "x", {})]
    with pytest.raises(openai.APIError):
        await door.client(opened).chat.completions.create(**CHAT)
    headers = {"authorization": f"Bearer {door.gateway.settings.admin_token}"}
    async with door.http.get(door.gateway.url + "/metrics", headers=headers) as reply:
        lines = (await reply.text()).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["art_gateway_turns_total"] == "1"
    assert values["art_gateway_sampled_tokens_total"] == "3"
    assert values["art_gateway_calls_failed_total"] == "1"
    assert float(values["art_gateway_loop_lag_p99_seconds"]) >= 0.0


def test_gateway_in_a_thread_serves_synchronous_programs(tmp_path: Path) -> None:
    from fake_vllm import FakeVLLM

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = FakeVLLM()
    asyncio.run_coroutine_threadsafe(fake.__aenter__(), loop).result()
    try:
        settings = GatewaySettings(run_dir=tmp_path)
        models = [ModelSpec.parse(f"policy=vllm:{fake.url}")]
        with GatewayThread(models, settings) as gateway:
            request = urllib.request.Request(
                gateway.url + "/sessions",
                data=b"{}",
                headers={"authorization": f"Bearer {gateway.admin_token}"},
            )
            with urllib.request.urlopen(request) as reply:
                opened = json.load(reply)
            with OpenAI(base_url=opened["base_url"], api_key="EMPTY") as client:
                answer = client.chat.completions.create(**CHAT)
                assert answer.choices[0].message.content == "ok0"
        gateway.stop()
    finally:
        asyncio.run_coroutine_threadsafe(fake.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_open_gateway_speaks_with_ids_as_keys(make_door: Any) -> None:
    door = await make_door(open=True)
    base = f"{door.gateway.url}/sessions/chosen-by-caller/v1"
    await door.client({"base_url": base}).chat.completions.create(**CHAT)
    async with door.http.post(f"{door.gateway.url}/sessions/chosen-by-caller/finish") as reply:
        assert len((await reply.json())["rows"]) == 1
    async with door.http.get(
        door.gateway.url + "/sessions", headers={"Origin": "https://evil.example"}
    ) as reply:
        assert reply.status == 403


async def test_run_folder_is_private(door: Any) -> None:
    await door.open()
    assert os.stat(door.gateway.run_dir / "turns").st_mode & 0o077 == 0


async def test_a_turn_that_the_disk_refused_leaves_nothing_to_build_on(
    make_door: Any, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry's turn must not be stored as a delta to one that no reader can find."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    door = await make_door(run_dir=tmp_path / "run")
    opened = await door.open(session_id="s")
    ask: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "q"}]}
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_write_parts", full)
        with pytest.raises(openai.InternalServerError, match="could not be recorded"):
            await door.client(opened).chat.completions.create(**ask)
    await door.client(opened).chat.completions.create(**ask)
    finished = await door.finish(opened)
    assert finished["count"]["turns"] == finished["turns"] == 1
    record = RunReader(tmp_path / "run").session("s")
    assert record is not None
    (row,) = record.graph().rows()
    assert row.token_ids.tolist() == finished["rows"][0]["token_ids"]


async def test_retention_removes_closed_sessions_and_nothing_that_a_live_one_needs(
    make_door: Any, engine: Any
) -> None:
    door = await make_door(journal_bytes=1, park_s=0.0)
    gateway = door.gateway
    gateway._journal.segment_bytes = 500
    ask: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "q"}]}

    async def talk(opened: Any) -> None:
        await door.client(opened).chat.completions.create(**ask)

    for number in range(4):
        opened = await door.open(session_id=f"old{number}")
        await talk(opened)
        await door.finish(opened)
    live = await door.open(session_id="live")
    await talk(live)
    for number in range(2):
        opened = await door.open(session_id=f"new{number}")
        await talk(opened)
        await door.finish(opened)
    before = segments(gateway.run_dir / "turns")
    await gateway._ticker._prune()
    after = segments(gateway.run_dir / "turns")
    assert before[0] not in after
    assert before[-1] in after
    gateway.sessions.by_id("live").park()
    finished = await door.finish(live)
    assert len(finished["rows"]) == 1
    assert gateway.sessions.by_id("old0").is_parked
    with pytest.raises(AssertionError, match="no longer in the journal"):
        await door.finish({"session_id": "old0"})
