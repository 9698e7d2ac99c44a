"""Agent frameworks as they come: Strands, LangGraph and LiteLLM against the gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from strands import Agent, tool
from strands.models.openai import OpenAIModel

CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "add", "arguments": json.dumps({"a": 9, "b": 8})},
}


def script(engine: Any) -> None:
    """First a tool call, then an answer."""

    def answer(body: dict[str, Any], choice: int) -> str:
        return "the sum is 17"

    serve = engine._serve

    async def scripted(request: Any, body: Any, prompt: Any, chat: bool) -> Any:
        last = body["messages"][-1]["role"]
        engine.tool_call = CALL if last == "user" else None
        return await serve(request, body, prompt, chat)

    engine.answer, engine._serve = answer, scripted


async def test_strands_agent_is_captured_as_one_row(door: Any, engine: Any) -> None:
    script(engine)
    opened = await door.open()

    @tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    model = OpenAIModel(
        client_args={"base_url": opened["base_url"], "api_key": "EMPTY"}, model_id="policy"
    )
    agent = Agent(model=model, tools=[add], callback_handler=None)
    result = await agent.invoke_async("9+8?")
    assert "17" in str(result)
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 2
    assert len(finished["rows"]) == 1


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
async def test_langgraph_agent_is_captured_as_one_row(door: Any, engine: Any) -> None:
    script(engine)
    opened = await door.open()

    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    llm = ChatOpenAI(model="policy", base_url=opened["base_url"], api_key="EMPTY")
    agent = create_react_agent(llm, [add])
    state = await agent.ainvoke({"messages": [("user", "9+8?")]})
    assert "17" in state["messages"][-1].content
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 2
    assert len(finished["rows"]) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_litellm_with_tools_is_captured_as_one_row(
    door: Any, engine: Any, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network
    import litellm

    script(engine)
    opened = await door.open()
    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    messages: list[Any] = [{"role": "user", "content": "9+8?"}]
    ask = {
        "model": "openai/policy",
        "api_base": opened["base_url"],
        "api_key": "EMPTY",
        "tools": [add],
        "stream": stream,
    }
    for _ in range(2):
        reply = await litellm.acompletion(messages=messages, **ask)
        if stream:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply])
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            numbers = json.loads(call.function.arguments)
            result = str(numbers["a"] + numbers["b"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    await litellm.close_litellm_async_clients()
    assert "17" in messages[-1]["content"]
    finished = await door.finish(opened)
    assert finished["count"]["trained_turns"] == 2
    assert len(finished["rows"]) == 1
