"""Anthropic's API with its own SDK: answers, streams, tools, thinking, retries, disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from fake_script import FakeScript, Say
from fake_tokens import END, FakeTokenizer, FakeTokens

from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.text.render import Renderer

USER = {"role": "user", "content": "hi"}
ASK: dict[str, Any] = {"model": "policy", "max_tokens": 64, "messages": [USER]}
TOOL = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}}}
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "add", "arguments": json.dumps({"a": 9, "b": [8, "x"]})},
}


@pytest.fixture
async def claude() -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:

        def make(opened: dict[str, Any], **options: Any) -> anthropic.AsyncAnthropic:
            options = {
                "base_url": opened["anthropic_base_url"],
                "api_key": "EMPTY",
                "max_retries": 0,
            } | options
            client = anthropic.AsyncAnthropic(**options)
            stack.push_async_callback(client.close)
            return client

        yield make


async def ask(client: anthropic.AsyncAnthropic, stream: bool, **body: Any) -> Any:
    """One answer, the SDK's accumulated one when streamed."""
    if not stream:
        return await client.messages.create(**{**ASK, **body})
    async with client.messages.stream(**{**ASK, **body}) as events:
        return await events.get_final_message()


STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAM
async def test_conversation_is_one_row(door: Any, engine: Any, claude: Any, stream: bool) -> None:
    engine.answer = lambda body, choice: f"answer {len(body['messages'])}"
    opened = await door.open()
    client = claude(opened)
    messages: list[Any] = []
    system = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
    for word in ("one", "two", "three"):
        messages.append({"role": "user", "content": word})
        answer = await ask(client, stream, messages=messages, system=system)
        assert answer.stop_reason == "end_turn"
        assert answer.content[0].text == f"answer {len(messages) + 1}"
        assert answer.usage.output_tokens == 1
        messages.append({"role": "assistant", "content": answer.content})
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 3
    assert len(finished["rows"]) == 1
    turn = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()[0]
    assert turn.dialect == "messages"
    assert engine.requests[0]["messages"][0] == {"role": "system", "content": "be brief"}


@STREAM
async def test_tool_use_round_trip(door: Any, engine: Any, claude: Any, stream: bool) -> None:
    opened = await door.open()
    client = claude(opened)
    engine.tool_call = CALL
    first = await ask(client, stream, tools=[TOOL], tool_choice={"type": "any"})
    assert engine.requests[0]["tool_choice"] == "required"
    assert first.stop_reason == "tool_use"
    (use,) = first.content
    assert (use.type, use.name, use.input) == ("tool_use", "add", {"a": 9, "b": [8, "x"]})
    engine.tool_call = None
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "17", "is_error": False}
    messages = [USER, {"role": "assistant", "content": first.content}]
    messages.append({"role": "user", "content": [result, {"type": "text", "text": "so?"}]})
    second = await ask(client, stream, messages=messages, tools=[TOOL])
    assert second.content[0].text == "ok0"
    assert [m["role"] for m in engine.requests[1]["messages"]][-2:] == ["tool", "user"]
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 2
    assert len(finished["rows"]) == 1


@pytest.mark.parametrize("keeps", [True, False], ids=["thinking returned", "thinking dropped"])
async def test_thinking_is_signed_and_does_not_split_the_row(
    door: Any, engine: Any, claude: Any, keeps: bool
) -> None:
    engine.reasoning = "let me see"
    opened = await door.open()
    client = claude(opened)
    first = await ask(client, False, thinking={"type": "enabled", "budget_tokens": 1024})
    thought, text = first.content
    assert (thought.type, thought.thinking) == ("thinking", "let me see")
    assert len(thought.signature) > 40
    messages = [USER, {"role": "assistant", "content": first.content if keeps else [text]}]
    messages.append({"role": "user", "content": "go on"})
    await ask(client, False, messages=messages)
    told = engine.requests[1]["messages"][1]
    assert told["reasoning"] == "let me see", "under the name that the engine gives it"
    finished = await door.finish(opened)
    assert len(finished["rows"]) == 1
    assert finished["count"]["trained_turns"] == 2


async def test_thinking_that_is_disabled_is_not_shown_and_still_kept(
    door: Any, engine: Any, claude: Any
) -> None:
    engine.reasoning = "secret"
    opened = await door.open()
    answer = await ask(claude(opened), False, thinking={"type": "disabled"})
    assert [block.type for block in answer.content] == ["text"]
    turn = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()[0]
    assert json.loads(turn.response)["reasoning"] == "secret"


