"""An OpenAPI description of the runtime, made from its table of routes.

What an AWS operation takes and gives is read from botocore's own service models, so the description
is AWS's where the runtime is, and says nothing of operations that it lacks. Only what differs here
is written down: local agents are named by ``file://`` URIs, and our own paths. The object store is
S3's, which has a description of its own.
"""

from __future__ import annotations

import re
from typing import Any

import botocore.session
from botocore.model import OperationModel, ServiceModel, Shape

from .. import __version__
from .route import OPERATIONS, Operation

SERVICES = {"data": "bedrock-agentcore", "control": "bedrock-agentcore-control"}
COMMON = {400: "ValidationException", 403: "AccessDeniedException"}
"""Refusals that every operation knows, whether or not its model names them."""
MORE = {
    "InvokeAgentRuntime": {404: "ResourceNotFoundException"},
    "InvokeAgentRuntimeCommand": {404: "ResourceNotFoundException"},
    "StopRuntimeSession": {404: "ResourceNotFoundException"},
    "ListAgentRuntimeEndpoints": {404: "ResourceNotFoundException"},
    "DeleteAgentRuntime": {404: "ResourceNotFoundException"},
}
LOCAL_PATTERNS = frozenset({"RuntimeContainerUri", "S3BucketName"})
"""Shapes whose pattern admits only what is on AWS."""
MAY_BE_EMPTY = frozenset({"Description", "AgentEndpointDescription"})
"""Lists must have them, whether or not there is one."""
_SIMPLE = {
    "string": {"type": "string"},
    "character": {"type": "string"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "long": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "timestamp": {"type": "string", "format": "date-time"},
    "blob": {"type": "string", "format": "binary"},
}
_LIMITS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "long": ("minimum", "maximum"),
    "list": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
}


