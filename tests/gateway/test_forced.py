"""Which calls a client allows, on engines that take ids.

A forced call is begun by the prompt, never trained, and read as one with what follows. Where one
call at a time is wanted, what was sampled is told all the same, and the row says so.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import golden_make as make
import numpy as np
import openai
import pytest
from fake_tokens import FakeTokenizer, FakeTokens

from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.dialects.chat import CHAT
from agentcore_rl_toolkit.gateway.engines.answer import Growing, Tokens
from agentcore_rl_toolkit.gateway.fault import Refusal
from agentcore_rl_toolkit.gateway.text.forced import find_opening
from agentcore_rl_toolkit.gateway.text.render import Renderer, render_prompt

QWEN = make.FAMILIES["qwen3"]
USER = [{"role": "user", "content": "Weather in Köln?"}]
OTHER = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
BOTH = [*make.TOOLS, OTHER]
NO_VOCABULARY = "litellm is not installed, whose copy of the vocabulary of gpt-oss is used"
ALL = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "gpt-oss" and make.harmony_vocabulary() is None, reason=NO_VOCABULARY
        ),
    )
    for name in sorted(make.FAMILIES)
]
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture
async def tokens() -> AsyncIterator[FakeTokens]:
    async with FakeTokens() as fake:
        yield fake


@pytest.fixture
async def qwen(make_door: Any, tokens: FakeTokens) -> Any:
    renderer = make.make_renderer(QWEN)
    return await make_door(
        [ModelSpec("policy", (f"vllm-generate:{tokens.url}",), tokenizer=renderer)]
    )


def say(tokens: FakeTokens, text: str) -> list[int]:
    tokenizer = make.make_tokenizer(QWEN)
    tokens.sampled = make.sampled(QWEN, tokenizer, text, "<|im_end|>")
    return tokens.sampled


async def asked(renderer: Renderer, choice: Any, tools: Any = BOTH) -> Any:
    """A request, rendered."""
    body = {"model": "m", "messages": USER, "tools": tools, "tool_choice": choice}
    ask = CHAT.parse(json.dumps(body).encode())
    ask.prompt = await render_prompt(renderer, ask)
    return ask


def written(renderer: Renderer, arguments: dict[str, Any]) -> str:
    """What the family itself writes for a call, up to the end of the answer."""
    call = {"id": "functions.weather:0", "type": "function"}
    call["function"] = {"name": "weather", "arguments": arguments}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = renderer.written([*USER, message], None, ask=False)
    for end in renderer.end_ids:
        text = text.removesuffix("\n").removesuffix(renderer.decode([end]))
    return text


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["by name", "any"])
@pytest.mark.parametrize("name", ALL)
async def test_every_family_begins_the_call_as_it_writes_it_itself(name: str, choice: Any) -> None:
    family = make.FAMILIES[name]
    renderer = make.make_renderer(family)
    ask = await asked(renderer, choice)
    opening = renderer.decode(np.frombuffer(ask.begun, np.int32).tolist())
    full = written(renderer, make.ARGUMENTS)
    mark = opening.lstrip().removeprefix("</think>").lstrip()
    assert mark in full
    rest = full[full.index(mark) + len(mark) :]
    end = family.end_call or family.end
    ids = make.sampled(family, renderer.tokenizer, rest, end)
    answer = Growing(ask, renderer, 0, "call")
    for token in ids:
        answer.add(Tokens(0, [token], [-1.0]))
    answer.add(Tokens(0, [], [], "stop"))
    answer.end()
    (call,) = answer.message["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == make.ARGUMENTS
    sealed = answer.seal()
    assert (sealed.flags, sealed.finish_reason) == ([], "tool_calls")
    assert np.frombuffer(sealed.sampled, np.int32).tolist() == ids, "the opening is not sampled"
    assert sealed.prompt is not None
    assert sealed.prompt.endswith(ask.begun)


def trained(row: dict[str, Any]) -> list[int]:
    return [i for i, mask in zip(row["token_ids"], row["loss_mask"], strict=True) if mask]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_forced_call_goes_on_in_the_same_row(
    qwen: Any, tokens: FakeTokens, stream: bool
) -> None:
    opened = await qwen.open()
    client = qwen.client(opened)
    first = say(tokens, ' {"place": "Köln"}}\n</tool_call>')
    reply = await client.chat.completions.create(
        model="policy", messages=USER, tools=BOTH, tool_choice=NAMED, stream=stream
    )
    if stream:
        parts = [p for c in [c async for c in reply] for p in c.choices[0].delta.tool_calls or ()]
        name, call_id = parts[0].function.name, parts[0].id
        arguments = "".join(part.function.arguments for part in parts)
    else:
        (call,) = reply.choices[0].message.tool_calls
        name, call_id, arguments = call.function.name, call.id, call.function.arguments
    assert (name, json.loads(arguments)) == ("weather", {"place": "Köln"})
    function = {"name": name, "arguments": arguments}
    said = {"role": "assistant", "content": None}
    said["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": call_id, "content": "24 degrees"}
    second = say(tokens, "<think>\n\n</think>\n\nWarm.")
    await client.chat.completions.create(model="policy", messages=[*USER, said, result], tools=BOTH)
    finished = await qwen.finish(opened)
    (row,) = finished["rows"]
    assert trained(row) == first + second
    assert finished["drift"]["clean"] == 1


async def test_anthropic_and_responses_force_calls_as_well(qwen: Any, tokens: FakeTokens) -> None:
    say(tokens, ' {"place": "Köln"}}\n</tool_call>')
    opened = await qwen.open()
    function = make.TOOLS[0]["function"]
    tool = {"name": "weather", "input_schema": function["parameters"]}
    async with anthropic.AsyncAnthropic(
        base_url=opened["anthropic_base_url"], api_key="x", max_retries=0
    ) as client:
        for choice in ({"type": "tool", "name": "weather"}, {"type": "any"}):
            told = await client.messages.create(
                model="policy", max_tokens=50, messages=USER, tools=[tool], tool_choice=choice
            )
            assert [block.type for block in told.content] == ["tool_use"]
            assert told.content[0].input == {"place": "Köln"}
    response = await qwen.client(opened).responses.create(
        model="policy",
        input="Weather in Köln?",
        tools=[{"type": "function", **function}],
        tool_choice={"type": "function", "name": "weather"},
    )
    (item,) = response.output
    assert (item.type, item.name) == ("function_call", "weather")
    asked = {tuple(request["token_ids"]) for request in tokens.requests}
    renderer = make.make_renderer(QWEN)
    assert all(renderer.decode(ids).endswith('"weather", "arguments":') for ids in asked)


async def test_where_no_call_may_be_made_there_is_none_and_the_row_stays_one(
    qwen: Any, tokens: FakeTokens
) -> None:
    opened = await qwen.open()
    client = qwen.client(opened)
    messages: list[Any] = list(USER)
    sampled = []
    for choice in ("auto", "none", "auto"):
        sampled.append(say(tokens, make.JSON_CALL if choice == "none" else "Hm."))
        reply = await client.chat.completions.create(
            model="policy", messages=messages, tools=BOTH, tool_choice=choice
        )
        message = reply.choices[0].message
        assert message.tool_calls is None
        assert message.content == (make.JSON_CALL if choice == "none" else "Hm.")
        messages += [{"role": "assistant", "content": message.content}, USER[0]]
    finished = await qwen.finish(opened)
    (row,) = finished["rows"]
    assert trained(row) == [i for ids in sampled for i in ids]
    assert row["metadata"].get("flags") in (None, [])


@pytest.mark.parametrize(
    ("choice", "tools", "words"),
    [
        pytest.param({"type": "function", "function": {"name": "x"}}, BOTH, "names 'x'", id="name"),
        pytest.param("required", [], "there are no 'tools'", id="no tools"),
        pytest.param({"type": "allowed_tools"}, BOTH, "or name a function", id="another kind"),
        pytest.param("sometimes", BOTH, "or name a function", id="another word"),
    ],
)
async def test_what_cannot_be_forced_is_a_400(choice: Any, tools: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words) as raised:
        await asked(make.make_renderer(QWEN), choice, tools)
    assert raised.value.status == 400


class Plain(FakeTokenizer):
    """A template that knows no calls."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        bare = [{**message, "tool_calls": None} for message in conversation]
        return super().apply_chat_template(bare, **options)


