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
from .model import Handler, change_model, payload_name

BASE, OURS = "BedrockAgentCoreApp", "AgentCoreRLApp"


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
    out.after = drop_unused_os(text, source.result())
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


def change_returns(source: Source, handler: Handler, notes: list[str]) -> None:
    returns = [node for node in own_nodes(handler) if isinstance(node, ast.Return)]
    if not any(node.value for node in returns):
        raise ConfigError(f"the handler {handler.name} returns nothing: a rollout needs a result")
    payload, reward = payload_name(handler), source.free_name("reward")
    for node in returns:
        if node.value is None:
            source.replace(node, "return {}")
            continue
        is_dict = makes_dict(handler, node.value)
        if not is_dict:
            notes.append(f"line {node.lineno}: what is returned is kept as 'response' of a dict")
        change_return(source, node, f"{reward}(**{{**{payload}, **%s}})", is_dict)
    imports = [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    known_as = "" if reward == "reward" else f" as {reward}"
    source.insert_after_line(imports[-1], f"from reward import reward{known_as}")


def change_return(source: Source, node: ast.Return, rewarded: str, is_dict: bool) -> None:
    """``rewarded``: the call of the reward, with a place for the name of the result."""
    assert node.value is not None, "it returns something"
    if is_dict and isinstance(node.value, ast.Name):
        name = node.value.id
        source.replace(node.value, f'{{**{name}, "rewards": {rewarded % name}}}')
        return
    rewarded = f'"rewards": {rewarded % "result"}}}'
    head, tail = ("", "") if is_dict else ('{"response": ', "}")
    if source.begins_line(node):
        source.replace_span(source.start(node), source.start(node.value), f"result = {head}")
        indent = " " * node.col_offset
        source.insert(source.end(node), f"{tail}\n{indent}return {{**result, {rewarded}")
    else:
        source.insert(source.start(node.value), f"{{**(result := {head}")
        source.insert(source.end(node), f"{tail}), {rewarded}")


def makes_dict(handler: Handler, value: ast.expr) -> bool:
    """Written out, ``dict(…)``, or a name that the handler gives nothing else."""
    if isinstance(value, ast.Name):
        given = [
            node.value
            for node in own_nodes(handler)
            if isinstance(node, ast.Assign)
            and any(isinstance(to, ast.Name) and to.id == value.id for to in node.targets)
        ]
        return bool(given) and all(isinstance(one, ast.Dict) for one in given)
    is_call = isinstance(value, ast.Call) and ast.unparse(value.func) == "dict"
    return isinstance(value, ast.Dict) or is_call


def drop_unused_os(before: str, after: str) -> str:
    """``import os`` was there for the model's variables, and may have gone with them."""
    source = Source(after)
    if not uses_os(Source(before).tree) or uses_os(source.tree):
        return after
    for node in source.tree.body:
        if isinstance(node, ast.Import) and [a.name for a in node.names] == ["os"]:
            source.remove_line(node)
    return source.result()


def uses_os(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "os" for node in ast.walk(tree))