def describe() -> dict[str, Any]:
    session = botocore.session.get_session()
    models = {plane: session.get_service_model(name) for plane, name in SERVICES.items()}
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        model = models.get(operation.plane)
        if model is not None and operation.name in model.operation_names:
            described = _aws(operation, model, schemas)
        else:
            described = _own(operation)
        paths.setdefault(operation.path, {})[operation.method.lower()] = {
            "operationId": operation.name,
            "tags": [operation.plane],
            **described,
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "local AgentCore Runtime", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


# --- AWS's own --------------------------------------------------------------------------------


def _aws(operation: Operation, service: ServiceModel, schemas: dict[str, Any]) -> dict[str, Any]:
    model: OperationModel = service.operation_model(operation.name)
    shape = model.input_shape
    described: dict[str, Any] = {"parameters": _parameters(shape, schemas)}
    if (body := _body(shape, schemas)) is not None:
        described["requestBody"] = body
    success = model.http.get("responseCode", 200)
    statuses = {**COMMON, **MORE.get(operation.name, {}), **_errors(model)}
    described["responses"] = {
        str(success): _success(model, schemas),
        **{str(code): {"description": name} for code, name in sorted(statuses.items())},
    }
    return described


def _errors(model: OperationModel) -> dict[int, str]:
    found: dict[int, str] = {}
    for shape in model.error_shapes:
        code = shape.metadata.get("error", {}).get("httpStatusCode")
        if code:
            found[code] = f"{found[code]}, {shape.name}" if code in found else shape.name
    return found


def _parameters(shape: Any, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    places = {"uri": "path", "querystring": "query", "header": "header"}
    parameters = []
    for name, member in shape.members.items() if shape else ():
        place = places.get(member.serialization.get("location", ""))
        if place is None:
            continue
        parameters.append(
            {
                "name": member.serialization.get("name", name),
                "in": place,
                "required": place == "path" or name in shape.required_members,
                "schema": schema(member, schemas),
            }
        )
    return parameters


def _body(shape: Any, schemas: dict[str, Any]) -> dict[str, Any] | None:
    if shape is None:
        return None
    if payload := shape.serialization.get("payload"):
        member = shape.members[payload]
        kind = "application/json" if member.type_name != "blob" else "*/*"
        return {"content": {kind: {"schema": schema(member, schemas)}}}
    members = {n: m for n, m in shape.members.items() if "location" not in m.serialization}
    if not members:
        return None
    needed = [name for name in shape.required_members if name in members]
    return {
        "required": bool(needed),
        "content": {"application/json": {"schema": _structure(members, needed, schemas)}},
    }


def _success(model: OperationModel, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": model.name}
    shape: Any = model.output_shape
    if shape is None or shape.serialization.get("payload"):
        return described  # bytes, or an event stream
    members = {n: m for n, m in shape.members.items() if "location" not in m.serialization}
    if members:
        needed = [name for name in shape.required_members if name in members]
        content = {"schema": _structure(members, needed, schemas)}
        described["content"] = {"application/json": content}
    return described


def schema(shape: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if shape.type_name == "structure" and not shape.metadata.get("document"):
        if shape.name not in schemas:
            schemas[shape.name] = {}  # taken: a shape may hold itself
            schemas[shape.name] = _structure(shape.members, shape.required_members, schemas)
            if shape.metadata.get("union"):
                schemas[shape.name] |= {"minProperties": 1, "maxProperties": 1}
        return {"$ref": f"#/components/schemas/{shape.name}"}
    made: dict[str, Any] = dict(_SIMPLE.get(shape.type_name, {}))
    if shape.type_name == "list":
        made = {"type": "array", "items": schema(shape.member, schemas)}
    elif shape.type_name == "map":
        made = {"type": "object", "additionalProperties": schema(shape.value, schemas)}
    return made | _limits(shape)


def _structure(members: Any, needed: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    properties = {m.serialization.get("name", n): schema(m, schemas) for n, m in members.items()}
    return {"type": "object", "properties": properties, "required": sorted(needed)}


def _limits(shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, limit in zip(("min", "max"), _LIMITS.get(shape.type_name, ()), strict=False):
        if name in shape.metadata and not (name == "min" and shape.name in MAY_BE_EMPTY):
            found[limit] = shape.metadata[name]
    if shape.metadata.get("enum"):
        found["enum"] = shape.metadata["enum"]
    pattern = shape.metadata.get("pattern")
    if pattern and shape.name not in LOCAL_PATTERNS and _is_pattern(pattern):
        found["pattern"] = f"^(?:{pattern})$"
    return found


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False  # Java's, not everyone's
    return True


# --- our own ----------------------------------------------------------------------------------

_JSON = {"application/json": {"schema": {"type": "object"}}}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}
_OWN: dict[str, tuple[str, dict[str, Any] | None, tuple[str, ...], tuple[int, ...]]] = {
    "About": ("What the runtime is", _JSON, (), ()),
    "Events": ("Results and ends of sessions, as they happen", _EVENTS, ("bucket", "prefix"), ()),
    "Metrics": ("Counters for Prometheus", _TEXT, (), ()),
    "OpenApi": ("This description", _JSON, (), ()),
    "ListSessions": ("Live sessions", _JSON, (), ()),
    "GetSession": ("A live session", _JSON, (), (404,)),
    "GetSessionLog": ("What a session printed; follow=1 goes on", _TEXT, ("follow",), (400, 404)),
    "SessionShell": ("A shell in a live session", None, ("rows", "cols"), (400, 404, 409, 424)),
    "InvokeAgentRuntimeCommandShell": (
        "A terminal in a session",
        None,
        ("qualifier", "shellId"),
        (400, 402, 404, 409, 424, 429),
    ),
    "WebSocket": ("To the agent's /ws", None, ("qualifier",), (400, 402, 404, 409, 424, 429)),
}
"""Operation to (what it is, content of a success or None for an upgrade, query, refusals)."""


def _own(operation: Operation) -> dict[str, Any]:
    title, content, query, refusals = _OWN[operation.name]
    places = [(name, "path") for name in re.findall(r"{(\w+)}", operation.path)]
    places += [(name, "query") for name in query]
    success = {"200": {"description": title, "content": content}}
    if content is None:
        success = {"101": {"description": "Switching Protocols"}}
    return {
        "summary": title,
        "parameters": [
            {
                "name": name,
                "in": place,
                "required": place == "path",
                "schema": {"type": "string", "minLength": 1},
            }
            for name, place in places
        ],
        "responses": {
            **success,
            **{str(code): {"description": "refused"} for code in (403, *refusals)},
        },
    }
