"""The agent as trained: the deployed one, with the model of the rollout and a reward."""

from contextlib import closing

from reward import AppReward
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from world import conceal, make_world

from agentcore_rl_toolkit import AgentCoreRLApp

SYSTEM_PROMPT = (
    "You do things with a person's apps by writing Python. The tool runs your code; variables "
    "stay. Call apis.{app}.{name}(argument=…), and print what you want to see. Start with "
    "apis.api_docs.show_app_descriptions() and show_api_descriptions(app_name=…); passwords are in "
    "apis.supervisor.show_account_passwords(). End with apis.supervisor.complete_task(answer=…)."
)

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    model = OpenAIModel(
        client_args={"base_url": cfg["base_url"], "api_key": cfg.get("api_key", "EMPTY")},
        model_id=cfg["model_id"],
        params=cfg.get("sampling_params"),
    )
    conceal()
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
        score = AppReward()(world=world)
    return {"rewards": score, "response": response}


if __name__ == "__main__":
    app.run()