async def test_events_come_while_the_model_still_writes(
    door: Any, engine: Any, claude: Any
) -> None:
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    opened = await door.open()
    async with claude(opened).messages.stream(**ASK) as stream:
        seen: list[str] = []
        async for event in stream:
            seen.append(event.type)
            if event.type == "text":
                assert event.text == "h" or engine.hold.is_set()
                engine.hold.set()
    assert seen[:2] == ["message_start", "content_block_start"]
    assert seen[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert (await door.finish(opened))["count"]["trained_turns"] == 1


async def test_silent_streams_are_kept_alive_with_pings(make_door: Any, engine: Any) -> None:
    door = await make_door(keep_alive_s=0.1)
    engine.hold = asyncio.Event()
    opened = await door.open()
    url = opened["anthropic_base_url"] + "/v1/messages?beta=true"
    async with door.http.post(url, json={**ASK, "stream": True}) as reply:
        seen = b""
        while b"event: ping\n" not in seen:
            seen += await reply.content.readany()
        engine.hold.set()
        seen += await reply.read()
    assert seen.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


@pytest.mark.parametrize("path", ["/messages", "/v1/messages", "/v1/v1/messages"])
async def test_base_url_with_and_without_v1(door: Any, path: str) -> None:
    opened = await door.open()
    async with door.http.post(opened["anthropic_base_url"] + path, json=ASK) as reply:
        assert (await reply.json())["type"] == "message"


async def test_session_key_as_api_key(door: Any, claude: Any) -> None:
    opened = await door.open()
    opened["anthropic_base_url"] = door.gateway.url
    for options in ({"api_key": opened["key"]}, {"api_key": None, "auth_token": opened["key"]}):
        assert (await ask(claude(opened, **options), False)).content[0].text == "ok0"
    models = await claude(opened, api_key=opened["key"]).models.list()
    assert [model.id for model in models.data] == ["policy"]


@pytest.mark.parametrize(
    ("body", "status", "error", "kind"),
    [
        ({"messages": []}, 400, anthropic.BadRequestError, "invalid_request_error"),
        ({"model": "other"}, 404, anthropic.NotFoundError, "not_found_error"),
    ],
    ids=["no messages", "unknown model"],
)
async def test_errors_have_anthropics_shape(
    door: Any, claude: Any, body: Any, status: int, error: Any, kind: str
) -> None:
    with pytest.raises(error) as raised:
        await ask(claude(await door.open()), False, **body)
    assert raised.value.status_code == status
    assert raised.value.body["type"] == "error"
    assert raised.value.body["error"]["type"] == kind


async def test_path_that_is_not_served_is_an_error_in_anthropics_shape(door: Any) -> None:
    opened = await door.open()
    url = opened["anthropic_base_url"] + "/v1/messages/batches"
    async with door.http.post(url, json={}) as reply:
        assert reply.status == 404
        assert (await reply.json())["error"]["type"] == "not_found_error"


async def test_wrong_key_is_an_authentication_error(door: Any, claude: Any) -> None:
    client = claude({"anthropic_base_url": door.gateway.url})
    with pytest.raises(anthropic.AuthenticationError):
        await ask(client, False)


async def test_engines_own_error_is_told_in_its_words(door: Any, engine: Any, claude: Any) -> None:
    engine.fail = [(400, '{"error": {"message": "too long for me", "code": 400}}', {})]
    with pytest.raises(anthropic.BadRequestError, match="too long for me"):
        await ask(claude(await door.open()), False)


async def test_failure_in_a_stream_is_an_error_event(door: Any, engine: Any, claude: Any) -> None:
    engine.cut_after, engine.answer = 2, lambda body, choice: "hello"
    with pytest.raises(anthropic.APIStatusError):
        await ask(claude(await door.open()), True)


@STREAM
async def test_retry_of_a_finished_call_gets_the_same_message(
    door: Any, engine: Any, claude: Any, stream: bool
) -> None:
    answers = iter(["one", "two"])
    engine.answer = lambda body, choice: next(answers)
    opened = await door.open()
    client = claude(opened)
    told = [
        await ask(client, stream, extra_headers={"x-stainless-retry-count": n}) for n in ("0", "1")
    ]
    assert told[0].content[0].text == told[1].content[0].text == "one"
    assert told[0].id == told[1].id
    assert (await door.finish(opened))["turns"] == 1


async def test_sdk_retry_after_its_timeout_joins_the_running_call(
    door: Any, engine: Any, claude: Any, until: Any
) -> None:
    engine.hold = asyncio.Event()
    opened = await door.open()
    client = claude(opened, max_retries=1, timeout=1.0)
    task = asyncio.create_task(ask(client, False))
    await until(lambda: door.gateway.metrics.joined == 1)
    engine.hold.set()
    assert (await task).content[0].text == "ok0"
    assert len(engine.requests) == 1
    assert (await door.finish(opened))["turns"] == 1


@STREAM
async def test_answer_that_never_arrived_is_given_again_after_a_restart(
    make_door: Any, engine: Any, claude: Any, stream: bool
) -> None:
    """From the journal alone, in the dialect's own bytes."""
    engine.tool_call, engine.reasoning = CALL, None
    door = await make_door()
    opened = await door.open()
    first = await ask(claude(opened), stream, tools=[TOOL])
    await door.gateway.stop()
    again = await make_door()
    opened["anthropic_base_url"] = f"{again.gateway.url}/sessions/{opened['key']}"
    told = {"x-stainless-retry-count": "1"}
    second = await ask(claude(opened), stream, tools=[TOOL], extra_headers=told)
    assert second.id == first.id
    assert second.content == first.content
    assert second.stop_reason == "tool_use"
    assert len(engine.requests) == 1


async def test_disconnect_leaves_an_undelivered_turn(
    make_door: Any, engine: Any, until: Any
) -> None:
    door = await make_door(retry_grace_s=0.0)
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    opened = await door.open()
    url = opened["anthropic_base_url"] + "/v1/messages"
    reply = await door.http.post(url, json={**ASK, "stream": True})
    await reply.content.readany()
    reply.close()
    await until(lambda: engine.cancelled == 1)
    finished = await door.finish(opened)
    assert finished["rows"] == []
    assert finished["turns"] == 1


async def test_dialects_mix_in_one_session(door: Any, engine: Any, claude: Any) -> None:
    """A conversation begun in one API is gone on with in the other, in one row."""
    engine.answer = lambda body, choice: f"a{len(body['messages'])}"
    opened = await door.open()
    messages: list[Any] = [USER]
    client = door.client(opened)
    for turn in range(6):
        if turn % 3 == 0:
            reply = await client.chat.completions.create(model="policy", messages=messages)
            text = reply.choices[0].message.content
        elif turn % 3 == 1:
            answer = await ask(claude(opened), False, messages=messages)
            text = answer.content[0].text
        else:
            text = (await client.responses.create(model="policy", input=messages)).output_text
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 6
    assert len(finished["rows"]) == 1
    turns = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()
    assert [turn.dialect for turn in turns] == ["chat", "messages", "responses"] * 2


async def test_equal_bodies_in_two_dialects_are_two_calls(door: Any) -> None:
    opened = await door.open()
    told = {"x-stainless-retry-count": "1"}
    kinds = []
    for path in ("/v1/chat/completions", "/v1/messages"):
        url = opened["anthropic_base_url"] + path
        async with door.http.post(url, json=ASK, headers=told) as reply:
            kinds.append("choices" in await reply.json())
    assert kinds == [True, False]


async def test_tokens_are_estimated_without_a_tokenizer(door: Any, claude: Any) -> None:
    client = claude(await door.open())
    short = await client.messages.count_tokens(model="policy", messages=[USER])
    long = await client.messages.count_tokens(
        model="policy", messages=[{"role": "user", "content": "word " * 100}], tools=[TOOL]
    )
    assert 0 < short.input_tokens < 30
    assert 100 < long.input_tokens < 250


async def test_token_in_token_out_counts_and_continues_exactly(make_door: Any, claude: Any) -> None:
    tokenizer = FakeTokenizer()
    async with FakeTokens() as fake:
        engine = f"vllm-generate:{fake.url}"
        door = await make_door([ModelSpec("policy", (engine,), tokenizer=Renderer(tokenizer))])
        # as no tokenizer would write it: told apart from what is tokenised again
        fake.sampled = [*map(ord, "<think>ab</think>abab"), *tokenizer.encode(END)]
        opened = await door.open()
        client = claude(opened)
        counted = await client.messages.count_tokens(model="policy", messages=[USER])
        first = await ask(client, False)
        assert counted.input_tokens == first.usage.input_tokens
        text = [block for block in first.content if block.type == "text"]
        for keeps in (first.content, text):
            messages = [USER, {"role": "assistant", "content": keeps}, USER]
            await ask(client, True, messages=messages)
        finished = await door.finish(opened)
        assert finished["count"]["trained_turns"] == 3
        assert finished["drift"]["stitched"] == 0


async def test_header_that_changes_with_every_request_does_not_split_the_row(
    door: Any, engine: Any, claude: Any
) -> None:
    """Claude Code's billing line is a block of its own before the system prompt."""
    opened = await door.open()
    messages: list[Any] = []
    for mark in ("aa", "bb"):
        header = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={mark};"}
        system = [header, {"type": "text", "text": "You are an agent."}]
        messages.append(USER)
        answer = await ask(claude(opened), False, messages=messages, system=system)
        messages.append({"role": "assistant", "content": answer.content})
    assert engine.requests[1]["messages"][0]["content"] == "You are an agent."
    assert len((await door.finish(opened))["rows"]) == 1


async def test_defaults_and_reasoning_that_a_client_changed_are_put_back(
    claude: Any, make_door: Any
) -> None:
    """The engine's template writes reasoning: it is given what was sampled, not what is left."""
    tool = {
        "name": "edit",
        "input_schema": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "all": {"type": "boolean", "default": False},
            },
        },
    }
    script = [Say(calls=[("edit", {"path": "a"})], reasoning="hm"), Say("done", reasoning="so")]
    async with FakeScript(lambda body, n: script[min(n, 1)]) as engine:
        door = await make_door([ModelSpec.parse(f"policy=vllm:{engine.url}#tiny")])
        opened = await door.open()
        client = claude(opened)
        first = await ask(client, True, tools=[tool], thinking={"type": "disabled"})
        (use,) = first.content
        door.gateway.sessions.by_id(opened["session_id"]).park()
        replayed = {"type": "tool_use", "id": use.id, "name": use.name}
        replayed["input"] = {"all": False, **use.input}
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "ok"}
        history = [USER, {"role": "assistant", "content": [replayed]}]
        history.append({"role": "user", "content": [result]})
        second = await ask(client, True, tools=[tool], messages=history)
        history += [{"role": "assistant", "content": second.content[1:]}, USER]
        await ask(client, False, tools=[tool], messages=history)
        replayed["input"] = {"path": "b"}
        await ask(client, False, tools=[tool], messages=history)
        finished = await door.finish(opened)
        flags = door.gateway.sessions.by_id(opened["session_id"]).graph.turns()[2].flags
    assert flags == ["answer_put_back"]
    assert finished["drift"]["clean"] == 2
    assert finished["count"]["forks"] == {"rewrite": 1}, "a call that was changed is a change"
    assert len(finished["rows"]) == 2


