"""The agent as deployed: one session is one conversation with a real customer."""

import os

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from world import POLICY, Airline

app = BedrockAgentCoreApp()
conversations = {}


@app.entrypoint
def invoke(payload, context):
    if context.session_id not in conversations:
        model = OpenAIModel(
            client_args={"base_url": os.environ["MODEL_URL"], "api_key": os.environ["MODEL_KEY"]},
            model_id=os.environ["MODEL_ID"],
        )
        tools = [tool(each) for each in Airline().tools()]
        conversations[context.session_id] = Agent(
            model,
            tools=tools,
            system_prompt=POLICY,
            tool_executor=SequentialToolExecutor(),  # calls of one message are about the same data
            callback_handler=None,
        )
    return {"response": str(conversations[context.session_id](payload["prompt"]))}


if __name__ == "__main__":
    app.run()
