"""A plain loop over the OpenAI client, as deployed."""

import json
import os

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from openai import AsyncOpenAI
from warehouse import SYSTEM_PROMPT, TOOLS, call

MAX_TURNS = 8
ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
SCHEMAS = [
    {
        "type": "function",
        "function": {"name": name, "description": tool.__doc__, "parameters": ITEM},
    }
    for name, tool in TOOLS.items()
]

app = BedrockAgentCoreApp()


@app.entrypoint
async def invoke(payload):
    client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key=os.environ["MODEL_KEY"])
    async with client:
        response = await solve(client, os.environ["MODEL_ID"], {}, payload["prompt"])
    return {"response": response}


async def solve(client, model_id, params, prompt):
    messages = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": prompt},
    ]
    for _ in range(MAX_TURNS):
        completion = await client.chat.completions.create(
            model=model_id, messages=messages, tools=SCHEMAS, **params
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for wanted in message.tool_calls:
            said = call(wanted.function.name, json.loads(wanted.function.arguments))
            messages.append({"role": "tool", "tool_call_id": wanted.id, "content": said})
    return ""


if __name__ == "__main__":
    app.run()
