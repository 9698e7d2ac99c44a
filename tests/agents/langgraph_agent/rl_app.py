"""A LangGraph graph of model and tools, with the model of the rollout."""

from __future__ import annotations

import ast
import operator
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agentcore_rl_toolkit import AgentCoreRLApp, FinalAnswer

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}

app = AgentCoreRLApp()
reward = FinalAnswer()


@tool
def calculator(expression: str) -> str:
    """Compute an arithmetic expression."""
    return str(_value(ast.parse(expression, mode="eval").body))


def _value(node: Any) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError(f"cannot compute {ast.dump(node)}")


@app.rollout_entrypoint
def solve(payload: dict[str, Any]) -> dict[str, Any]:
    cfg = payload["_rollout"]
    model = ChatOpenAI(
        base_url=cfg["base_url"],
        api_key="EMPTY",
        model=cfg["model_id"],
        **cfg.get("sampling_params", {}),
    ).bind_tools([calculator])

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode([calculator]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    final = builder.compile().invoke({"messages": [HumanMessage(payload["prompt"])]})
    response = str(final["messages"][-1].content)
    return {
        "rewards": reward(response=response, answer=payload.get("answer")),
        "response": response,
    }


if __name__ == "__main__":
    app.run()