async def test_a_model_whose_calls_are_not_known_refuses_to_force_one() -> None:
    renderer = Renderer(Plain())
    assert find_opening(renderer, None) is None
    with pytest.raises(Refusal, match="only be 'auto' or 'none' here"):
        await asked(renderer, "required")


async def test_a_family_that_counts_its_calls_goes_on_counting() -> None:
    renderer = make.make_renderer(make.FAMILIES["kimi-k2"])
    call = {"id": "functions.weather:0", "type": "function"}
    call["function"] = {"name": "weather", "arguments": "{}"}
    messages = [*USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "functions.weather:0", "content": "x"}]
    body = {"model": "m", "messages": messages, "tools": BOTH, "tool_choice": NAMED}
    ask = CHAT.parse(json.dumps(body).encode())
    await render_prompt(renderer, ask)
    opening = renderer.decode(np.frombuffer(ask.begun, np.int32).tolist())
    assert "functions.weather:1<" in opening


async def test_the_client_is_told_when_a_call_cannot_be_forced(
    make_door: Any, tokens: FakeTokens
) -> None:
    spec = ModelSpec("policy", (f"sglang:{tokens.url}",), tokenizer=Renderer(Plain()))
    door = await make_door([spec])
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        await door.client(await door.open()).chat.completions.create(
            model="policy", messages=USER, tools=BOTH, tool_choice="required"
        )
    assert tokens.requests == []


