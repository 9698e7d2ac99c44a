"""``/v1/responses`` through a gateway, with OpenAI's own SDK as the client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from fake_script import FakeScript, Say
from fake_tokens import FakeTokenizer, FakeTokens
from pydantic import BaseModel

from agentcore_rl_toolkit.gateway import ModelSpec
from agentcore_rl_toolkit.gateway.text.render import Renderer

LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
SEALED: Any = ["reasoning.encrypted_content"]


def look_then_tell(body: dict[str, Any], n: int) -> Say:
    told = sum(message["role"] == "assistant" for message in body["messages"])
    if told % 2 == 0:
        return Say("I look.", [("look", {"at": "x", "b": [1, 2]})], reasoning=f"why {told}")
    return Say(f"it is {told}", reasoning="now I know")


async def served(make_door: Any, engine: Any) -> Any:
    return await make_door([ModelSpec.parse(f"policy=vllm:{engine.url}#tiny")])


async def counted(door: Any, opened: Any, engine: Any) -> dict[str, Any]:
    """Finishes, and checks that every token that was sampled is trained exactly once."""
    finished = await door.finish(opened)
    trained = sum(sum(row["loss_mask"]) for row in finished["rows"])
    assert trained == finished["count"]["trained_tokens"] == sum(map(len, engine.said))
    return dict(finished)


async def test_create_answers_with_items_and_usage(door: Any, engine: Any) -> None:
    engine.reasoning = "because"
    client = door.client(await door.open())
    response = await client.responses.create(
        model="policy", instructions="be brief", input="hi", max_output_tokens=9, temperature=0.5
    )
    assert response.output_text == "ok0"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert (response.status, response.instructions) == ("completed", "be brief")
    assert response.usage is not None
    assert response.usage.output_tokens == 1
    sent = engine.requests[-1]
    assert sent["messages"][0] == {"role": "system", "content": "be brief"}
    assert (sent["max_completion_tokens"], sent["temperature"]) == (9, 0.5)
    assert not {"input", "instructions", "store", "tool_choice"} & sent.keys()


async def test_stream_is_incremental_and_ends_with_the_whole_response(
    door: Any, engine: Any
) -> None:
    engine.hold = asyncio.Event()
    engine.answer = lambda body, choice: "hello"
    client = door.client(await door.open())
    deltas = []
    async with client.responses.stream(model="policy", input="hi") as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                deltas.append(event.delta)
                engine.hold.set()  # the engine goes on only after its first token has arrived
        final = await stream.get_final_response()
    assert deltas[0] == "h"
    assert final.output_text == "".join(deltas) == "hello"


async def test_parse_gives_typed_output(door: Any, engine: Any) -> None:
    class Sum(BaseModel):
        total: int

    engine.answer = lambda body, choice: '{"total": 17}'
    client = door.client(await door.open())
    response = await client.responses.parse(model="policy", input="9+8", text_format=Sum)
    assert response.output_parsed == Sum(total=17)
    form = engine.requests[-1]["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"]["required"] == ["total"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keeps", ["everything", "no ids", "sealed reasoning only"])
async def test_a_client_that_returns_its_items_continues_its_turn(
    make_door: Any, stream: bool, keeps: str
) -> None:
    async with FakeScript(look_then_tell) as engine:
        door = await served(make_door, engine)
        opened = await door.open()
        client = door.client(opened)
        items: list[Any] = [{"role": "user", "content": "hi"}]
        for _ in range(4):
            options: Any = {"model": "policy", "input": items, "tools": [LOOK], "include": SEALED}
            if stream:
                async with client.responses.stream(**options) as events:
                    response = await events.get_final_response()
            else:
                response = await client.responses.create(**options)
            items += [kept(item.model_dump(), keeps) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            items += [answered(call) for call in calls] or [{"role": "user", "content": "and?"}]
        finished = await counted(door, opened, engine)
    assert len(finished["rows"]) == 1
    assert finished["count"]["forks"] == {}


def answered(call: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": "seen"}


def kept(item: dict[str, Any], keeps: str) -> dict[str, Any]:
    """An item as clients send it back: ids and nulls dropped, arguments written anew."""
    if keeps != "everything":
        item = {k: v for k, v in item.items() if k not in ("id", "status", "parsed_arguments")}
    if keeps == "no ids" and item["type"] == "function_call":
        order = sorted(json.loads(item["arguments"]).items(), reverse=True)
        item["arguments"] = json.dumps(dict(order), indent=1)
    if keeps == "sealed reasoning only" and item["type"] == "reasoning":
        item.pop("content")
    return {key: value for key, value in item.items() if value is not None}


async def test_a_client_that_drops_reasoning_is_recognised(make_door: Any) -> None:
    async with FakeScript(look_then_tell) as engine:
        door = await served(make_door, engine)
        opened = await door.open()
        client = door.client(opened)
        items: list[Any] = [{"role": "user", "content": "hi"}]
        for _ in range(4):
            response = await client.responses.create(model="policy", input=items, tools=[LOOK])
            items += [item.model_dump() for item in response.output if item.type != "reasoning"]
            calls = [item for item in response.output if item.type == "function_call"]
            items += [answered(call) for call in calls] or [{"role": "user", "content": "and?"}]
        finished = await counted(door, opened, engine)
    assert len(finished["rows"]) == 1


async def test_a_restart_keeps_what_previous_response_id_names(make_door: Any, engine: Any) -> None:
    door = await make_door()
    opened = await door.open()
    first = await door.client(opened).responses.create(model="policy", input="hi")
    await door.gateway.stop()
    again = await make_door(port=door.gateway.port)
    second = await again.client(opened).responses.create(
        model="policy", input="so?", previous_response_id=first.id
    )
    assert second.output_text == "ok0"
    assert [m["content"] for m in engine.requests[-1]["messages"]] == ["hi", "ok0", "so?"]


async def test_previous_response_id_goes_on_with_that_answer(make_door: Any) -> None:
    async with FakeScript(look_then_tell) as engine:
        door = await served(make_door, engine)
        opened = await door.open()
        client = door.client(opened)
        first = await client.responses.create(
            model="policy", instructions="one", input="hi", tools=[LOOK]
        )
        call = next(item for item in first.output if item.type == "function_call")
        second = await client.responses.create(
            model="policy",
            instructions="one",
            input=[answered(call)],
            tools=[LOOK],
            previous_response_id=first.id,
        )
        assert second.output_text == "it is 1"
        third = await client.responses.create(
            model="policy", instructions="two", input="so?", previous_response_id=second.id
        )
        roles = [message["role"] for message in engine.requests[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert engine.requests[-1]["messages"][0]["content"] == "two"
        assert third.previous_response_id == second.id
        finished = await counted(door, opened, engine)
    assert len(finished["rows"]) == 2  # other instructions are another conversation


async def test_item_references_stand_for_the_answer_they_were_part_of(make_door: Any) -> None:
    async with FakeScript(look_then_tell) as engine:
        door = await served(make_door, engine)
        opened = await door.open()
        client = door.client(opened)
        first = await client.responses.create(model="policy", input="hi", tools=[LOOK])
        referred: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
        items = [{"role": "user", "content": "hi"}, *referred, answered(first.output[-1])]
        second = await client.responses.create(model="policy", input=items, tools=[LOOK])
        assert second.output_text == "it is 1"
        finished = await counted(door, opened, engine)
        assert len(finished["rows"]) == 1
        other = door.client(await door.open())
        with pytest.raises(openai.BadRequestError, match="not found"):
            await other.responses.create(model="policy", input=items)


@pytest.mark.parametrize("made", ["never", "unstored"])
async def test_an_unknown_previous_response_is_refused(door: Any, made: str) -> None:
    client = door.client(await door.open())
    name = "resp_0"
    if made == "unstored":
        name = (await client.responses.create(model="policy", input="hi", store=False)).id
    with pytest.raises(openai.BadRequestError, match="not found") as caught:
        await client.responses.create(model="policy", input="so?", previous_response_id=name)
    assert caught.value.code == "previous_response_not_found"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["sglang", "vllm-generate"])
async def test_sampled_ids_are_carried_through_items(
    make_door: Any, stream: bool, kind: str
) -> None:
    texts = [
        '<think>why</think>I look<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>',
        "<think>so</think>it is x",
        "ab again",
    ]
    async with FakeTokens() as engine:
        renderer = Renderer(FakeTokenizer())
        door = await make_door([ModelSpec("policy", (f"{kind}:{engine.url}",), tokenizer=renderer)])
        opened = await door.open()
        client = door.client(opened)
        items: list[Any] = [{"role": "user", "content": "hi"}]
        sampled: list[int] = []
        for text in texts:
            engine.sampled = [*(ord(c) for c in text), 2]
            sampled += engine.sampled
            options: Any = {"model": "policy", "input": items, "tools": [LOOK]}
            if stream:
                async with client.responses.stream(**options) as events:
                    response = await events.get_final_response()
            else:
                response = await client.responses.create(**options)
            kept_items = [item for item in response.output if item.type != "reasoning"]
            items += [kept(item.model_dump(), "no ids") for item in kept_items]
            calls = [item for item in response.output if item.type == "function_call"]
            items += [answered(call) for call in calls] or [{"role": "user", "content": "and?"}]
        assert response.output_text == "ab again"
        finished = await door.finish(opened)
    (row,) = finished["rows"]
    trained = [i for i, mask in zip(row["token_ids"], row["loss_mask"], strict=True) if mask]
    assert trained == sampled
    assert finished["drift"]["clean"] == 2


async def test_dialects_of_one_session_share_one_graph(make_door: Any) -> None:
    async with FakeScript(look_then_tell) as engine:
        door = await served(make_door, engine)
        opened = await door.open()
        client = door.client(opened)
        function = {key: value for key, value in LOOK.items() if key != "type"}
        tools: Any = [{"type": "function", "function": function}]
        messages: list[Any] = [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
        ]
        chat = await client.chat.completions.create(model="policy", messages=messages, tools=tools)
        said = chat.choices[0].message
        call = (said.tool_calls or [])[0]
        items: list[Any] = [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [], "content": [{"text": "why 0"}]},
            {"role": "assistant", "content": said.content},
            {
                "type": "function_call",
                "call_id": call.id,
                "name": "look",
                "arguments": call.function.arguments,
            },
            {"type": "function_call_output", "call_id": call.id, "output": "seen"},
        ]
        response = await client.responses.create(
            model="policy", instructions="be brief", input=items, tools=[LOOK]
        )
        assert response.output_text == "it is 1"
        finished = await counted(door, opened, engine)
    assert len(finished["rows"]) == 1


async def test_custom_tools_and_the_local_shell_are_called_as_such(make_door: Any) -> None:
    calls = [("patch", {"input": "*** text"}), ("local_shell", {"command": ["ls", "-l"]})]
    async with FakeScript(lambda body, n: Say(calls=calls)) as engine:
        door = await served(make_door, engine)
        client = door.client(await door.open())
        grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
        tools: Any = [
            {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar},
            {"type": "local_shell"},
            {"type": "web_search"},
        ]
        async with client.responses.stream(model="policy", input="go", tools=tools) as stream:
            response = await stream.get_final_response()
        patch, shell = response.output
        assert patch.type == "custom_tool_call"
        assert patch.input == "*** text"
        assert shell.type == "local_shell_call"
        assert shell.action.command == ["ls", "-l"]
        offered = engine.requests[-1]["tools"]
        assert [tool["function"]["name"] for tool in offered] == ["patch", "local_shell"]
        assert 'start: "x"' in offered[0]["function"]["description"]


async def test_a_retry_gets_the_same_response(door: Any, engine: Any) -> None:
    client = door.client(await door.open())
    first = await client.responses.create(model="policy", input="hi")
    headers = {"x-stainless-retry-count": "1"}
    again = await client.responses.create(model="policy", input="hi", extra_headers=headers)
    assert again.id == first.id
    assert len(engine.requests) == 1


async def test_a_stream_that_the_engine_cuts_raises(door: Any, engine: Any) -> None:
    engine.answer, engine.cut_after = (lambda body, choice: "hello"), 2
    opened = await door.open()
    client = door.client(opened)
    with pytest.raises(openai.APIError, match="engine"):
        async for _ in await client.responses.create(model="policy", input="hi", stream=True):
            pass
    assert (await door.finish(opened))["count"]["trained_turns"] == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 3}, "input"),
        ({"input": []}, "input"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools"),
        ({"tools": [LOOK, LOOK]}, "tools"),
        ({"tools": [LOOK], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}, "tools": [LOOK]}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_cannot_be_honoured_is_refused(door: Any, body: Any, param: str) -> None:
    opened = await door.open()
    request = {"model": "policy", "input": "hi"} | body
    async with door.http.post(f"{opened['base_url']}/responses", json=request) as reply:
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == param
