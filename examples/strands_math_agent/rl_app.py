"""The agent as trained: the deployed one, with the model of the rollout and a reward."""

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
        client_args={"base_url": cfg["base_url"], "api_key": cfg.get("api_key", "EMPTY")},
        model_id=cfg["model_id"],
        params=cfg.get("sampling_params"),
        stream=False,
    )
    agent = Agent(model, tools=TOOLS, system_prompt=SYSTEM_PROMPT, callback_handler=None)
    response = str(agent(payload["prompt"]))
    score = MathReward()(response=response, answer=payload["answer"])
    return {"rewards": score, "response": response}


if __name__ == "__main__":
    app.run()
