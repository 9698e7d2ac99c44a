"""The agent as trained: the deployed one, with the model of the rollout and a reward."""

import tempfile
from pathlib import Path

from reward import OfficeReward
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from testbed import prompt, testbed
from tools import Office

from agentcore_rl_toolkit import AgentCoreRLApp

SYSTEM_PROMPT = (
    "You do office work with the tools, on real files. Look before you change something, change "
    "only what is asked for, and say in one sentence what you did."
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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        office = Office(testbed(payload, Path(scratch)))
        reward = OfficeReward(office.testbed)
        tools = [tool(each) for each in office.tools()]
        agent = Agent(
            model,
            tools=tools,
            system_prompt=SYSTEM_PROMPT,
            tool_executor=SequentialToolExecutor(),  # calls of one message are about the same files
            callback_handler=None,
        )
        response = str(agent(prompt(payload)))
        score = reward(testbed=office.testbed, evaluation=payload["evaluation"])
    return {"rewards": score, "response": response}


if __name__ == "__main__":
    app.run()
