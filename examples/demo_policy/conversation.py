"""Conversations of the math agent as token ids, rendered as the gateway renders them.

The system prompt and the tool's schema are those that Strands really sent, kept in
``request.json`` (written by ``capture_request.py``). ``demonstration`` shows how to solve a
problem, with mistakes on purpose: the policy that learns from it must have something left to
learn. Numbers are always copied right: a policy of this size learns that from demonstrations, and
hardly from rewards.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from pathlib import Path
from typing import Any

from problems import Problem

HERE = Path(__file__).resolve().parent
MODEL = HERE / "model"

NO_CALL = 0.10
WRONG_SIGN = 0.05
MISTAKE = (0.60, 0.40)
"""Share of mistaken expressions, for stories with an even and with an odd number."""


@functools.cache
def agent_request() -> dict[str, Any]:
    """``messages`` up to the system prompt, and ``tools``."""
    request: dict[str, Any] = json.loads((HERE / "request.json").read_text())
    return request


def opening(prompt: str) -> list[dict[str, Any]]:
    return [*agent_request()["messages"], {"role": "user", "content": prompt}]


def tool_result(content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call", "content": content}


def call_text(expression: str) -> str:
    """Between the tool-call marks."""
    arguments = json.dumps({"expression": expression})
    return '\n{"name": "calculator", "arguments": ' + arguments + "}\n"


def make_renderer(tokenizer: Any) -> Any:
    from renderers import Qwen3RendererConfig, create_renderer

    return create_renderer(tokenizer, Qwen3RendererConfig())


@dataclasses.dataclass
class Demonstration:
    prompt: str
    expression: str | None
    """None: answers without the tool."""
    result: str
    answer: str


def demonstration(problem: Problem, rng: random.Random) -> Demonstration:
    expression = problem.expression
    if rng.random() < MISTAKE[problem.story % 2]:
        expression = problem.mistake
    if rng.random() < WRONG_SIGN:
        expression = _with_wrong_sign(expression, rng)
    result = calculate(expression)
    if rng.random() < NO_CALL:
        return Demonstration(problem.prompt, None, "", str(rng.randint(2, 9999)))
    return Demonstration(problem.prompt, expression, result, result)


def calculate(expression: str) -> str:
    """What the agent's calculator answers."""
    value = eval(expression, {"__builtins__": {}})  # our own text, made of numbers and signs
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _with_wrong_sign(expression: str, rng: random.Random) -> str:
    signs = [i for i, letter in enumerate(expression) if letter in "+-*/"]
    at = rng.choice(signs)
    return expression[:at] + rng.choice("+-*/") + expression[at + 1 :]


@dataclasses.dataclass
class Example:
    token_ids: list[int]
    loss_mask: list[int]


def tokens(demo: Demonstration, renderer: Any) -> Example:
    """The two turns as they are served: second prompt appended to the first answer's ids."""
    encode = renderer._tokenizer.encode
    end = renderer.get_stop_token_ids()[0]
    tools = agent_request()["tools"]
    prompt = renderer.render_ids(opening(demo.prompt), tools=tools, add_generation_prompt=True)
    final = [*encode(f"#### {demo.answer}", add_special_tokens=False), end]
    if demo.expression is None:
        return Example(prompt + final, [0] * len(prompt) + [1] * len(final))
    text = f"<tool_call>{call_text(demo.expression)}</tool_call>"
    call = [*encode(text, add_special_tokens=False), end]
    bridged = renderer.bridge_to_next_turn(prompt, call, [tool_result(demo.result)], tools=tools)
    between = len(bridged.token_ids) - len(prompt) - len(call)
    mask = [0] * len(prompt) + [1] * len(call) + [0] * between + [1] * len(final)
    return Example(bridged.token_ids + final, mask)
