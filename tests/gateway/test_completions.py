"""``/v1/completions``, and several choices in one call."""

from __future__ import annotations

from typing import Any

import fake_vllm
import openai
import pytest


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("abc", id="text"),
        pytest.param([97, 98, 99], id="token ids"),
        pytest.param(["abc"], id="a list of one text"),
        pytest.param([[97, 98, 99]], id="a list of one id list"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_completion_is_captured(door: Any, prompt: Any, stream: bool) -> None:
    opened = await door.open()
    client = door.client(opened)
    reply = await client.completions.create(model="policy", prompt=prompt, stream=stream)
    if stream:
        text = "".join([chunk.choices[0].text async for chunk in reply])
    else:
        text = reply.choices[0].text
        assert reply.choices[0].logprobs is None
    assert text == "ok0"
    (row,) = (await door.finish(opened))["rows"]
    assert row["token_ids"] == [97, 98, 99, *fake_vllm.encode("ok0")]
    assert row["loss_mask"] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "extra",
    [{"echo": True}, {"best_of": 3}, {"suffix": "x"}, {"prompt": ["a", "b"]}, {"prompt": 1}],
    ids=str,
)
async def test_what_cannot_be_captured_is_refused(door: Any, engine: Any, extra: Any) -> None:
    opened = await door.open()
    body = {"model": "policy", "prompt": "abc", **extra}
    async with door.http.post(opened["base_url"] + "/completions", json=body) as reply:
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == next(iter(extra))
    assert engine.requests == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_several_choices_become_branches(door: Any, stream: bool) -> None:
    opened = await door.open()
    messages = [{"role": "user", "content": "hi"}]
    client = door.client(opened)
    reply = await client.chat.completions.create(
        model="policy", messages=messages, n=3, stream=stream
    )
    texts = ["", "", ""]
    if stream:
        async for chunk in reply:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        texts = [choice.message.content for choice in reply.choices]
    assert texts == ["ok0", "ok1", "ok2"]
    finished = await door.finish(opened)
    assert finished["turns"] == 3
    prompt = fake_vllm.render(messages)
    rows = sorted(row["token_ids"] for row in finished["rows"])
    assert rows == [prompt + fake_vllm.encode(text) for text in texts]


async def test_fewer_choices_than_asked_for_is_an_error(door: Any, engine: Any) -> None:
    opened = await door.open()
    answer = '{"id":"x","choices":[],"prompt_token_ids":[1]}'
    engine.fail = [(200, answer, {"content-type": "application/json"})]
    with pytest.raises(openai.InternalServerError, match="asked for 1 choices"):
        await door.client(opened).chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "x"}]
        )
