"""Agent frameworks as they come: Strands and LangGraph against the gateway."""

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
