"""An agent on the OpenAI Agents SDK, run by an interpreter that has it.

    python two_agents.py whole=BASE_URL stream=BASE_URL previous=BASE_URL

Two agents with a handoff and a tool, for two user turns in each way of using the SDK; prints the
final outputs as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from openai import AsyncOpenAI

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled


@function_tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def talk(way: str, base_url: str) -> list[str]:
    client = AsyncOpenAI(base_url=base_url, api_key="EMPTY", max_retries=0)
    model = OpenAIResponsesModel("policy", client)
    expert = Agent(name="expert", instructions="You add.", model=model, tools=[add])
    agent = Agent(name="front", instructions="You hand over.", model=model, handoffs=[expert])
    outputs, history, before = [], [], None
    for question in ("9+8?", "and 1+1?"):
        asked = [*history, {"role": "user", "content": question}]
        if way == "stream":
            result = Runner.run_streamed(agent, asked)
            async for _ in result.stream_events():
                pass
        elif way == "previous":
            result = await Runner.run(agent, question, previous_response_id=before)
        else:
            result = await Runner.run(agent, asked)
        history, agent, before = result.to_input_list(), result.last_agent, result.last_response_id
        outputs.append(result.final_output)
    await client.close()
    return outputs


async def main() -> None:
    set_tracing_disabled(True)
    ways = [argument.split("=", 1) for argument in sys.argv[1:]]
    print(json.dumps([await talk(way, url) for way, url in ways]))


asyncio.run(main())
