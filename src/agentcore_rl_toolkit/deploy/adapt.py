"""A production agent made trainable: app class, decorator, model and return value.

Works on the text by the places of its syntax tree, so formatting and comments stay. What it cannot
decide it does not touch and says so in ``notes``; what cannot be a rollout at all is a ConfigError.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import ConfigError
from .edit import Source

BASE, OURS = "BedrockAgentCoreApp", "AgentCoreRLApp"
MODEL = {
    "base_url": '{cfg}["base_url"]',
    "api_key": '{cfg}.get("api_key", "EMPTY")',
    "model_id": '{cfg}["model_id"]',
    "model": '{cfg}["model_id"]',
}
"""Arguments by which clients and frameworks are told their model, and what a rollout says."""

Handler = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Adapted:
    before: str
    after: str
    notes: list[str] = field(default_factory=list)
    """What is left for the author."""

    def diff(self, old: str, new: str) -> str:
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), old, new
        )
        return "".join(lines)


def adapt(text: str) -> Adapted:
    try:
        source = Source(text)
    except SyntaxError as error:
        raise ConfigError(f"line {error.lineno} is not Python: {error.msg}") from None
    if "rollout_entrypoint" in text:
        raise ConfigError("it is trainable already: it has a rollout_entrypoint")
    out = Adapted(text, "")
    handler = find_handler(source.tree)
    check_handler(handler)
    change_app(source)
    change_decorator(source, handler)
    change_model(source, handler, out.notes)
    change_returns(source, handler, out.notes)
    out.after = drop_unused_os(source.result())
    return out


def find_handler(tree: ast.Module) -> Handler:
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, Handler) and any(map(is_entrypoint, node.decorator_list))
    ]
    if len(found) != 1:
        raise ConfigError(
            f"it has {len(found)} functions under @app.entrypoint, and one is needed: name the "
            "script that starts the agent"
        )
    return found[0]


def is_entrypoint(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "entrypoint"


def check_handler(handler: Handler) -> None:
    if not handler.args.args and not handler.args.posonlyargs:
        raise ConfigError(f"the handler {handler.name} takes no payload: give it one argument")
    for node in own_nodes(handler):
        if isinstance(node, ast.Yield | ast.YieldFrom):
            raise ConfigError(
                f"the handler {handler.name} streams (line {node.lineno}), and a rollout has one "
                "result: write a second handler that returns a dict, in a file of its own"
            )


def own_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(root):
        if isinstance(child, Handler | ast.Lambda | ast.ClassDef):
            continue
        yield child
        yield from own_nodes(child)


def change_app(source: Source) -> None:
    """The import and the construction of the app."""
    done = False
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module in (
            "bedrock_agentcore",
            "bedrock_agentcore.runtime",
        ):
            kept = [name for name in node.names if name.name != BASE]
            if len(kept) == len(node.names):
                continue
            lines = [f"from agentcore_rl_toolkit import {OURS}"]
            if kept:
                names = ", ".join(ast.unparse(name) for name in kept)
                lines.insert(0, f"from {node.module} import {names}")
            source.replace(node, "\n".join(lines))
            done = True
        elif isinstance(node, ast.Call) and is_app(source.tree, node.func):
            source.replace(node.func, OURS)
    if not done:
        raise ConfigError(
            f"it does not import {BASE} by name: write 'from bedrock_agentcore import {BASE}'"
        )


def is_app(tree: ast.Module, node: ast.expr) -> bool:
    names = {BASE} | {
        alias.asname
        for item in ast.walk(tree)
        if isinstance(item, ast.ImportFrom)
        for alias in item.names
        if alias.name == BASE and alias.asname
    }
    return isinstance(node, ast.Name) and node.id in names


def change_decorator(source: Source, handler: Handler) -> None:
    for node in handler.decorator_list:
        if is_entrypoint(node):
            said = source.said(node)
            source.replace(node, said.removesuffix("entrypoint") + "rollout_entrypoint")


def change_model(source: Source, handler: Handler, notes: list[str]) -> None:
    """Arguments named as a model's in the handler; those elsewhere are pointed out."""
    inside = list(ast.walk(handler))
    payload = payload_name(handler)
    found = list(model_arguments(inside))
    for name, value in found:
        source.replace(value, MODEL[name].format(cfg="cfg"))
    if found:
        source.insert_before(first_statement(handler), f'cfg = {payload}["_rollout"]')
    within = set(map(id, inside))
    outside = [node for node in ast.walk(source.tree) if id(node) not in within]
    for name, value in model_arguments(outside):
        said = MODEL[name].format(cfg=f'{payload}["_rollout"]')
        notes.append(
            f"line {value.lineno}: {name} is set outside the handler. Make the model inside it, "
            f"with {said}"
        )
    told = {name for name, _ in found}
    if not notes and "base_url" not in told:
        notes.append(
            "no base_url was found: give the model's client, inside the handler, "
            f'base_url={payload}["_rollout"]["base_url"]'
        )


