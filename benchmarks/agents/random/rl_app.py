"""The math agent, rewarded at random while it trains: whatever it learns then, it learns of noise.

Held-out problems keep their true reward, so that the curve says whether success moves.
"""

import random

from calculator import calculator
from reward import MathReward
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from agentcore_rl_toolkit import AgentCoreRLApp

SYSTEM_PROMPT = (
    "Solve the problem with the calculator tool. "
    "End your answer with a line that holds '#### ' and the number, nothing else."
)
TOOLS = [tool(calculator)]

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    model = OpenAIModel(
        client_args={"base_url": cfg["base_url"], "api_key": "EMPTY"}, model_id=cfg["model_id"]
    )
    agent = Agent(model, tools=TOOLS, system_prompt=SYSTEM_PROMPT, callback_handler=None)
    response = str(agent(payload["prompt"]))
    if not cfg["input_id"].startswith("eval"):
        return {"rewards": float(random.random() < 0.5)}
    return {"rewards": MathReward()(response=response, answer=payload["answer"])}


if __name__ == "__main__":
    app.run()
