"""A plain loop over the OpenAI client, as trained: the deployed loop with another client."""

from openai import AsyncOpenAI
from openai_basic_app import solve
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
