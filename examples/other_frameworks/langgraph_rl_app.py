"""A LangGraph graph of model and tools, as trained: the deployed graph with another model."""

from langchain_openai import ChatOpenAI
from langgraph_basic_app import solve
from reward import reward

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    model = ChatOpenAI(
        base_url=cfg["base_url"],
        api_key=cfg.get("api_key", "EMPTY"),
        model=cfg["model_id"],
        **cfg.get("sampling_params") or {},
    )
    response = solve(model, payload["prompt"])
    score = reward(response=response, answer=payload["answer"])
    return {"rewards": score, "response": response}


if __name__ == "__main__":
    app.run()
