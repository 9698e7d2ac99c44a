"""How an agent is told its model: in a trainable one, by the rollout.

Arguments that are named as a model's are replaced inside the handler, and added to a client that
would go to its vendor without them. What is made outside the handler, and models of Bedrock, which
no gateway can stand in front of, are left as they are and pointed out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..errors import ConfigError
from .edit import Source

ARGUMENTS = {
    "base_url": '{cfg}["base_url"]',
    "api_key": '{cfg}.get("api_key", "EMPTY")',
    "model_id": '{cfg}["model_id"]',
    "model": '{cfg}["model_id"]',
}
"""By which clients and frameworks are told their model, and what a rollout says."""
CLIENTS = {"OpenAI", "AsyncOpenAI", "ChatOpenAI"}
"""Go to their vendor when they are given no ``base_url``."""
BEDROCK = {"BedrockModel", "ChatBedrock", "ChatBedrockConverse", "BedrockLLM"}

Handler = ast.FunctionDef | ast.AsyncFunctionDef


def change_model(source: Source, handler: Handler, notes: list[str]) -> None:
    """Replaces what is in the handler; says in ``notes`` what is left to its author."""
    inside = [node for node in ast.walk(handler) if isinstance(node, ast.Call)]
    within = set(map(id, inside))
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    outside = [node for node in calls if id(node) not in within]
    bedrock = [node for node in calls if is_bedrock(source.tree, node)]
    notes += [
        f"line {node.lineno}: a model of Bedrock cannot be trained. Make one inside the handler "
        "that calls an OpenAI-compatible endpoint (Strands: OpenAIModel, LangGraph: ChatOpenAI)"
        for node in bedrock
    ]
    cfg = source.free_name("cfg")
    payload = payload_name(handler)
    changed = [call for call in inside if call not in bedrock]
    told = {name for call in changed for name, _ in arguments_of(call)}
    alone = "base_url" not in told
    for call in changed:
        change_call(source, call, cfg, add=alone)
        if is_client(call):
            told.add("base_url")
    if told:
        source.insert_before(first_statement(handler), f'{cfg} = {payload}["_rollout"]')
    for call in (node for node in outside if node not in bedrock):
        for name, value in arguments_of(call):
            said = ARGUMENTS[name].format(cfg=f'{payload}["_rollout"]')
            notes.append(
                f"line {value.lineno}: {name} is set outside the handler. Make the model inside "
                f"it, with {said}"
            )
    if not notes and "base_url" not in told:
        notes.append(
            "no base_url was found: give the model's client, inside the handler, "
            f'base_url={payload}["_rollout"]["base_url"]'
        )


def change_call(source: Source, call: ast.Call, cfg: str, *, add: bool) -> None:
    for name, value in arguments_of(call):
        source.replace(value, ARGUMENTS[name].format(cfg=cfg))
    if add and is_client(call):
        given = {keyword.arg for keyword in call.keywords}
        wanted = [n for n in ("base_url", "api_key") if n not in given]
        texts = [f"{name}={ARGUMENTS[name].format(cfg=cfg)}" for name in wanted]
        source.add_arguments(call, texts)
        for keyword in call.keywords:
            if keyword.arg == "api_key":
                source.replace(keyword.value, ARGUMENTS["api_key"].format(cfg=cfg))


def called(call: ast.Call) -> str:
    """The last part of the name: ``openai.OpenAI(…)`` is an OpenAI."""
    return ast.unparse(call.func).rpartition(".")[2]


def is_client(call: ast.Call) -> bool:
    return called(call) in CLIENTS


def is_bedrock(tree: ast.Module, call: ast.Call) -> bool:
    if called(call) in BEDROCK:
        return True
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    texts = [ast.unparse(value) for value in [*call.args, *given.values()]]
    if called(call) in ("client", "init_chat_model") and any("bedrock" in text for text in texts):
        return True
    model = given.get("model")
    # An Agent of Strands whose model is a text, or none, asks Bedrock
    return is_strands_agent(tree, call) and not call.args and (model is None or is_text(model))


def is_strands_agent(tree: ast.Module, call: ast.Call) -> bool:
    return called(call) == "Agent" and any(
        isinstance(node, ast.ImportFrom) and node.module == "strands" for node in ast.walk(tree)
    )


def payload_name(handler: Handler) -> str:
    return (handler.args.posonlyargs + handler.args.args)[0].arg


def arguments_of(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Keyword arguments, and the keys of dicts that are arguments themselves."""
    yield from of_model({k.arg: k.value for k in call.keywords if k.arg})
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Dict):
            pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
            yield from of_model({str(k.value): v for k, v in pairs if isinstance(k, ast.Constant)})


def of_model(given: dict[str, ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    for name, value in given.items():
        if name == "api_key" and "base_url" not in given:
            continue  # of another service
        if name == "model" and not is_text(value):
            continue  # Agent(model=model): the object, made elsewhere
        if name in ARGUMENTS:
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
