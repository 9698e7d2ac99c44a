from __future__ import annotations

import asyncio

import pytest

from agentcore_rl_toolkit.runtime import answer, wire
from agentcore_rl_toolkit.runtime.answer import Answer, Answers


async def read(one: Answer) -> list[bytes]:
    one.readers += 1
    await one.until_head()
    return [chunk async for chunk in one.body()]


async def test_a_second_reader_gets_all_chunks_whenever_it_comes() -> None:
    one = Answer()
    early = asyncio.create_task(read(one))
    await asyncio.sleep(0)
    one.head(200, {})
    one.feed(b"a")
    middle = asyncio.create_task(read(one))
    await asyncio.sleep(0)
    one.feed(b"b")
    one.finish()
    assert await early == await middle == await read(one) == [b"a", b"b"]


async def test_a_refusal_is_given_to_all_who_wait() -> None:
    one = Answer()
    waiting = [asyncio.create_task(read(one)) for _ in range(3)]
    await asyncio.sleep(0)
    one.finish(wire.runtime_error("no"))
    for reader in waiting:
        with pytest.raises(wire.WireError, match="no"):
            await reader


async def test_an_answer_that_broke_off_does_not_look_complete() -> None:
    one = Answer()
    one.head(200, {})
    one.feed(b"half")
    reader = asyncio.create_task(read(one))
    await asyncio.sleep(0)
    one.finish(wire.runtime_error("died"))
    with pytest.raises(ConnectionError):
        await reader


async def test_a_large_answer_is_not_kept_unless_somebody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer, "KEEP_BYTES", 10)
    one = Answer()
    one.head(200, {})
    one.feed(b"x" * 11)
    one.finish()
    assert one.held == 0
    with pytest.raises(wire.WireError, match="too large to repeat"):
        await read(one)
    other = Answer()
    reader = asyncio.create_task(read(other))
    await asyncio.sleep(0)
    other.head(200, {})
    other.feed(b"x" * 11)
    other.finish()
    assert await reader == [b"x" * 11]


async def test_old_answers_make_room_and_open_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "KEEP_TOTAL_BYTES", 25)
    answers = Answers()
    pending = answers.open("open")
    for key in "abc":
        one = answers.open(key)
        one.head(200, {})
        one.feed(b"x" * 10)
        one.finish()
        answers.keep(key)
    assert answers.find("a") is None
    assert answers.find("b") is not None
    assert answers.find("open") is pending
    monkeypatch.setattr(answer, "KEEP_S", -1.0)
    last = answers.open("d")
    last.finish()
    answers.keep("d")
    assert [answers.find(key) for key in "bcd"] == [None, None, None]
