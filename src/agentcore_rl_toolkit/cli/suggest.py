"""The command to type after a deployment, with a payload that the agent's handler can read."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from ..rollout import ROLLOUT
from .show import console, escape, hint

QUESTION = '{"prompt": "What is 6 * 7?", "answer": "42"}'
GREETING = '{"prompt": "hello"}'
MODEL = " --rollout --base-url MODEL_URL --model-id MODEL"


class Handler(NamedTuple):
    """What the source says of an agent's entrypoint."""

    is_rollout: bool
    fields: list[str]
    """Of the payload, in the order in which they are read."""
    whole: bool
    """It hands its payload on: other fields may be read elsewhere."""


def print_next(script: Path, agent: str, *, rollout: str = "", always: str = "") -> bool:
    """``agent``: as ``art invoke`` takes it; ``rollout``, ``always``: options that it needs then.
    Whether the command names a model."""
    handler = read_handler(script)
    payload = example(handler)
    is_rollout = handler is not None and handler.is_rollout
    options = f"{MODEL}{rollout}{always}" if is_rollout else always
    console.print("\nnext:", style="dim")
    console.print(f"  {escape(f'art invoke {agent} {payload}{options}')}", soft_wrap=True)
    if payload.startswith("@"):
        fields = ", ".join(handler.fields) if handler is not None else ""
        if fields and handler is not None and handler.whole:
            fields += " and more"
        hint(f"{payload[1:]} is one payload, a row of the agent's data{fields and f': {fields}'}")
    return is_rollout


def example(handler: Handler | None) -> str:
    if handler is None or handler.whole or not set(handler.fields) <= {"prompt", "answer"}:
        return "@row.json"
    # most rewards need an answer to compare with
    return f"'{QUESTION if handler.is_rollout else GREETING}'"


def read_handler(script: Path) -> Handler | None:
    """None where there is nothing to be read: a program, or an entrypoint that is not in sight."""
    if script.suffix != ".py":
        return None
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.args:
            for decorator in node.decorator_list:
                if getattr(decorator, "attr", "") in ("entrypoint", "rollout_entrypoint"):
                    return describe(node, getattr(decorator, "attr", ""))
    return None


def describe(handler: ast.FunctionDef | ast.AsyncFunctionDef, decorator: str) -> Handler:
    payload = handler.args.args[0].arg
    fields, whole = [], False
    for node in ast.walk(handler):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(field))):
                if name == payload and field != ROLLOUT and field not in fields:
                    fields.append(field)
            case ast.Call(args=arguments):
                whole |= any(isinstance(a, ast.Name) and a.id == payload for a in arguments)
    return Handler(decorator == "rollout_entrypoint", fields, whole)
