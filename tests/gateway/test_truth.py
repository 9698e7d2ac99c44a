"""Whatever agents do, what they were given is trained exactly once and nothing else is."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from typing import Any

import fake_vllm
import openai
import pytest

HANG = "please hang"


class Rambler:
    """An agent that talks in several conversations at once, and not always nicely."""

    def __init__(self, door: Any, opened: Any, seed: int) -> None:
        self.rng = random.Random(seed)
        self.client = door.client(opened)
        self.delivered: Counter[str] = Counter()

    async def run(self) -> None:
        await asyncio.gather(*(self._conversation(i) for i in range(3)))

    async def _conversation(self, number: int) -> None:
        messages: list[Any] = [{"role": "system", "content": f"agent {number} " + "x" * 1500}]
        for turn in range(4):
            messages.append({"role": "user", "content": f"turn {turn}"})
            move = self.rng.choice(["go", "go", "stream", "choices", "again", "hang", "rewrite"])
            if move == "hang":
                await self._hang(messages)
                continue
            texts = await self._ask(
                messages, stream=move == "stream", n=2 if move == "choices" else 1
            )
            if move == "again":
                texts = await self._ask(messages, retry=True) or texts
            messages.append({"role": "assistant", "content": self.rng.choice(texts)})
            if move == "rewrite":
                messages[1:] = [{"role": "user", "content": f"summary {turn}"}]
                await self._ask(messages)

    async def _ask(
        self, messages: list[Any], stream: bool = False, n: int = 1, retry: bool = False
    ) -> list[str]:
        headers = {"x-stainless-retry-count": "1" if retry else "0"}
        reply = await self.client.chat.completions.create(
            model="policy", messages=messages, stream=stream, n=n, extra_headers=headers
        )
        if stream:
            texts = ["".join([c.choices[0].delta.content or "" async for c in reply])]
        else:
            texts = [choice.message.content for choice in reply.choices]
        if not retry:
            self.delivered.update(texts)
        return texts

    async def _hang(self, messages: list[Any]) -> None:
        stream = self.rng.random() < 0.5
        asked = [*messages[:-1], {"role": "user", "content": HANG}]
        try:
            async with asyncio.timeout(0.3):
                reply = await self.client.chat.completions.create(
                    model="policy", messages=asked, stream=stream
                )
                self.delivered.update([str([chunk async for chunk in reply])])
        except (openai.APIError, TimeoutError):
            pass


@pytest.mark.parametrize("seed", range(6))
async def test_every_delivered_answer_is_trained_exactly_once(
    make_door: Any, engine: Any, seed: int
) -> None:
    door = await make_door(retry_grace_s=0.05)
    numbers = itertools.count()
    engine.answer = lambda body, choice: f"answer {next(numbers)}."
    engine.hangs = lambda body: body["messages"][-1]["content"] == HANG
    opened = await door.open()
    rambler = Rambler(door, opened, seed)
    await rambler.run()
    finished = await door.finish(opened)
    trained: Counter[str] = Counter()
    for row in finished["rows"]:
        for index, _, start, end, _ in row["turns"]:
            assert set(row["turn_index"][start:end]) == {index}
            trained[fake_vllm.decode(row["token_ids"][start:end])] += 1
            assert all(row["loss_mask"][start:end])
        assert sum(row["loss_mask"]) == sum(span[3] - span[2] for span in row["turns"])
    assert trained == rambler.delivered
    assert set(trained.values()) == {1}
