"""The math agent, with a calculator that takes its time as tools do that search, build or test."""

import os
import time

from calculator import calculator as calculate
from reward import MathReward
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from agentcore_rl_toolkit import AgentCoreRLApp

SYSTEM_PROMPT = (
    "Solve the problem with the calculator tool. "
    "End your answer with a line that holds '#### ' and the number, nothing else."
)
WAIT_S = float(os.environ["WAIT_S"])

app = AgentCoreRLApp()


def calculator(expression: str) -> str:
    time.sleep(WAIT_S)
    return calculate(expression)


calculator.__doc__ = calculate.__doc__
TOOLS = [tool(calculator)]


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    model = OpenAIModel(
        client_args={"base_url": cfg["base_url"], "api_key": "EMPTY"}, model_id=cfg["model_id"]
    )
    agent = Agent(model, tools=TOOLS, system_prompt=SYSTEM_PROMPT, callback_handler=None)
    response = str(agent(payload["prompt"]))
    return {"rewards": MathReward()(response=response, answer=payload["answer"])}


if __name__ == "__main__":
    app.run()
