"""Token-in/token-out with real tokenizers: clients change their history, the row stays one."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from typing import Any

import golden_make as make
import numpy as np
import openai
import pytest
from fake_tokens import FakeTokens

from agentcore_rl_toolkit.cli.gateway import announce, with_tokenizers
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.engines.experts import load_experts
from agentcore_rl_toolkit.gateway.text.parse import PARSE_FAILED
from agentcore_rl_toolkit.gateway.text.render import Renderer, Talk

QWEN = make.FAMILIES["qwen3"]
USER = [{"role": "user", "content": "Weather in Köln?"}]


@pytest.fixture
async def tokens() -> AsyncIterator[FakeTokens]:
    async with FakeTokens() as fake:
        yield fake


@pytest.fixture
def renderer() -> Renderer:
    found: Renderer = make.make_renderer(QWEN)
    return found


@pytest.fixture
async def qwen(make_door: Any, tokens: FakeTokens, renderer: Renderer) -> Any:
    spec = ModelSpec("policy", (f"vllm-generate:{tokens.url}",), tokenizer=renderer)
    return await make_door([spec])


def say(tokens: FakeTokens, renderer: Renderer, text: str) -> list[int]:
    """What the engine samples next."""
    tokens.sampled = make.sampled(QWEN, renderer.tokenizer, text, "<|im_end|>")
    return tokens.sampled


def call_of(**arguments: Any) -> str:
    body = {"name": "weather", "arguments": arguments}
    return f"<think>\nhm {arguments}\n</think>\n\nLet me see.\n<tool_call>\n{json.dumps(body)}\n</tool_call>"  # noqa: E501


def rewritten(message: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], str]:
    """A message as some client sends it back, and the id of its call."""
    out = {k: v for k, v in message.items() if v is not None}
    if rng.random() < 0.7:
        out.pop("reasoning_content", None)
    (call,) = out["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    pairs = list(arguments.items())
    rng.shuffle(pairs)
    indent, ascii_ = rng.choice([None, 2]), rng.random() < 0.5
    function = {"arguments": json.dumps(dict(pairs), indent=indent, ensure_ascii=ascii_)}
    function["name"] = call["function"]["name"]
    call_id = rng.choice([call["id"], "call_renamed"])
    out["tool_calls"] = [{"type": "function", "function": function, "id": call_id}]
    out["content"] = rng.choice(
        [out["content"], [{"type": "text", "text": out["content"]}], out["content"].strip()]
    )
    keys = list(out)
    rng.shuffle(keys)
    return {key: out[key] for key in keys}, call_id


@pytest.mark.parametrize("seed", range(12))
async def test_a_client_that_rewrites_its_history_continues_its_own_turn(
    qwen: Any, tokens: FakeTokens, renderer: Renderer, seed: int
) -> None:
    rng = random.Random(seed)
    opened = await qwen.open()
    client = qwen.client(opened)
    messages: list[dict[str, Any]] = list(USER)
    sampled = []
    for turn in range(4):
        sampled.append(say(tokens, renderer, call_of(place=f"Köln {turn}", days=turn)))
        reply = await client.chat.completions.create(
            model="policy", messages=messages, tools=make.TOOLS
        )
        message, call_id = rewritten(reply.choices[0].message.model_dump(), rng)
        result = {"role": "tool", "tool_call_id": call_id, "content": f"{turn} degrees"}
        messages = [*messages, message, result]
        if rng.random() < 0.3:
            messages.append({"role": "user", "content": "And then?"})
    finished = await qwen.finish(opened)
    (row,) = finished["rows"]
    trained = [i for i, mask in zip(row["token_ids"], row["loss_mask"], strict=True) if mask]
    assert trained == [i for ids in sampled for i in ids]
    assert finished["drift"]["clean"] == 3


async def deltas(stream: Any) -> AsyncIterator[tuple[str, Any]]:
    async for chunk in stream:
        for choice in chunk.choices:
            told = choice.delta.model_dump(exclude_none=True)
            for kind in ("reasoning_content", "content", "tool_calls"):
                if told.get(kind):
                    yield kind, told[kind]


async def test_deltas_come_while_the_engine_samples(
    qwen: Any, tokens: FakeTokens, renderer: Renderer
) -> None:
    text = "<think>\nlook\n</think>\n\nOne \N{SUN BEHIND CLOUD}." + 2 * make.JSON_CALL + " Wait."
    ids = say(tokens, renderer, text)
    tokens.gates = [len(ids) - 20]
    stream = await qwen.client(await qwen.open()).chat.completions.create(
        model="policy", messages=USER, tools=make.TOOLS, stream=True
    )
    seen: dict[str, Any] = {"reasoning_content": "", "content": "", "tool_calls": []}
    async for kind, part in deltas(stream):
        seen[kind] += part
        if kind == "tool_calls" and part[0]["index"] == 1 and "id" not in part[0]:
            tokens.gate.set()  # the second call's arguments have begun, nothing is complete yet
    assert seen["reasoning_content"] == "look"
    assert seen["content"] == "One \N{SUN BEHIND CLOUD}. Wait."
    calls = seen["tool_calls"]
    assert [call["index"] for call in calls if "id" in call] == [0, 1]
    for index in (0, 1):
        pieces = [c["function"]["arguments"] for c in calls if c["index"] == index]
        assert len(pieces) > 5
        assert json.loads("".join(pieces)) == make.ARGUMENTS


async def test_reasoning_is_not_told_to_a_client_that_wants_none(
    qwen: Any, tokens: FakeTokens, renderer: Renderer
) -> None:
    say(tokens, renderer, "<think>\nlook\n</think>\n\nOne.")
    client = qwen.client(await qwen.open())
    extra = {"include_reasoning": False}
    reply = await client.chat.completions.create(model="policy", messages=USER, extra_body=extra)
    message = reply.choices[0].message.model_dump(exclude_none=True)
    assert (message["content"], "reasoning_content" in message) == ("One.", False)


async def test_a_model_that_speaks_another_format_is_an_error_in_the_end(
    make_door: Any, tokens: FakeTokens, renderer: Renderer
) -> None:
    engines = (f"vllm-generate:{tokens.url}",)
    qwen = await make_door([ModelSpec("policy", engines, tokenizer=renderer, max_parse_failures=3)])
    opened = await qwen.open()
    client = qwen.client(opened)
    ask = {"model": "policy", "messages": USER, "tools": make.TOOLS}
    say(tokens, renderer, '[TOOL_CALLS][{"name": "weather"}]')
    for _ in range(2):
        reply = await client.chat.completions.create(**ask)
        assert reply.choices[0].message.content.startswith("[TOOL_CALLS]")
    with pytest.raises(openai.InternalServerError, match="renderer of its family"):
        await client.chat.completions.create(**ask)
    (shown,) = (await qwen.admin("GET", "/admin/models"))["models"]
    assert (shown["renderer"], shown["parse_failures"]) == ("qwen3", 3)
    row = (await qwen.finish(opened))["rows"][0]
    assert row["metadata"]["flags"] == [PARSE_FAILED]


async def test_the_engine_is_told_where_the_family_ends_an_answer(
    qwen: Any, tokens: FakeTokens, renderer: Renderer
) -> None:
    say(tokens, renderer, "x")
    await qwen.client(await qwen.open()).chat.completions.create(model="policy", messages=USER)
    assert tokens.requests[0]["sampling_params"]["stop_token_ids"] == sorted(renderer.stop_ids)


async def test_template_options_choose_a_variant_of_the_family(
    qwen: Any, tokens: FakeTokens, renderer: Renderer
) -> None:
    say(tokens, renderer, "x")
    client = qwen.client(await qwen.open())
    options = {"chat_template_kwargs": {"enable_thinking": False}}
    await client.chat.completions.create(model="policy", messages=USER, extra_body=options)
    asked = renderer.decode(tokens.requests[0]["token_ids"])
    assert asked.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    options = {"chat_template_kwargs": {"enable_thinkin": False}}
    with pytest.raises(openai.BadRequestError, match="enable_thinkin"):
        await client.chat.completions.create(model="policy", messages=USER, extra_body=options)


@pytest.mark.parametrize("offered", [True, False], ids=["offered", "not offered"])
async def test_vllm_with_a_tokenizer_is_asked_with_ids_if_it_takes_them(
    make_door: Any, engine: Any, tokens: FakeTokens, renderer: Renderer, offered: bool
) -> None:
    url = tokens.url if offered else engine.url
    door = await make_door([ModelSpec("policy", (f"vllm:{url}",), tokenizer=renderer)])
    (shown,) = (await door.admin("GET", "/admin/models"))["models"]
    assert shown["engines"][0]["kind"] == ("vllm-generate" if offered else "vllm")


@pytest.mark.parametrize("kind", ["vllm-generate", "sglang"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_routed_experts_become_bytes_of_the_turn(
    make_door: Any, tokens: FakeTokens, renderer: Renderer, kind: str, stream: bool
) -> None:
    used = np.arange(5 * 2 * 3).reshape(5, 2, 3) % 128
    tokens.experts = used
    spec = ModelSpec("policy", (f"{kind}:{tokens.url}",), tokenizer=renderer, experts=True)
    door = await make_door([spec])
    say(tokens, renderer, "xy")
    opened = await door.open()
    reply = await door.client(opened).chat.completions.create(
        model="policy", messages=USER, stream=stream
    )
    if stream:
        _ = [chunk async for chunk in reply]
    (turn,) = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert turn.routed_experts is not None
    found = load_experts(turn.routed_experts, layers=2, top_k=3)
    assert np.array_equal(found, used)


async def test_only_experts_of_what_is_new_are_asked_for(
    make_door: Any, tokens: FakeTokens, renderer: Renderer
) -> None:
    engines = (f"vllm-generate:{tokens.url}",)
    door = await make_door([ModelSpec("policy", engines, tokenizer=renderer, experts=True)])
    ids = say(tokens, renderer, "xy")
    client = door.client(await door.open())
    await client.chat.completions.create(model="policy", messages=USER)
    messages = [*USER, {"role": "assistant", "content": "xy"}, USER[0]]
    await client.chat.completions.create(model="policy", messages=messages)
    first, second = tokens.requests
    assert first["routed_experts_prompt_start"] == 0
    assert second["routed_experts_prompt_start"] == len(first["token_ids"]) + len(ids)


def test_tokenizers_are_named_for_one_model_or_for_all_that_are_trained() -> None:
    models = [ModelSpec.parse(t) for t in ("a=vllm:http://x", "b!=vllm:http://x")]
    assert [m.tokenizer for m in with_tokenizers(models, ["/m"], None)] == ["/m", None]
    assert [m.tokenizer for m in with_tokenizers(models, ["b=/m"], None)] == [None, "/m"]
    assert [m.renderer for m in with_tokenizers(models, ["/m"], "qwen3")] == ["qwen3", None]
    with pytest.raises(ConfigError, match="no model is named c"):
        with_tokenizers(models, ["c=/m"], None)
    with pytest.raises(ConfigError, match="needs --tokenizer"):
        with_tokenizers(models, [], "qwen3")


async def test_the_start_up_lines_say_which_renderer_is_used(qwen: Any, capsys: Any) -> None:
    announce(qwen.gateway)
    assert "token ids by renderer qwen3" in " ".join(capsys.readouterr().out.split())


def test_a_role_that_the_model_has_no_word_for_is_not_left_out(renderer: Renderer) -> None:
    def rendered(role: str) -> bytes:
        messages = [{"role": role, "content": "Be brief."}, *USER]
        raw = [json.dumps(message).encode() for message in messages]
        return renderer.render(Talk(raw, role=renderer.role))

    assert rendered("developer") == rendered("system")
    with pytest.raises(ValueError, match="'usr' is not known: use system, user, assistant, tool"):
        rendered("usr")
