"""The agent as deployed: it works on the files of the folder that OFFICE names."""

import os
from pathlib import Path

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from tools import Office

SYSTEM_PROMPT = (
    "You do office work with the tools, on real files. Look before you change something, change "
    "only what is asked for, and say in one sentence what you did."
)

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    model = OpenAIModel(
        client_args={"base_url": os.environ["MODEL_URL"], "api_key": os.environ["MODEL_KEY"]},
        model_id=os.environ["MODEL_ID"],
    )
    tools = [tool(each) for each in Office(Path(os.environ["OFFICE"])).tools()]
    agent = Agent(
        model,
        tools=tools,
        system_prompt=SYSTEM_PROMPT,
        tool_executor=SequentialToolExecutor(),  # calls of one message are about the same files
        callback_handler=None,
    )
    return {"response": str(agent(payload["prompt"]))}


if __name__ == "__main__":
    app.run()
