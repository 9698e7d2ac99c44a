"""One conversation as each client library has it: two questions, three rounds of tool calls.

What a library hands out is what is sent back, in its own shape; ``careless`` does what clients are
known for: it drops reasoning and writes a call's arguments anew, keys in another order.
"""

from __future__ import annotations

import json
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from .parts import Say

SYSTEM = "You add numbers, with the tool."
QUESTIONS = ("What is 9+8, and what are 1+1 and 2+2?", "And 30+12?")
SCRIPT = (
    Say("I add.", [("add", '{"b": 8,  "a": 9}')], reasoning="with the tool"),
    Say(calls=[("add", '{"b":1,"a":1}'), ("add", '{"a": 2, "b": 2}')], reasoning="two at once"),
    Say("They are 17, 2 and 4.", reasoning="all there"),
    Say(calls=[("add", '{"b": 12, "a": 30}')], reasoning="one more"),
    Say("It is 42.", reasoning="done"),
)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD = {"name": "add", "description": "Adds two numbers.", "parameters": SCHEMA, "strict": True}


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def added(arguments: Any) -> str:
    numbers = json.loads(arguments) if isinstance(arguments, str) else arguments
    return str(add(**numbers))


def rewritten(arguments: str) -> str:
    """The same arguments, keys in order, written as no model writes."""
    return json.dumps(json.loads(arguments), sort_keys=True, indent=1)


# --- SDKs ---------------------------------------------------------------------------------------


async def chat(opened: Any, *, stream: bool = False, careless: bool = False) -> str:
    client = AsyncOpenAI(base_url=opened.base_url, api_key="EMPTY", max_retries=0)
    tools: Any = [{"type": "function", "function": ADD}]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    async with client:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            calls = True
            while calls:
                ask: Any = {"model": "policy", "messages": messages, "tools": tools}
                if stream:
                    async with client.chat.completions.stream(**ask) as events:
                        reply: Any = await events.get_final_completion()
                else:
                    reply = await client.chat.completions.create(**ask)
                message = reply.choices[0].message.model_dump(exclude_none=True)
                messages.append(careless_message(message) if careless else message)
                calls = message.get("tool_calls")
                for call in calls or ():
                    said = added(call["function"]["arguments"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
    return str(message["content"])


def careless_message(message: dict[str, Any]) -> dict[str, Any]:
    out = {"content": message.get("content"), "role": "assistant"}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        made = {"arguments": rewritten(function["arguments"]), "name": function["name"]}
        out.setdefault("tool_calls", []).append(
            {"function": made, "type": "function", "id": call["id"]}
        )
    return out


async def messages(opened: Any, *, stream: bool = True, careless: bool = False) -> str:
    client = AsyncAnthropic(base_url=opened.anthropic_base_url, api_key="EMPTY", max_retries=0)
    tool = {"name": "add", "description": ADD["description"], "input_schema": SCHEMA}
    talk: list[Any] = []
    async with client:
        for question in QUESTIONS:
            results: list[Any] = [{"type": "text", "text": question}]
            while results:
                talk.append({"role": "user", "content": results})
                ask: Any = {"model": "policy", "max_tokens": 4096, "system": SYSTEM}
                ask |= {"messages": talk, "tools": [tool]}
                ask["thinking"] = {"type": "enabled", "budget_tokens": 1024}
                if stream:
                    async with client.messages.stream(**ask) as events:
                        reply: Any = await events.get_final_message()
                else:
                    reply = await client.messages.create(**ask)
                blocks = [block.model_dump(exclude_none=True) for block in reply.content]
                if careless:
                    blocks = [block for block in blocks if block["type"] != "thinking"]
                talk.append({"role": "assistant", "content": blocks})
                results = [
                    {"type": "tool_result", "tool_use_id": b["id"], "content": added(b["input"])}
                    for b in blocks
                    if b["type"] == "tool_use"
                ]
    return str(blocks[-1]["text"])


async def responses(
    opened: Any, *, stream: bool = False, careless: bool = False, previous: bool = False
) -> str:
    client = AsyncOpenAI(base_url=opened.base_url, api_key="EMPTY", max_retries=0)
    items: list[Any] = []
    before: str | None = None
    async with client:
        for question in QUESTIONS:
            fresh: list[Any] = [{"role": "user", "content": question}]
            while fresh:
                items = fresh if previous else [*items, *fresh]
                ask: Any = {"model": "policy", "instructions": SYSTEM, "input": items}
                ask["tools"] = [{"type": "function", **ADD}]
                ask |= {"previous_response_id": before} if before else {}
                if stream:
                    async with client.responses.stream(**ask) as events:
                        reply: Any = await events.get_final_response()
                else:
                    reply = await client.responses.create(**ask)
                before = reply.id if previous else None
                said = [item.model_dump(exclude_none=True) for item in reply.output]
                items = [*items, *(careless_items(said) if careless else map(plain, said))]
                fresh = [
                    {
                        "type": "function_call_output",
                        "call_id": item["call_id"],
                        "output": added(item["arguments"]),
                    }
                    for item in said
                    if item["type"] == "function_call"
                ]
    return str(reply.output_text)


def plain(item: dict[str, Any]) -> dict[str, Any]:
    """Without what the SDK's stream adds for its own user."""
    return {name: value for name, value in item.items() if not name.startswith("parsed")}


def careless_items(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for item in map(plain, items):
        if item["type"] == "function_call":
            item = {**item, "arguments": rewritten(item["arguments"])}
        if item["type"] != "reasoning":
            out.append(item)
    return out


# --- frameworks: each imports for seconds, so only where it is asked for ------------------------


async def strands(opened: Any) -> str:
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    arguments = {"base_url": opened.base_url, "api_key": "EMPTY"}
    model = OpenAIModel(client_args=arguments, model_id="policy")
    agent = Agent(model=model, tools=[tool(add)], system_prompt=SYSTEM, callback_handler=None)
    for question in QUESTIONS:
        result = await agent.invoke_async(question)
    return str(result).strip()


async def langgraph(opened: Any) -> str:
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    llm = ChatOpenAI(model="policy", base_url=opened.base_url, api_key="EMPTY", max_retries=0)
    agent = create_react_agent(llm, [add], prompt=SYSTEM)
    state: Any = {"messages": []}
    for question in QUESTIONS:
        state = await agent.ainvoke({"messages": [*state["messages"], ("user", question)]})
    return str(state["messages"][-1].content)


async def agents_sdk(opened: Any) -> str:
    from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=opened.base_url, api_key="EMPTY", max_retries=0) as client:
        model = OpenAIResponsesModel("policy", client)
        agent = Agent(name="adder", instructions=SYSTEM, model=model, tools=[function_tool(add)])
        history: list[Any] = []
        for question in QUESTIONS:
            result = await Runner.run(agent, [*history, {"role": "user", "content": question}])
            history = result.to_input_list()
    return str(result.final_output)
