"""Log-probabilities and stop sequences as clients of engines that take ids get them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import golden_make as make
import openai
import pytest
from fake_tokens import FakeTokens

from agentcore_rl_toolkit.gateway import ModelSpec

QWEN = make.FAMILIES["qwen3"]
CHAT: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}
TEXT = "Grüße \N{SUN BEHIND CLOUD}"
RETRY = {"x-stainless-retry-count": "1"}


@pytest.fixture
async def tokens() -> AsyncIterator[FakeTokens]:
    async with FakeTokens() as fake:
        tokenizer = make.make_tokenizer(QWEN)
        letters = tokenizer.encode(TEXT, add_special_tokens=False)
        fake.sampled = [*letters, tokenizer.convert_tokens_to_ids("<|im_end|>")]
        yield fake


def models(tokens: FakeTokens, kind: str) -> list[ModelSpec]:
    return [ModelSpec("policy", (f"{kind}:{tokens.url}",), tokenizer=make.make_renderer(QWEN))]


@pytest.fixture(params=["sglang", "vllm-generate"])
async def door(request: Any, make_door: Any, tokens: FakeTokens) -> Any:
    return await make_door(models(tokens, request.param))


async def told(client: Any, stream: bool, **extra: Any) -> list[Any]:
    reply = await client.chat.completions.create(**CHAT, logprobs=True, stream=stream, **extra)
    if not stream:
        return list(reply.choices[0].logprobs.content)
    found = [c.choices[0].logprobs async for c in reply]
    return [entry for logprobs in found if logprobs for entry in logprobs.content]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_asks_gets_the_captured_values(
    door: Any, tokens: FakeTokens, stream: bool
) -> None:
    opened = await door.open()
    client = door.client(opened)
    entries = await told(client, stream, top_logprobs=0)
    assert [entry.logprob for entry in entries] == tokens.logprobs()
    assert bytes(b for entry in entries for b in entry.bytes).decode() == TEXT + "<|im_end|>"
    assert entries[0].token == "G"
    assert any(entry.token == "\ufffd" for entry in entries), "a part of a character"
    # the same again, from the journal
    door.gateway.shelf.drop(door.gateway.sessions.by_id(opened["session_id"]))
    again = await told(client, stream, top_logprobs=0, extra_headers=RETRY)
    assert again == entries
    assert len(tokens.requests) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_completions_have_them_in_their_own_shape(
    door: Any, tokens: FakeTokens, stream: bool
) -> None:
    client = door.client(await door.open())
    reply = await client.completions.create(
        model="policy", prompt="x", max_tokens=50, logprobs=0, stream=stream
    )
    found = [c.choices[0].logprobs async for c in reply] if stream else [reply.choices[0].logprobs]
    found = [logprobs for logprobs in found if logprobs]
    values = [value for one in found for value in one.token_logprobs]
    assert values == tokens.logprobs()
    pieces = [piece for one in found for piece in one.tokens]
    offsets = [offset for one in found for offset in one.text_offset]
    assert offsets == [len("".join(pieces[:at])) for at in range(len(pieces))]


async def test_who_did_not_ask_gets_none(door: Any) -> None:
    reply = await door.client(await door.open()).chat.completions.create(**CHAT)
    assert reply.choices[0].logprobs is None


async def test_values_of_other_tokens_are_refused(door: Any, tokens: FakeTokens) -> None:
    client = door.client(await door.open())
    with pytest.raises(openai.BadRequestError, match="sampled tokens only"):
        await told(client, False, top_logprobs=5)
    with pytest.raises(openai.BadRequestError, match="sampled tokens only"):
        await client.completions.create(model="policy", prompt="x", max_tokens=5, logprobs=3)
    assert tokens.requests == []


async def stopped(door: Any, opened: Any, stream: bool, **extra: Any) -> tuple[str, Any, Any]:
    async with anthropic.AsyncAnthropic(
        base_url=opened["anthropic_base_url"], api_key="x", max_retries=0
    ) as client:
        ask = {**CHAT, "max_tokens": 50, "stop_sequences": ["END"], **extra}
        if stream:
            async with client.messages.stream(**ask) as events:
                said = await events.get_final_message()
        else:
            said = await client.messages.create(**ask)
    return said.content[0].text, said.stop_reason, said.stop_sequence


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_stop_sequence_is_told_by_ids_again_and_from_a_recording(
    make_door: Any, tokens: FakeTokens, tmp_path: Path, stream: bool
) -> None:
    tokenizer = make.make_tokenizer(QWEN)
    tokens.sampled = tokenizer.encode("Warm. END", add_special_tokens=False)
    wanted = ("Warm. ", "stop_sequence", "END")
    door = await make_door(models(tokens, "vllm-generate"), run_dir=tmp_path / "recorded")
    opened = await door.open()
    assert await stopped(door, opened, stream) == wanted
    door.gateway.shelf.drop(door.gateway.sessions.by_id(opened["session_id"]))
    assert await stopped(door, opened, stream, extra_headers=RETRY) == wanted
    (row,) = (await door.finish(opened))["rows"]
    assert sum(row["loss_mask"]) == len(tokens.sampled), "the stop sequence was sampled, too"
    spec = ModelSpec("policy", (f"replay:{tmp_path / 'recorded'}#",))
    again = await make_door([spec], run_dir=tmp_path / "again")
    assert await stopped(again, await again.open(), stream) == wanted
    assert len(tokens.requests) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_stop_sequence_that_an_engine_tells_is_kept(
    make_door: Any, engine: Any, stream: bool
) -> None:
    engine.stop_reason = "END"
    door = await make_door()
    opened = await door.open()
    assert (await stopped(door, opened, stream))[1:] == ("stop_sequence", "END")
    door.gateway.shelf.drop(door.gateway.sessions.by_id(opened["session_id"]))
    assert (await stopped(door, opened, stream, extra_headers=RETRY))[1:] == (
        "stop_sequence",
        "END",
    )
    assert len(engine.requests) == 1
