"""A plain loop over the OpenAI client, asynchronous, with one tool."""

from __future__ import annotations

import ast
import json
import operator
from typing import Any

from openai import AsyncOpenAI

from agentcore_rl_toolkit import AgentCoreRLApp, FinalAnswer

MAX_TURNS = 5
TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Compute an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}

app = AgentCoreRLApp()
reward = FinalAnswer()


@app.rollout_entrypoint
async def solve(payload: dict[str, Any]) -> dict[str, Any]:
    cfg = payload["_rollout"]
    messages: list[Any] = [{"role": "user", "content": payload["prompt"]}]
    turns = 0
    async with AsyncOpenAI(base_url=cfg["base_url"], api_key="EMPTY") as client:
        while turns < MAX_TURNS:
            turns += 1
            completion = await client.chat.completions.create(
                model=cfg["model_id"],
                messages=messages,
                tools=[TOOL],  # type: ignore[list-item]
                **cfg.get("sampling_params", {}),
            )
            message = completion.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                answer = calculate(json.loads(call.function.arguments)["expression"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
    response = message.content or ""
    return {
        "rewards": reward(response=response, answer=payload.get("answer")),
        "metrics": {"turns": turns},
        "response": response,
    }


def calculate(expression: str) -> str:
    def value(node: Any) -> Any:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        raise ValueError(f"cannot compute {ast.dump(node)}")

    try:
        return str(value(ast.parse(expression, mode="eval").body))
    except (SyntaxError, ValueError) as error:
        return f"error: {error}"


if __name__ == "__main__":
    app.run()
