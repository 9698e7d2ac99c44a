"""Retry truth: the same request sent again is never sampled twice, and never forks."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

USER = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": "policy", "messages": USER}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_sdk_retry_after_its_timeout_joins_the_running_call(
    door: Any, engine: Any, until: Any, stream: bool
) -> None:
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    opened = await door.open()
    client = door.client(opened, max_retries=1, timeout=1.0)

    async def ask() -> str:
        if not stream:
            return str((await client.chat.completions.create(**CHAT)).choices[0].message.content)
        # the SDK retries only before the head of a reply: the second call is the agent's own
        try:
            reply = await client.chat.completions.create(**CHAT, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in reply])
        except (openai.APIError, TimeoutError, Exception):
            reply = await client.chat.completions.create(**CHAT, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in reply])

    task = asyncio.create_task(ask())
    await until(lambda: door.gateway.metrics.joined == 1)
    engine.hold.set()
    assert await task == "hello"
    assert len(engine.requests) == 1
    finished = await door.finish(opened)
    (row,) = finished["rows"]
    assert len(row["turns"]) == 1
    assert finished["count"]["left_turns"] == {}


async def test_retry_of_a_finished_call_gets_the_same_answer(door: Any, engine: Any) -> None:
    answers = iter(["one", "two", "three"])
    engine.answer = lambda body, choice: next(answers)
    opened = await door.open()

    async def ask(headers: dict[str, str]) -> str:
        reply = await door.client(opened).chat.completions.create(**CHAT, extra_headers=headers)
        return str(reply.choices[0].message.content)

    assert await ask({"x-stainless-retry-count": "0"}) == "one"
    assert await ask({"x-stainless-retry-count": "1"}) == "one"
    assert await ask({"x-stainless-retry-count": "0"}) == "two", "asking twice is not a retry"
    assert await ask({"Idempotency-Key": "k"}) == "three"
    assert await ask({"Idempotency-Key": "k"}) == "three"
    finished = await door.finish(opened)
    assert finished["turns"] == 3
    assert sum(len(row["turns"]) for row in finished["rows"]) == 3


async def test_a_key_that_comes_with_another_request_is_refused(door: Any, engine: Any) -> None:
    opened = await door.open()
    client, key = door.client(opened), {"Idempotency-Key": "k"}
    await client.chat.completions.create(**CHAT, extra_headers=key)
    other = {**CHAT, "messages": [{"role": "user", "content": "something else"}]}
    with pytest.raises(openai.UnprocessableEntityError, match="came with another request"):
        await client.chat.completions.create(**other, extra_headers=key)
    assert (await door.finish(opened))["turns"] == 1


async def test_parallel_equal_requests_are_different_calls(door: Any, engine: Any) -> None:
    engine.hold = asyncio.Event()
    opened = await door.open()
    client = door.client(opened)
    tasks = [asyncio.create_task(client.chat.completions.create(**CHAT)) for _ in range(3)]
    await asyncio.sleep(0)
    while len(engine.requests) < 3:
        await asyncio.sleep(0.01)
    engine.hold.set()
    await asyncio.gather(*tasks)
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 3


async def test_retry_of_a_failed_call_is_sampled(door: Any, engine: Any) -> None:
    engine.fail = [(500, "oops", {})]
    opened = await door.open()
    reply = await door.client(opened, max_retries=1).chat.completions.create(**CHAT)
    assert reply.choices[0].message.content == "ok0"
    assert len(engine.requests) == 2
    assert (await door.finish(opened))["turns"] == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_disconnect_cancels_the_engine_and_leaves_an_undelivered_turn(
    make_door: Any, engine: Any, until: Any, stream: bool
) -> None:
    door = await make_door(retry_grace_s=0.0)
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    opened = await door.open()
    reply = asyncio.create_task(
        door.http.post(opened["base_url"] + "/chat/completions", json={**CHAT, "stream": stream})
    )
    await until(lambda: engine.requests)
    if stream:
        response = await reply
        await response.content.readany()
        response.close()
    else:
        reply.cancel()
    await until(lambda: engine.cancelled == 1)
    finished = await door.finish(opened)
    assert finished["rows"] == []
    assert finished["turns"] == 1
    turn = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()[0]
    assert not turn.delivered
    assert turn.error == "the client disconnected"
    assert turn.n_sampled == (1 if stream else 0)


async def test_finish_drains_calls_in_flight(door: Any, engine: Any, until: Any) -> None:
    engine.hold = asyncio.Event()
    opened = await door.open()
    asked = asyncio.create_task(door.client(opened).chat.completions.create(**CHAT))
    await until(lambda: engine.requests)
    finishing = asyncio.create_task(door.finish(opened))
    await until(lambda: door.gateway.sessions.by_id(opened["session_id"]).sealed)
    engine.hold.set()
    assert (await asked).choices[0].message.content == "ok0"
    assert len((await finishing)["rows"]) == 1


async def test_weights_that_abort_calls_leave_them_untrained(
    door: Any, engine: Any, until: Any
) -> None:
    engine.hold = asyncio.Event()
    opened = await door.open()
    asked = asyncio.create_task(door.client(opened).chat.completions.create(**CHAT))
    await until(lambda: engine.requests)
    change = {"version": "2", "mode": "abort"}
    await door.admin("POST", "/admin/weights", change)
    with pytest.raises(openai.InternalServerError, match="weights changed"):
        await asked
    engine.hold.set()
    reply = await door.client(opened).chat.completions.create(**CHAT)
    assert reply.choices[0].message.content == "ok0"
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 1
    assert finished["rows"][0]["weight_versions"][0][0] == "2"


async def test_silent_whole_answers_are_kept_alive_with_white_space(
    make_door: Any, engine: Any
) -> None:
    door = await make_door(keep_alive_s=0.1)
    engine.hold = asyncio.Event()
    opened = await door.open()
    async with door.http.post(opened["base_url"] + "/chat/completions", json=CHAT) as reply:
        assert reply.status == 200
        assert await reply.content.readany() == b" "
        engine.hold.set()
        rest = await reply.read()
    assert rest.strip().startswith(b'{"id"')
    engine.hold = asyncio.Event()
    task = asyncio.create_task(door.client(opened).chat.completions.create(**CHAT))
    await asyncio.sleep(0.3)
    engine.hold.set()
    assert (await task).choices[0].message.content == "ok0"
    assert (await door.finish(opened))["count"]["trained_turns"] == 2


async def test_silent_streams_are_kept_alive_with_comments(make_door: Any, engine: Any) -> None:
    door = await make_door(keep_alive_s=0.1)
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    opened = await door.open()
    async with door.http.post(
        opened["base_url"] + "/chat/completions", json={**CHAT, "stream": True}
    ) as reply:
        seen = b""
        while b": keep-alive\n\n" not in seen:
            seen += await reply.content.readany()
        engine.hold.set()
        seen += await reply.read()
    assert seen.endswith(b"data: [DONE]\n\n")


async def test_error_after_keep_alive_breaks_the_connection(make_door: Any, engine: Any) -> None:
    door = await make_door(keep_alive_s=0.1)
    engine.hold = asyncio.Event()
    engine.leave_out = {"logprobs"}
    opened = await door.open()
    task = asyncio.create_task(door.client(opened).chat.completions.create(**CHAT))
    await asyncio.sleep(0.3)
    engine.hold.set()
    with pytest.raises(openai.APIConnectionError):
        await task


async def test_stream_is_on_only_when_the_body_says_so(door: Any) -> None:
    opened = await door.open()
    async with door.http.post(
        opened["base_url"] + "/chat/completions",
        json=CHAT,
        headers={"accept": "text/event-stream"},
    ) as reply:
        assert reply.content_type == "application/json"
