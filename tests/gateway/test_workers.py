"""Several processes behind one port: placement, one answer for all, and a worker killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.crew.fanout import merge_health, merge_metrics
from agentcore_rl_toolkit.gateway.crew.peers import as_retry, owner_of
from agentcore_rl_toolkit.gateway.crew.workers import Workers, name_in
from agentcore_rl_toolkit.gateway.session import OpenSession

USER = {"role": "user", "content": "hi"}
ASK: dict[str, Any] = {"model": "policy", "messages": [USER]}


class Crew:
    """Workers and what a trainer does with them."""

    def __init__(self, workers: Workers, http: aiohttp.ClientSession) -> None:
        self.workers, self.http = workers, http

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.workers.settings.admin_token}"}
        url = self.workers.url + path
        async with self.http.request(method, url, json=body, headers=headers) as reply:
            text = await reply.text()
            assert reply.status < 400, text
            return json.loads(text) if reply.content_type == "application/json" else text

    async def open(self, **spec: Any) -> dict[str, Any]:
        return dict(await self.admin("POST", "/sessions", spec))

    async def finish(self, opened: dict[str, Any]) -> dict[str, Any]:
        return dict(await self.admin("POST", f"/sessions/{opened['session_id']}/finish", {}))

    async def ask(self, opened: dict[str, Any], body: Any = ASK, **headers: str) -> Any:
        url = opened["base_url"] + "/chat/completions"
        async with self.http.post(url, json=body, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    def pid(self, opened: dict[str, Any]) -> int:
        worker = self.workers.workers[owner_of(opened["key"], self.workers.count)]
        assert worker.process is not None
        return worker.process.pid


Make = Callable[..., Awaitable[Crew]]


@pytest.fixture
async def make_crew(tmp_path: Path, engine: Any) -> AsyncIterator[Make]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(count: int = 2) -> Crew:
            models = [ModelSpec.parse(f"policy=vllm:{engine.url}#tiny")]
            settings = GatewaySettings(run_dir=tmp_path / "run", fsync=False)
            workers = await stack.enter_async_context(Workers(models, settings, count))
            connector = aiohttp.TCPConnector(limit=0)
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            return Crew(workers, http)

        yield make


async def test_sessions_are_spread_and_any_worker_relays_to_the_owner(make_crew: Make) -> None:
    crew = await make_crew()
    opened = [await crew.open() for _ in range(12)]
    assert {owner_of(one["key"], 2) for one in opened} == {0, 1}
    for one in opened:
        assert owner_of(one["key"], 2) == owner_of(one["session_id"], 2)
        answer = await crew.ask(one)
        assert answer["choices"][0]["message"]["content"] == "ok0"
    listed = await crew.admin("GET", "/sessions")
    assert {s["session_id"] for s in listed["sessions"]} == {o["session_id"] for o in opened}
    # one connection for all sessions: half of its calls are for the other worker
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        for one in opened:
            body = {**ASK, "stream": True, "seed": 1}
            async with http.post(one["base_url"] + "/chat/completions", json=body) as reply:
                assert (await reply.read()).endswith(b"data: [DONE]\n\n")
    for one in opened:
        assert (await crew.finish(one))["count"]["trained_turns"] == 2
    wrong = openai.AsyncOpenAI(base_url=f"{crew.workers.url}/v1", api_key="sk-no", max_retries=0)
    async with wrong:
        with pytest.raises(openai.AuthenticationError):
            await wrong.chat.completions.create(**ASK)


async def test_client_that_leaves_a_relayed_call_cancels_it(
    make_crew: Make, engine: Any, until: Any
) -> None:
    crew = await make_crew()
    opened = [await crew.open() for _ in range(8)]
    first = next(one for one in opened if owner_of(one["key"], 2) == 0)
    second = next(one for one in opened if owner_of(one["key"], 2) == 1)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        await Crew(crew.workers, http).ask(first)
        engine.hold = asyncio.Event()
        task = asyncio.create_task(Crew(crew.workers, http).ask(second))
        await until(lambda: len(engine.requests) == 2)
        task.cancel()
        await until(lambda: engine.cancelled == 1)
    assert (await crew.finish(second))["rows"] == []


async def test_a_change_of_weights_that_is_not_understood_is_a_400(make_crew: Make) -> None:
    crew = await make_crew()
    headers = {"authorization": f"Bearer {crew.workers.settings.admin_token}"}
    url = crew.workers.url + "/admin/weights"
    for body in (b'{"action": "jump"}', b"{bad"):
        async with crew.http.post(url, data=body, headers=headers) as reply:
            assert reply.status == 400
            assert "the body is not valid" in await reply.text()


async def test_weights_metrics_and_notices_are_of_all_workers(make_crew: Make, engine: Any) -> None:
    crew = await make_crew()
    opened = [await crew.open() for _ in range(8)]
    change = {"action": "update", "version": "7", "engines": True}
    await crew.admin("POST", "/admin/weights", change)
    assert [path for path, _ in engine.control] == [
        "/pause?mode=keep",
        "/update_weight_version",
        "/resume",
    ]
    headers = {"authorization": f"Bearer {crew.workers.settings.admin_token}"}
    async with crew.http.get(crew.workers.url + "/events", headers=headers) as events:
        await events.content.readuntil(b"\n\n")
        for one in opened:
            await crew.ask(one)
            async with crew.http.post(one["done_url"], json={"result_key": "k"}) as reply:
                assert reply.status == 200
            assert (await events.content.readuntil(b"\n\n")).startswith(b"event: done")
    finished = [await crew.finish(one) for one in opened]
    assert {one["rows"][0]["weight_versions"][0][0] for one in finished} == {"7"}
    metrics = await crew.admin("GET", "/metrics")
    assert "art_gateway_turns_total 8\n" in metrics
    (model,) = (await crew.admin("GET", "/admin/models"))["models"]
    assert model["engines"][0]["served"] == 8


async def test_a_dead_workers_sessions_are_taken_over(make_crew: Make, engine: Any) -> None:
    answers = iter("abc")
    engine.answer = lambda body, choice: next(answers)
    crew = await make_crew()
    opened = await crew.open()
    first = await crew.ask(opened)
    await crew.admin("POST", "/admin/weights", {"action": "version", "version": "3"})
    os.kill(crew.pid(opened), signal.SIGKILL)
    again = await retried(lambda n: crew.ask(opened, **{"x-stainless-retry-count": str(n)}), 1)
    assert again["choices"][0]["message"]["content"] == "a", "told from the journal"
    message = first["choices"][0]["message"]
    more = {**ASK, "messages": [USER, message, {"role": "user", "content": "more"}]}
    await crew.ask(opened, more)
    finished = await crew.finish(opened)
    assert finished["count"]["trained_turns"] == 2
    assert len(finished["rows"]) == 1
    assert finished["rows"][0]["weight_versions"][-1][0] == "3", "the successor knows the version"


async def retried(work: Callable[[int], Awaitable[Any]], first: int = 0, tries: int = 8) -> Any:
    """As the SDKs do it: again on a broken connection, saying so."""
    for n in range(first, tries):
        try:
            return await work(n)
        except (aiohttp.ClientError, ConnectionError):
            await asyncio.sleep(0.1 * (n + 1))
    raise AssertionError("no try was answered")


async def test_1000_sessions_lose_nothing_when_a_worker_is_killed(
    make_crew: Make, engine: Any
) -> None:
    engine.answer = lambda body, choice: f"answer {len(body['messages'])}"
    crew = await make_crew()
    victim = crew.workers.workers[0]
    answered = 0

    async def converse(number: int) -> list[str]:
        nonlocal answered
        opened = sessions[number]
        messages: list[Any] = [{"role": "user", "content": f"task {number}"}]
        told: list[str] = []
        for _ in range(2):
            body = {"model": "policy", "messages": messages}
            answer = await retried(
                lambda n, body=body: crew.ask(opened, body, **{"x-stainless-retry-count": str(n)})
            )
            message = answer["choices"][0]["message"]
            told.append(message["content"])
            messages = [*messages, message, {"role": "user", "content": "go on"}]
            answered += 1
            if answered == 700 and victim.process is not None:
                os.kill(victim.process.pid, signal.SIGKILL)
        return told

    sessions = await asyncio.gather(*(crew.open() for _ in range(1000)))
    told = await asyncio.gather(*(converse(number) for number in range(1000)))
    assert victim.restarts == 1
    listed = (await crew.admin("GET", "/sessions"))["sessions"]
    assert len(listed) == 1000
    for opened, texts in list(zip(sessions, told, strict=True))[::10]:
        finished = await crew.finish(opened)
        (row,) = finished["rows"]
        pairs = zip(row["token_ids"], row["loss_mask"], strict=True)
        text = "".join(chr(token) for token, mask in pairs if mask)
        assert text == "".join(texts), "what a client was told is what would be trained"
    more = {one["session_id"] for one in listed if one["turns"] != 2}
    for opened in (one for one in sessions if one["session_id"] in more):
        # on a slow machine a retry comes after the grace: the call was cut before it was repeated
        count = (await crew.finish(opened))["count"]
        assert count["trained_turns"] == 2, count
        assert set(count["left_turns"]) <= {"failed", "empty"}, count


async def test_another_number_of_workers_is_refused_while_sessions_live(
    make_crew: Make, engine: Any, tmp_path: Path
) -> None:
    crew = await make_crew()
    opened = await crew.open()
    await crew.ask(opened)
    await crew.workers.stop()
    settings = GatewaySettings(run_dir=tmp_path / "run", fsync=False)
    models = [ModelSpec.parse(f"policy=vllm:{engine.url}#tiny")]
    with pytest.raises(ConfigError, match="another number of workers"):
        await Gateway(models, settings).start()
    again = await make_crew()
    finished = await again.finish(opened)
    assert len(finished["rows"]) == 1
    await again.workers.stop()
    async with Gateway(models, settings) as gateway:
        await gateway.open_session(OpenSession())


async def test_workers_end_when_their_parent_is_killed(
    engine: Any, tmp_path: Path, until: Any
) -> None:
    """Its port is free then, and the journals have no writer."""
    script = (
        "import asyncio, sys; from pathlib import Path;"
        "from agentcore_rl_toolkit.gateway import GatewaySettings, ModelSpec;"
        "from agentcore_rl_toolkit.gateway.crew.workers import serve_workers;"
        "show = lambda w: print(*(x.process.pid for x in w.workers), flush=True);"
        "settings = GatewaySettings(run_dir=Path(sys.argv[2]));"
        "models = [ModelSpec.parse(sys.argv[1])];"
        "asyncio.run(serve_workers(models, settings, count=2, ready=show))"
    )
    command = (sys.executable, "-c", script, f"policy=vllm:{engine.url}", str(tmp_path))
    parent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(pid) for pid in (await parent.stdout.readline()).split()]
    assert len(pids) == 2
    parent.kill()
    await parent.wait()
    await until(lambda: not any(running(pid) for pid in pids), 30.0)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_key_is_read_from_the_first_bytes_of_a_connection() -> None:
    assert name_in(b"POST /sessions/sk-art-x/v1/messages HTTP/1.1\r\nhost: a") == "sk-art-x"
    assert name_in(b"POST /v1/messages HTTP/1.1\r\nX-Api-Key: k1\r\n\r\n") == "k1"
    assert name_in(b"POST /v1/x HTTP/1.1\r\nAuthorization: Bearer k2\r\n\r\n") == "k2"
    assert name_in(b"GET /health HTTP/1.1\r\n\r\n") is None


async def test_health_is_that_of_all_workers(make_crew: Make) -> None:
    crew = await make_crew()
    opened = [await crew.open() for _ in range(8)]
    assert {owner_of(one["key"], 2) for one in opened} == {0, 1}
    for _ in range(4):  # new connections go to the workers in turn
        async with aiohttp.ClientSession() as http, http.get(crew.workers.url + "/health") as reply:
            said = await reply.json()
        assert (said["status"], said["sessions"], said["workers"]) == ("ok", 8, 2)


def test_a_worker_that_does_not_answer_is_missing() -> None:
    one = {"status": "ok", "sessions": 2, "in_flight": 1, "workers": 3, "loop_lag_p99_s": 0.1}
    two = {**one, "sessions": 3, "loop_lag_p99_s": 0.2}
    said = merge_health([one, two, None])
    assert said == {**two, "status": "degraded", "sessions": 5, "in_flight": 2} | {
        "workers_missing": 1
    }


def test_metrics_are_added_up_and_lag_is_the_worst() -> None:
    one = "# TYPE a_total counter\na_total 2\n# TYPE x_lag_p99 gauge\nx_lag_p99 0.5\n"
    other = "# TYPE a_total counter\na_total 3\n# TYPE x_lag_p99 gauge\nx_lag_p99 0.25\n"
    assert merge_metrics([one, other]) == one.replace(" 2\n", " 5\n")


def test_a_call_sent_again_says_so() -> None:
    assert as_retry({"X-Stainless-Retry-Count": "1", "a": "b"}) == {
        "a": "b",
        "x-stainless-retry-count": "2",
    }
