"""The agent as trained: its customer is simulated by a model that is not trained.

Both models are reached through the rollout's one address. ``user_model_id`` names the customer's;
a gateway that declares it with ``train: false`` records its tokens and trains none of them.
"""

from customer import Customer, converse
from openai import OpenAI
from reward import ServiceReward
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor
from world import POLICY, Airline

from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def invoke(payload):
    cfg = payload["_rollout"]
    access = {"base_url": cfg["base_url"], "api_key": cfg.get("api_key", "EMPTY")}
    model = OpenAIModel(
        client_args=access, model_id=cfg["model_id"], params=cfg.get("sampling_params")
    )
    airline = Airline()
    tools = [tool(each) for each in airline.tools()]
    agent = Agent(
        model,
        tools=tools,
        system_prompt=POLICY,
        tool_executor=SequentialToolExecutor(),  # calls of one message are about the same data
        callback_handler=None,
    )
    with OpenAI(**access) as client:
        user_model = payload.get("user_model_id", "user")
        said = converse(agent, Customer(client, user_model, payload["instruction"]))
    right = {name: payload.get(name, ()) for name in ("looks", "actions", "outputs")}
    reward = ServiceReward()(airline=airline, said=said, **right)
    return {"rewards": reward, "said": said, "metrics": {"exchanges": len(said)}}


if __name__ == "__main__":
    app.run()