TWO_CALLS = make.JSON_CALL + "\n" + make.JSON_CALL


async def from_chat(door: Any, opened: Any, one_by_one: bool) -> int:
    more = {"parallel_tool_calls": False} if one_by_one else {}
    reply = await door.client(opened).chat.completions.create(
        model="policy", messages=USER, tools=BOTH, **more
    )
    return len(reply.choices[0].message.tool_calls)


async def from_stream(door: Any, opened: Any, one_by_one: bool) -> int:
    reply = await door.client(opened).chat.completions.create(
        model="policy", messages=USER, tools=BOTH, stream=True, parallel_tool_calls=not one_by_one
    )
    deltas = [chunk.choices[0].delta async for chunk in reply]
    return len({call.index for delta in deltas for call in delta.tool_calls or ()})


async def from_messages(door: Any, opened: Any, one_by_one: bool) -> int:
    tool = {"name": "weather", "input_schema": make.TOOLS[0]["function"]["parameters"]}
    async with anthropic.AsyncAnthropic(
        base_url=opened["anthropic_base_url"], api_key="x", max_retries=0
    ) as client:
        told = await client.messages.create(
            model="policy",
            max_tokens=500,
            messages=USER,
            tools=[tool],
            tool_choice={"type": "auto", "disable_parallel_tool_use": one_by_one},
        )
    return sum(block.type == "tool_use" for block in told.content)


async def from_responses(door: Any, opened: Any, one_by_one: bool) -> int:
    response = await door.client(opened).responses.create(
        model="policy",
        input="Weather in Köln?",
        tools=[{"type": "function", **make.TOOLS[0]["function"]}],
        parallel_tool_calls=not one_by_one,
    )
    return sum(item.type == "function_call" for item in response.output)


@pytest.mark.parametrize(
    ("text", "one_by_one", "flags"),
    [
        pytest.param(TWO_CALLS, True, ["parallel_calls"], id="two where one was wanted"),
        pytest.param(TWO_CALLS, False, [], id="two where they may be"),
        pytest.param(make.JSON_CALL, True, [], id="one where one was wanted"),
    ],
)
@pytest.mark.parametrize("ask", [from_chat, from_stream, from_messages, from_responses])
async def test_more_calls_than_wanted_are_told_as_sampled_and_flagged(
    qwen: Any, tokens: FakeTokens, ask: Any, text: str, one_by_one: bool, flags: list[str]
) -> None:
    sampled = say(tokens, text)
    opened = await qwen.open()
    assert await ask(qwen, opened, one_by_one) == text.count("</tool_call>")
    (row,) = (await qwen.finish(opened))["rows"]
    assert trained(row) == sampled
    assert row["metadata"]["flags"] == flags
