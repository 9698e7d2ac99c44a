"""The agent as deployed."""

import os

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from calculator import calculator
from strands import Agent, tool
from strands.models.openai import OpenAIModel

SYSTEM_PROMPT = (
    "Solve the problem with the calculator tool. "
    "End your answer with a line that holds '#### ' and the number, nothing else."
)
TOOLS = [tool(calculator)]

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    model = OpenAIModel(
        client_args={"base_url": os.environ["MODEL_URL"], "api_key": os.environ["MODEL_KEY"]},
        model_id=os.environ["MODEL_ID"],
    )
    agent = Agent(model, tools=TOOLS, system_prompt=SYSTEM_PROMPT, callback_handler=None)
    response = str(agent(payload["prompt"]))
    return {"response": response}


if __name__ == "__main__":
    app.run()