async def test_stream_that_broke_is_given_whole_to_the_retry(
    door: Any, engine: Any, claude: Any, until: Any
) -> None:
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    opened = await door.open()
    body = {**ASK, "stream": True}
    url = opened["anthropic_base_url"] + "/v1/messages"
    first = await door.http.post(url, json=body)
    begun = await first.content.readany()
    first.close()
    await until(lambda: all(call.gone for call in door.gateway.relay.calls))
    again = asyncio.create_task(door.http.post(url, json=body))
    await until(lambda: door.gateway.metrics.joined == 1)
    engine.hold.set()
    async with await again as reply:
        told = await reply.read()
    assert told.startswith(begun)
    assert told.count(b"event: message_start") == told.count(b"event: message_stop") == 1
    assert len(engine.requests) == 1
    assert (await door.finish(opened))["count"]["trained_turns"] == 1


IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
SEES = {"role": "user", "content": [IMAGE, {"type": "text", "text": "what is it?"}]}


async def test_images_are_passed_on_to_an_engine_that_may_see(
    door: Any, engine: Any, claude: Any
) -> None:
    await ask(claude(await door.open()), False, messages=[SEES])
    first, text = engine.requests[0]["messages"][0]["content"]
    assert first["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert text == {"type": "text", "text": "what is it?"}


async def test_images_are_refused_where_the_gateway_renders(make_door: Any, claude: Any) -> None:
    async with FakeTokens() as fake:
        renderer = Renderer(FakeTokenizer())
        spec = ModelSpec("policy", (f"vllm-generate:{fake.url}",), tokenizer=renderer)
        client = claude(await (await make_door([spec])).open())
        with pytest.raises(anthropic.BadRequestError, match="text only"):
            await ask(client, False, messages=[SEES])
