"""The thinnest whole path: the OpenAI SDK, the gateway, a scripted engine, rows."""

from __future__ import annotations

import json
from typing import Any

import fake_vllm
import numpy as np
import openai
import pytest

USER = [{"role": "user", "content": "hi"}]


async def test_answer_is_captured_exactly(door: Any, engine: Any) -> None:
    engine.answer = lambda body, choice: "hello"
    opened = await door.open(rollout_id="r1", group_id="g1")
    reply = await door.client(opened).chat.completions.create(model="policy", messages=USER)
    assert reply.choices[0].message.content == "hello"
    finished = await door.finish(opened)
    (row,) = finished["rows"]
    prompt = fake_vllm.render(USER)
    assert row["token_ids"] == prompt + fake_vllm.encode("hello")
    assert row["loss_mask"] == [0] * len(prompt) + [1] * 5
    expected = [0.0] * len(prompt) + [fake_vllm.logprob(i) for i in range(5)]
    assert np.allclose(row["logprobs"], expected)
    assert (row["rollout_id"], row["group_id"]) == ("r1", "g1")


async def test_what_capture_needs_is_forced_upstream_and_stripped_from_the_answer(
    door: Any, engine: Any
) -> None:
    opened = await door.open()
    async with door.http.post(
        opened["base_url"] + "/chat/completions",
        json={"model": "policy", "messages": USER, "logprobs": False, "temperature": None},
    ) as reply:
        answer = await reply.json()
    sent = engine.requests[0]
    assert sent["logprobs"] is True
    assert sent["return_token_ids"] is True
    assert sent["model"] == "tiny"
    assert "temperature" not in sent
    assert "prompt_token_ids" not in answer
    assert "token_ids" not in answer["choices"][0]
    assert answer["choices"][0]["logprobs"] is None
    assert "kv_transfer_params" in answer, "what was not added is relayed as it came"


async def test_client_gets_what_it_asked_for(door: Any) -> None:
    opened = await door.open()
    reply = await door.client(opened).chat.completions.create(
        model="policy", messages=USER, logprobs=True, extra_body={"return_token_ids": True}
    )
    choice = reply.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content[0].logprob == fake_vllm.logprob(0)
    assert choice.model_extra["token_ids"] == fake_vllm.encode("ok0")


@pytest.mark.parametrize("spaced", [True, False], ids=["data with a space", "data without"])
async def test_stream_is_relayed_and_captured(door: Any, engine: Any, spaced: bool) -> None:
    engine.spaced = spaced
    engine.answer = lambda body, choice: "a\u2028b\u0085c"
    opened = await door.open()
    stream = await door.client(opened).chat.completions.create(
        model="policy", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "a\u2028b\u0085c"
    assert chunks[-1].usage is not None
    assert not any("token_ids" in (c.model_extra or {}) for chunk in chunks for c in chunk.choices)
    (row,) = (await door.finish(opened))["rows"]
    assert row["token_ids"][-5:] == fake_vllm.encode("a\u2028b\u0085c")


async def test_turns_of_a_conversation_make_one_row(door: Any, engine: Any) -> None:
    opened = await door.open()
    client = door.client(opened)
    messages: list[Any] = [{"role": "system", "content": "s" * 3000}]
    for turn in range(4):
        engine.answer = lambda body, choice, turn=turn: f"answer {turn}"
        messages.append({"role": "user", "content": f"question {turn}"})
        stream = turn % 2 == 1
        reply = await client.chat.completions.create(
            model="policy", messages=messages, stream=stream
        )
        if stream:
            parts = [c.choices[0].delta.content or "" async for c in reply if c.choices]
            text = "".join(parts)
        else:
            text = reply.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
    finished = await door.finish(opened)
    (row,) = finished["rows"]
    assert len(row["turns"]) == 4
    assert sum(row["loss_mask"]) == 4 * len("answer 0")
    assert row["token_ids"] == fake_vllm.render(messages[:-1]) + fake_vllm.encode("answer 3")
    assert finished["drift"]["clean"] == 3


async def test_streamed_tool_calls_are_assembled(door: Any, engine: Any) -> None:
    engine.tool_call = {
        "id": "call-1",
        "type": "function",
        "function": {"name": "calculator", "arguments": '{"expression": "9+8"}'},
    }
    opened = await door.open()
    client = door.client(opened)
    stream = await client.chat.completions.create(model="policy", messages=USER, stream=True)
    arguments = ""
    async for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or ():
            arguments += call.function.arguments or ""
    assert json.loads(arguments) == {"expression": "9+8"}
    session = door.gateway.sessions.by_id(opened["session_id"])
    message = json.loads(session.graph.turns()[0].response)
    assert message["tool_calls"] == [engine.tool_call]
    assert message["content"] is None


async def test_reasoning_that_was_not_wanted_is_hidden_but_captured(door: Any, engine: Any) -> None:
    engine.reasoning = "because"
    opened = await door.open()
    reply = await door.client(opened).chat.completions.create(
        model="policy", messages=USER, extra_body={"include_reasoning": False}
    )
    assert engine.requests[0]["include_reasoning"] is True
    assert "reasoning" not in (reply.choices[0].message.model_extra or {})


async def test_base_urls_work_with_and_without_v1_and_with_the_key_as_api_key(door: Any) -> None:
    opened = await door.open()
    url = door.gateway.url
    places = [
        {"base_url": opened["base_url"]},
        {"base_url": opened["base_url"].removesuffix("/v1")},
        {"base_url": url + "/v1", "api_key": opened["key"]},
        {"base_url": url, "api_key": opened["key"]},
    ]
    for i, place in enumerate(places):
        client = door.client(opened, **place)
        messages = [{"role": "user", "content": str(i)}]
        await client.chat.completions.create(model="policy", messages=messages)
        models = await client.models.list()
        assert [model.id for model in models.data] == ["policy"]
    assert (await door.finish(opened))["turns"] == 4


async def test_unknown_keys_are_refused(door: Any) -> None:
    opened = await door.open()
    client = door.client(opened, base_url=door.gateway.url + "/v1", api_key="guess")
    with pytest.raises(openai.AuthenticationError, match="no such session key"):
        await client.chat.completions.create(model="policy", messages=USER)
    client = door.client(opened, base_url=f"{door.gateway.url}/sessions/{opened['session_id']}/v1")
    with pytest.raises(openai.AuthenticationError):
        await client.chat.completions.create(model="policy", messages=USER)
    async with door.http.get(door.gateway.url + "/sessions") as reply:
        assert reply.status == 401
    async with door.http.get(door.gateway.url + "/health") as reply:
        assert (await reply.json())["status"] == "ok"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_large_prompts_are_captured_in_steps(door: Any, stream: bool) -> None:
    opened = await door.open()
    client = door.client(opened)
    messages: list[Any] = [{"role": "user", "content": "long " * 10_000}]
    for _ in range(2):
        reply = await client.chat.completions.create(
            model="policy", messages=messages, stream=stream
        )
        if stream:
            [chunk async for chunk in reply]
        messages += [{"role": "assistant", "content": "ok0"}, {"role": "user", "content": "more"}]
    (row,) = (await door.finish(opened))["rows"]
    assert row["token_ids"] == fake_vllm.render(messages[:-2]) + fake_vllm.encode("ok0")
