"""An agent of the OpenAI Agents SDK, as trained: the deployed one with another client."""

from agents_sdk_basic_app import solve
from openai import AsyncOpenAI
from reward import reward

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
async def invoke(payload):
    cfg = payload["_rollout"]
    client = AsyncOpenAI(base_url=cfg["base_url"], api_key=cfg.get("api_key", "EMPTY"))
    async with client:
        params = cfg.get("sampling_params") or {}
        response = await solve(client, cfg["model_id"], params, payload["prompt"])
    score = reward(response=response, answer=payload["answer"])
    return {"rewards": score, "response": response}


if __name__ == "__main__":
    app.run()
