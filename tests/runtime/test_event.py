from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agentcore_rl_toolkit.runtime import event
from agentcore_rl_toolkit.runtime.event import Events


class Reader:
    """The least of a server-sent events client: bytes split at LF only."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> dict[str, Any]:
        found: dict[str, Any] = {"data": []}
        async with asyncio.timeout(10):
            while (line := await self.answer.content.readuntil(b"\n")) != b"\n":
                name, _, value = line[:-1].partition(b": ")
                if name == b"data":
                    found["data"].append(value)
                else:
                    found[name.decode()] = value.decode()
        return found


@pytest.fixture
async def events() -> Events:
    return Events(ring_events=5)


@pytest.fixture
async def url(events: Events) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/", events.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield "http://127.0.0.1:{}".format(*runner.addresses[0][1:])
    events.close()
    await runner.cleanup()


def put(events: Events, key: str, body: bytes = b"{}", bucket: str = "rollouts") -> None:
    events.result(bucket, key, len(body), "e", None, "application/json", body)


async def test_a_connection_begins_with_hello_and_gets_only_what_comes_later(
    events: Events, url: str
) -> None:
    put(events, "before")
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        reader = Reader(answer)
        hello = await reader.next()
        assert (hello["event"], hello["data"]) == ("hello", [b"{}"])
        put(events, "after", b'{"rewards": 1}')
        found = await reader.next()
        assert found["event"] == "result"
        assert found["id"] == f"{events.epoch}-2"
        assert json.loads(found["data"][0])["key"] == "after"
        assert found["data"][1] == b'{"rewards": 1}'


async def test_last_event_id_resumes_without_a_gap(events: Events, url: str) -> None:
    for key in "abc":
        put(events, key)
    headers = {"Last-Event-ID": f"{events.epoch}-1"}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        reader = Reader(answer)
        assert (await reader.next())["event"] == "hello"
        assert [json.loads((await reader.next())["data"][0])["key"] for _ in "bc"] == ["b", "c"]


@pytest.mark.parametrize("last", ["other-1", "{epoch}-1", "{epoch}-99", "{epoch}-x", "nonsense"])
async def test_an_id_too_old_or_of_another_start_is_told_reset(
    events: Events, url: str, last: str
) -> None:
    for number in range(8):
        put(events, str(number))
    headers = {"Last-Event-ID": last.format(epoch=events.epoch)}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        reader = Reader(answer)
        assert [(await reader.next())["event"] for _ in range(2)] == ["reset", "hello"]
        put(events, "new")
        assert json.loads((await reader.next())["data"][0])["key"] == "new"


async def test_a_reader_that_falls_out_of_the_ring_is_told_reset(events: Events, url: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        reader = Reader(answer)
        await reader.next()
        for number in range(20):  # no await: the connection cannot follow
            put(events, str(number))
        assert [(await reader.next())["event"] for _ in range(2)] == ["reset", "hello"]


async def test_results_are_filtered_by_bucket_and_prefix_and_session_events_are_not(
    events: Events, url: str
) -> None:
    where = {"bucket": "rollouts", "prefix": "exp/"}
    async with aiohttp.ClientSession() as http, http.get(url, params=where) as answer:
        reader = Reader(answer)
        await reader.next()
        put(events, "exp/1", bucket="other")
        put(events, "elsewhere/1")
        events.session("s" * 36, "agent-1", "lost", "signal 9")
        put(events, "exp/2")
        lost, result = await reader.next(), await reader.next()
        assert json.loads(lost["data"][0]) == {
            "session_id": "s" * 36,
            "runtime_id": "agent-1",
            "state": "lost",
            "reason": "signal 9",
        }
        assert json.loads(result["data"][0])["key"] == "exp/2"


@pytest.mark.parametrize(
    ("content_type", "body", "inline"),
    [
        pytest.param("application/json", b"{}", True, id="small json"),
        pytest.param("application/json; charset=utf-8", b"{}", True, id="json with a charset"),
        pytest.param("text/plain", b"{}", False, id="not json"),
        pytest.param("application/json", b'{\n"a":1}', False, id="holds a line feed"),
        pytest.param("application/json", b'{\r"a":1}', False, id="holds a carriage return"),
        pytest.param("application/json", b'"' + b"x" * 65536 + b'"', False, id="too large"),
        pytest.param("application/json", '"\u2028\u0085"'.encode(), True, id="other line ends"),
    ],
)
async def test_a_result_rides_along_when_it_is_small_json_on_one_line(
    content_type: str, body: bytes, inline: bool
) -> None:
    events = Events()
    events.result("b", "k", len(body), "e", None, content_type, body)
    lines = events.ring[0].text.split(b"\n")
    assert (b"data: " + body in lines) is inline


async def test_the_ring_is_bounded_in_bytes_too() -> None:
    events = Events(ring_events=1000, ring_bytes=10_000)
    for number in range(100):
        put(events, str(number), b'"' + b"x" * 1000 + b'"')
    assert len(events.ring) < 10
    assert events.lost(80)
    assert not events.lost(events.count)


async def test_a_silent_connection_is_kept_alive(
    events: Events, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event, "KEEP_ALIVE_S", 0.01)
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        await Reader(answer).next()
        async with asyncio.timeout(10):
            assert await answer.content.readuntil(b"\n\n") == b": keep-alive\n\n"


async def test_closing_ends_the_connections(events: Events, url: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        await Reader(answer).next()
        events.close()
        async with asyncio.timeout(10):
            assert await answer.content.read() == b""
