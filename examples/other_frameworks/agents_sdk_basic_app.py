"""An agent of the OpenAI Agents SDK, as deployed."""

import os

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from openai import AsyncOpenAI
from warehouse import SYSTEM_PROMPT, count, price

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)  # traces go to OpenAI, which a session does not reach
TOOLS = [function_tool(count), function_tool(price)]

app = BedrockAgentCoreApp()


@app.entrypoint
async def invoke(payload):
    client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key=os.environ["MODEL_KEY"])
    async with client:
        response = await solve(client, os.environ["MODEL_ID"], {}, payload["prompt"])
    return {"response": response}


async def solve(client, model_id, params, prompt):
    agent = Agent(
        name="warehouse",
        instructions=SYSTEM_PROMPT,
        tools=TOOLS,
        model=OpenAIChatCompletionsModel(model=model_id, openai_client=client),
        model_settings=ModelSettings(**params),
    )
    return str((await Runner.run(agent, prompt)).final_output)


if __name__ == "__main__":
    app.run()
