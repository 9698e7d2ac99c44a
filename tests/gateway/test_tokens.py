"""Token-in/token-out: what was sampled is never tokenised again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from fake_tokens import END, FakeTokenizer, FakeTokens

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.text.assemble import parse
from agentcore_rl_toolkit.gateway.text.parse import PARSE_FAILED
from agentcore_rl_toolkit.gateway.text.render import Renderer

TOKENIZER = FakeTokenizer()
USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "calc", "parameters": {}}}]
KINDS = ["sglang", "vllm-generate"]


@pytest.fixture
async def tokens() -> AsyncIterator[FakeTokens]:
    async with FakeTokens() as fake:
        yield fake


@pytest.fixture(params=KINDS)
async def token_door(request: Any, make_door: Any, tokens: FakeTokens) -> Any:
    spec = ModelSpec("policy", (f"{request.param}:{tokens.url}",), tokenizer=Renderer(TOKENIZER))
    return await make_door([spec])


def chars(text: str) -> list[int]:
    """Ids that the tokenizer itself would not give: no merges."""
    return [ord(c) for c in text]


async def ask(door: Any, opened: Any, messages: Any, stream: bool = False, **extra: Any) -> Any:
    """The assistant message as the client sees it, and its finish reason."""
    client = door.client(opened)
    reply = await client.chat.completions.create(
        model="policy", messages=messages, stream=stream, **extra
    )
    if not stream:
        message = reply.choices[0].message.model_dump(exclude_none=True)
        return message, reply.choices[0].finish_reason
    message, reason = {"role": "assistant", "content": ""}, None
    calls: list[Any] = []
    async for chunk in reply:
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                assert call.index in (len(calls) - 1, len(calls)), "calls come in order"
                if call.index == len(calls):
                    calls.append(call.model_dump(exclude={"index"}))
                else:
                    calls[-1]["function"]["arguments"] += call.function.arguments
            reason = choice.finish_reason or reason
    if calls:
        message["tool_calls"] = calls
    return message, reason


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("cumulative", [False, True], ids=["deltas", "repeated"])
async def test_ids_that_do_not_retokenise_stay_as_sampled(
    token_door: Any, tokens: FakeTokens, stream: bool, cumulative: bool
) -> None:
    tokens.cumulative = cumulative
    opened = await token_door.open()
    messages: list[Any] = list(USER)
    sampled = []
    for turn in range(3):
        tokens.sampled = [*chars(f"ab hello {turn}"), 2]
        sampled.append(tokens.sampled)
        message, reason = await ask(token_door, opened, messages, stream)
        assert (message["content"], reason) == (f"ab hello {turn}", "stop")
        messages += [message, {"role": "user", "content": "ab more"}]
    finished = await token_door.finish(opened)
    (row,) = finished["rows"]
    assert finished["drift"]["clean"] == 2
    trained = [i for i, mask in zip(row["token_ids"], row["loss_mask"], strict=True) if mask]
    assert trained == [i for ids in sampled for i in ids]
    assert TOKENIZER.decode(row["token_ids"]) == (
        TOKENIZER.apply_chat_template(messages[:-1]).removesuffix("\n")
    )
    key = "input_ids" if "input_ids" in tokens.requests[0] else "token_ids"
    last = tokens.requests[2][key]
    assert row["token_ids"] == last + sampled[2]
    assert last[: len(tokens.requests[1][key]) + len(sampled[1])] == (
        tokens.requests[1][key] + sampled[1]
    )


async def test_answer_cut_by_length_is_closed_before_the_next_turn(
    token_door: Any, tokens: FakeTokens
) -> None:
    opened = await token_door.open()
    tokens.sampled, tokens.finish = chars("unfinish"), "length"
    message, reason = await ask(token_door, opened, USER)
    assert reason == "length"
    tokens.sampled, tokens.finish = [*chars("ok"), 2], "stop"
    await ask(token_door, opened, [*USER, message, {"role": "user", "content": "go on"}])
    (row,) = (await token_door.finish(opened))["rows"]
    text = TOKENIZER.decode(row["token_ids"])
    assert f"unfinish{END}\n" in text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_tool_calls_are_parsed_and_replayed_exactly(
    token_door: Any, tokens: FakeTokens, stream: bool
) -> None:
    opened = await token_door.open()
    call = '<tool_call>{"name":"calc",   "arguments":{"x":  1}}</tool_call>'
    tokens.sampled = [*chars("let me see " + call), 2]
    message, reason = await ask(token_door, opened, USER, stream, tools=TOOLS)
    assert reason == "tool_calls"
    assert message["content"] == "let me see "
    function = message["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("calc", {"x": 1})
    tokens.sampled = [*chars("done"), 2]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "17"}
    await ask(token_door, opened, [*USER, message, result], stream, tools=TOOLS)
    (row,) = (await token_door.finish(opened))["rows"]
    assert call in TOKENIZER.decode(row["token_ids"])
    assert len(row["turns"]) == 2


async def test_call_that_cannot_be_parsed_is_flagged_and_not_lost(
    token_door: Any, tokens: FakeTokens
) -> None:
    opened = await token_door.open()
    text = "<tool_call>{not json}</tool_call>"
    tokens.sampled = [*chars(text), 2]
    message, reason = await ask(token_door, opened, USER, tools=TOOLS)
    assert (message["content"], reason) == (text, "stop")
    (turn,) = token_door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert turn.flags == [PARSE_FAILED]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_weight_versions_of_the_engine_are_kept(
    token_door: Any, tokens: FakeTokens, stream: bool
) -> None:
    tokens.sampled, tokens.versions = [*chars("abc"), 2], ["1", "1", "2", "2"]
    opened = await token_door.open()
    await ask(token_door, opened, USER, stream)
    (turn,) = token_door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    by_token = {i: v for v, start, end in turn.versions for i in range(start, end)}
    if stream or (turn.engine and "token_ids" in tokens.requests[0]):
        assert by_token == {0: "1", 1: "1", 2: "2", 3: "2"}
    else:
        assert by_token == dict.fromkeys(range(4), "2")


async def test_missing_logprobs_are_an_error(make_door: Any, tokens: FakeTokens) -> None:
    spec = ModelSpec("policy", (f"sglang:{tokens.url}",), tokenizer=Renderer(TOKENIZER))
    door = await make_door([spec])
    tokens.sampled, tokens.drop_logprobs = chars("abc"), True
    with pytest.raises(openai.InternalServerError, match="never zero"):
        await ask(door, await door.open(), USER)


async def test_what_ids_cannot_honour_is_refused(token_door: Any, tokens: FakeTokens) -> None:
    opened = await token_door.open()
    for extra in (
        {"response_format": {"type": "json_object"}},
        {"logprobs": True, "top_logprobs": 2},
        {"extra_body": {"guided_json": {"type": "object"}}},
    ):
        with pytest.raises(openai.BadRequestError, match=r"cannot be honoured|must be 0"):
            await ask(token_door, opened, USER, **extra)
    assert tokens.requests == []


async def test_max_tokens_is_never_left_to_the_engines_default(
    token_door: Any, tokens: FakeTokens
) -> None:
    tokens.sampled = [*chars("a"), 2]
    opened = await token_door.open()
    await ask(token_door, opened, USER)
    await ask(token_door, opened, USER, max_completion_tokens=7)
    names = ("max_new_tokens", "max_tokens")
    limits = [next(r["sampling_params"].get(n) for n in names if n in r["sampling_params"])
              for r in tokens.requests]  # fmt: skip
    prompt = len(TOKENIZER.encode(TOKENIZER.apply_chat_template(USER, add_generation_prompt=True)))
    assert limits == [4096 - prompt, 7]


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 5}], ids=["no limit given", "a limit given"])
async def test_a_prompt_without_room_is_refused_as_frameworks_know_it(
    token_door: Any, tokens: FakeTokens, limit: dict[str, Any]
) -> None:
    long = [{"role": "user", "content": "x" * 5000}]
    with pytest.raises(openai.BadRequestError, match="> 4096 maximum context length") as raised:
        await ask(token_door, await token_door.open(), long, **limit)
    assert raised.value.code == "context_length_exceeded"
    assert tokens.requests == []


async def test_a_number_that_cannot_be_read_is_a_400(token_door: Any) -> None:
    opened = await token_door.open()
    body = b'{"model":"policy","temperature":1e999,"messages":[{"role":"user","content":"hi"}]}'
    url = f"{opened['base_url']}/chat/completions"
    async with token_door.http.post(url, data=body) as reply:
        assert reply.status == 400, await reply.text()


async def test_completions_take_ids_as_they_are(token_door: Any, tokens: FakeTokens) -> None:
    tokens.sampled = [*chars("xy"), 2]
    opened = await token_door.open()
    client = token_door.client(opened)
    reply = await client.completions.create(model="policy", prompt=[97, 98], max_tokens=4)
    assert reply.choices[0].text == "xy"
    (row,) = (await token_door.finish(opened))["rows"]
    assert row["token_ids"] == [97, 98, 120, 121, 2]


def test_engine_that_takes_ids_needs_a_tokenizer() -> None:
    with pytest.raises(ConfigError, match="name its tokenizer"):
        ModelSpec("policy", ("sglang:http://127.0.0.1:9",)).pool()


@pytest.mark.parametrize(
    ("text", "tools", "content", "reasoning", "calls"),
    [
        pytest.param("plain", True, "plain", None, 0, id="text"),
        pytest.param("<think>a</think>\n\nb", False, "b", "a", 0, id="reasoning"),
        pytest.param("<think>never closed", True, "", "never closed", 0, id="unclosed reasoning"),
        pytest.param('<tool_call>{"name":"f"}</tool_call>', True, "", None, 1, id="a call"),
        pytest.param('<tool_call>{"name":"f"}', True, "", None, 1, id="an unclosed call"),
        pytest.param("<tool_call>[]</tool_call>", True, "<tool_call>[]</tool_call>", None, 0,
                     id="not a call"),
        pytest.param('<tool_call>{"name":"f"}</tool_call>' * 2, True, "", None, 2, id="two calls"),
    ],
)  # fmt: skip
def test_answers_are_taken_apart(
    text: str, tools: bool, content: str, reasoning: str | None, calls: int
) -> None:
    parsed = parse(text, tools=tools, call_id="c")
    assert (parsed.content, parsed.reasoning) == (content, reasoning)
    assert len(parsed.tool_calls) == calls
