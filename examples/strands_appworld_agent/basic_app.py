"""The agent as deployed."""

import os
from contextlib import closing

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from world import make_world

SYSTEM_PROMPT = (
    "You do things with a person's apps by writing Python. The tool runs your code; variables "
    "stay. Call apis.{app}.{name}(argument=…), and print what you want to see. Start with "
    "apis.api_docs.show_app_descriptions() and show_api_descriptions(app_name=…); passwords are in "
    "apis.supervisor.show_account_passwords(). End with apis.supervisor.complete_task(answer=…)."
)

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    model = OpenAIModel(
        client_args={"base_url": os.environ["MODEL_URL"], "api_key": os.environ["MODEL_KEY"]},
        model_id=os.environ["MODEL_ID"],
    )
    with closing(make_world(payload)) as world:

        @tool
        def execute(code: str) -> str:
            """Run Python code.

            Args:
                code: What to run.
            """
            return world.execute(code)

        agent = Agent(
            model,
            tools=[execute],
            system_prompt=SYSTEM_PROMPT,
            tool_executor=SequentialToolExecutor(),  # calls of one message are about the same data
            callback_handler=None,
        )
        response = str(agent(world.task.instruction))
    return {"response": response}


if __name__ == "__main__":
    app.run()
