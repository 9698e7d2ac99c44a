"""Every operation that the runtime has, by method and path: what is not in the table is not served.

The server dispatches by it and ``openapi.py`` describes it, so the description cannot leave one
out. Names, methods and paths of the two planes are AWS's own. An ARN is one path segment that
holds an encoded slash: paths are matched before they are decoded.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Plane = Literal["data", "control", "art"]


class Operation(NamedTuple):
    name: str
    method: str
    path: str
    plane: Plane


OPERATIONS = (
    Operation("InvokeAgentRuntime", "POST", "/runtimes/{agentRuntimeArn}/invocations", "data"),
    Operation(
        "StopRuntimeSession", "POST", "/runtimes/{agentRuntimeArn}/stopruntimesession", "data"
    ),
    Operation("InvokeAgentRuntimeCommand", "POST", "/runtimes/{agentRuntimeArn}/commands", "data"),
    Operation(
        "GetAgentCard",
        "GET",
        "/runtimes/{agentRuntimeArn}/invocations/.well-known/agent-card.json",
        "data",
    ),
    Operation("WebSocket", "GET", "/runtimes/{agentRuntimeArn}/ws", "data"),
    Operation(
        "InvokeAgentRuntimeCommandShell", "GET", "/runtimes/{agentRuntimeArn}/ws/shells", "data"
    ),
    Operation("CreateAgentRuntime", "PUT", "/runtimes/", "control"),
    Operation("ListAgentRuntimes", "POST", "/runtimes/", "control"),
    Operation("GetAgentRuntime", "GET", "/runtimes/{agentRuntimeId}/", "control"),
    Operation("UpdateAgentRuntime", "PUT", "/runtimes/{agentRuntimeId}/", "control"),
    Operation("DeleteAgentRuntime", "DELETE", "/runtimes/{agentRuntimeId}/", "control"),
    Operation(
        "ListAgentRuntimeVersions", "POST", "/runtimes/{agentRuntimeId}/versions/", "control"
    ),
    Operation(
        "CreateAgentRuntimeEndpoint",
        "PUT",
        "/runtimes/{agentRuntimeId}/runtime-endpoints/",
        "control",
    ),
    Operation(
        "ListAgentRuntimeEndpoints",
        "POST",
        "/runtimes/{agentRuntimeId}/runtime-endpoints/",
        "control",
    ),
    Operation(
        "GetAgentRuntimeEndpoint",
        "GET",
        "/runtimes/{agentRuntimeId}/runtime-endpoints/{endpointName}/",
        "control",
    ),
    Operation(
        "UpdateAgentRuntimeEndpoint",
        "PUT",
        "/runtimes/{agentRuntimeId}/runtime-endpoints/{endpointName}/",
        "control",
    ),
    Operation(
        "DeleteAgentRuntimeEndpoint",
        "DELETE",
        "/runtimes/{agentRuntimeId}/runtime-endpoints/{endpointName}/",
        "control",
    ),
    Operation("TagResource", "POST", "/tags/{resourceArn}", "control"),
    Operation("UntagResource", "DELETE", "/tags/{resourceArn}", "control"),
    Operation("ListTagsForResource", "GET", "/tags/{resourceArn}", "control"),
    Operation("About", "GET", "/_art/", "art"),
    Operation("Events", "GET", "/_art/events", "art"),
    Operation("Metrics", "GET", "/_art/metrics", "art"),
    Operation("OpenApi", "GET", "/_art/openapi.json", "art"),
    Operation("ListSessions", "GET", "/_art/sessions", "art"),
    Operation("GetSession", "GET", "/_art/sessions/{sessionId}", "art"),
    Operation("GetSessionLog", "GET", "/_art/sessions/{sessionId}/log", "art"),
    Operation("SessionShell", "GET", "/_art/sessions/{sessionId}/shell", "art"),
)
OURS = frozenset(operation.path.split("/")[1] for operation in OPERATIONS)
"""First segments that are the runtime's own; a bucket cannot have such a name."""

_ANY, _HERE = "{}", "{here}"


def _tree() -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for operation in OPERATIONS:
        node = tree
        for segment in operation.path.split("/")[1:]:
            node = node.setdefault(_ANY if segment.startswith("{") else segment, {})
        node.setdefault(_HERE, {})[operation.method] = operation
    return tree


_TREE = _tree()


def find(method: str, segments: list[str]) -> Operation | None:
    """``segments``: the raw path, split at its slashes. A parameter is never empty."""
    node = _TREE
    for segment in segments:
        following = node.get(segment) if segment not in (_ANY, _HERE) else None
        if following is None and segment:
            following = node.get(_ANY)
        if following is None:
            return None
        node = following
    found: Operation | None = node.get(_HERE, {}).get(method)
    return found