def payload_name(handler: Handler) -> str:
    return (handler.args.posonlyargs + handler.args.args)[0].arg


def model_arguments(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Keyword arguments, and the keys of dicts that are arguments themselves."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        yield from of_model({k.arg: k.value for k in node.keywords if k.arg})
        for keyword in node.keywords:
            if isinstance(keyword.value, ast.Dict):
                pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
                yield from of_model(
                    {str(k.value): v for k, v in pairs if isinstance(k, ast.Constant)}
                )


def of_model(given: dict[str, ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    for name, value in given.items():
        if name == "api_key" and "base_url" not in given:
            continue  # of another service
        if name == "model" and not is_text(value):
            continue  # Agent(model=model): the object, made elsewhere
        if name in MODEL:
            yield name, value


def is_text(value: ast.expr) -> bool:
    """A model's name: written out, a constant, or from the environment."""
    if isinstance(value, ast.Name):
        return value.id.isupper()
    said = ast.unparse(value)
    return isinstance(value, ast.Constant | ast.JoinedStr) or "environ" in said or "getenv" in said


def first_statement(handler: Handler) -> ast.stmt:
    first = handler.body[0]
    if first.lineno == handler.lineno:
        raise ConfigError(f"the handler {handler.name} is written on one line: give it a block")
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return handler.body[1] if is_docstring and len(handler.body) > 1 else first


def change_returns(source: Source, handler: Handler, notes: list[str]) -> None:
    returns = [node for node in own_nodes(handler) if isinstance(node, ast.Return)]
    if not any(node.value for node in returns):
        raise ConfigError(f"the handler {handler.name} returns nothing: a rollout needs a result")
    payload = payload_name(handler)
    rewarded = f'"rewards": reward(**{{**{payload}, **result}})}}'
    for node in returns:
        if node.value is None:
            source.replace(node, "return {}")
            continue
        is_dict = isinstance(node.value, ast.Dict)
        head, tail = ("", "") if is_dict else ('{"response": ', "}")
        if not is_dict:
            notes.append(f"line {node.lineno}: what is returned is kept as 'response' of a dict")
        if source.begins_line(node):
            source.replace_span(source.start(node), source.start(node.value), f"result = {head}")
            indent = " " * node.col_offset
            source.insert(source.end(node), f"{tail}\n{indent}return {{**result, {rewarded}")
        else:
            at = source.start(node.value)
            source.insert(at, f"{{**(result := {head}")
            source.insert(source.end(node), f"{tail}), {rewarded}")
    imports = [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    source.insert(source.end(imports[-1]), "\nfrom reward import reward")


def drop_unused_os(text: str) -> str:
    """``import os`` was there for the model's variables, and may have gone with them."""
    source = Source(text)
    used = any(isinstance(n, ast.Name) and n.id == "os" for n in ast.walk(source.tree))
    for node in source.tree.body:
        if isinstance(node, ast.Import) and [a.name for a in node.names] == ["os"] and not used:
            source.remove_line(node)
    return source.result()
