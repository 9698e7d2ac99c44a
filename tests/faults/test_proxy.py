"""The relay passes everything byte for byte, and misbehaves exactly as told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from faults.proxy import Kind, Link, Rule, error_reply


class Part:
    """What is behind the relay: answers with what it got, and counts."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(body=b"got " + self.bodies[-1])


@pytest.fixture
async def part() -> AsyncIterator[tuple[Part, Link, aiohttp.ClientSession]]:
    made = Part()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    link = Link("test", runner.addresses[0][1], seed=1)
    await link.start()
    async with aiohttp.ClientSession() as http:
        yield made, link, http
    await link.stop()
    await runner.cleanup()


def rule(kind: Kind, **fields: Any) -> Rule:
    return Rule(kind=kind, share=1.0, until=time.monotonic() + 60, **fields)


async def ask(link: Link, http: aiohttp.ClientSession, body: bytes = b"hello", **more: Any) -> Any:
    async with http.post(f"{link.url}/x", data=body, **more) as reply:
        return reply.status, await reply.read()


async def test_requests_and_answers_pass_as_they_are(part: Any) -> None:
    made, link, http = part
    assert await ask(link, http) == (200, b"got hello")

    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b"in ", b"chunks"):
            yield piece

    assert await ask(link, http, chunks()) == (200, b"got in chunks")
    big = b"x" * 300_000
    assert await ask(link, http, big) == (200, b"got " + big)
    assert (link.requests, len(made.bodies), dict(link.done)) == (3, 3, {})


async def test_an_error_is_answered_without_asking_the_part(part: Any) -> None:
    made, link, http = part
    link.rules.append(rule("status", reply=error_reply(402, "{}", {"x-why": "quota"})))
    assert await ask(link, http) == (402, b"{}")
    assert made.bodies == []
    assert link.done == {"status": 1}


@pytest.mark.parametrize(
    ("kind", "arrived"), [("cut_request", 0), ("lose_answer", 1), ("cut_answer", 1)]
)
async def test_a_cut_connection_is_seen_as_one(part: Any, kind: Kind, arrived: int) -> None:
    made, link, http = part
    link.rules.append(rule(kind, after=20))
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await ask(link, http)
    assert len(made.bodies) == arrived


async def test_a_late_answer_comes_and_a_slow_one_is_whole(part: Any) -> None:
    _, link, http = part
    link.rules.append(rule("late", seconds=0.3))
    began = time.monotonic()
    assert await ask(link, http) == (200, b"got hello")
    assert time.monotonic() - began >= 0.3
    link.rules[:] = [rule("slow")]
    assert await ask(link, http, b"y" * 2000) == (200, b"got " + b"y" * 2000)


async def test_only_what_can_be_told_apart_arrives_twice(part: Any) -> None:
    made, link, http = part
    link.rules.append(rule("duplicate"))
    assert await ask(link, http) == (200, b"got hello")
    assert len(made.bodies) == 1
    assert await ask(link, http, headers={"idempotency-key": "k"}) == (200, b"got hello")
    while len(made.bodies) < 3:
        await asyncio.sleep(0.01)


async def test_a_rule_ends_and_hits_its_share(part: Any) -> None:
    _, link, http = part
    reply = error_reply(503, "{}")
    link.rules.append(Rule(kind="status", share=1.0, until=time.monotonic() - 1, reply=reply))
    assert (await ask(link, http))[0] == 200
    link.rules.append(
        Rule(kind="status", share=0.5, until=time.monotonic() + 60, reply=error_reply(503, "{}"))
    )
    seen = [(await ask(link, http))[0] for _ in range(60)]
    assert 10 < seen.count(503) < 50


async def test_cutting_all_ends_what_is_under_way(part: Any) -> None:
    _, link, http = part
    link.rules.append(rule("late", seconds=60.0))
    task = asyncio.create_task(ask(link, http))
    while not link.requests:
        await asyncio.sleep(0.01)
    link.cut_all()
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await task
