"""Tools of the Responses API as chat functions, and the way back from a call to its tool.

A custom tool is a function with one string, ``input``; a tool of a namespace is a function named
``namespace__name``; the local shell is a function with its action's fields. Their calls are turned
back into the items that the client knows. A grammar is told to the model in the description and
not enforced: constrained sampling would not be the policy's own.

Hosted tools have nobody to run them. Those that Codex offers unasked are left out and flagged on
the turn; any other is refused.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from ..fault import bad_request
from .base import encode

FUNCTION, CUSTOM, LOCAL_SHELL = "function", "custom", "local_shell"
LEFT_OUT = ("web_search", "web_search_preview", "tool_search")
INPUT_SCHEMA = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
SHELL_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}},
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "user": {"type": "string"},
    },
    "required": ["command"],
}
MAX_KNOWN = 64
"""Tool lists remembered; above it the memo starts again."""

_list = msgspec.json.Decoder(list[dict[str, Any]])
_any = msgspec.json.Decoder(Any)


class Tool(msgspec.Struct, frozen=True):
    """What a chat function stands for."""

    kind: str
    name: str
    namespace: str | None = None

    @property
    def chat_name(self) -> str:
        return chat_name(self.name, self.namespace)


class Toolbox(msgspec.Struct):
    """The tools of one request; shared between requests that offer the same ones."""

    tools: dict[str, Tool] = {}
    """By chat name."""
    chat: list[dict[str, Any]] = []
    raw: Raw = Raw(b"[]")
    """The same as JSON."""
    flags: list[str] = []

    def find(self, name: str) -> Tool:
        return self.tools.get(name) or Tool(FUNCTION, name)

    @property
    def special(self) -> bool:
        """Some calls change their shape on the way to the client."""
        return any(tool.kind != FUNCTION for tool in self.tools.values())


_known: dict[bytes, Toolbox] = {}
NO_TOOLS = Toolbox()


def chat_name(name: str, namespace: str | None) -> str:
    return f"{namespace}__{name}" if namespace else name


def read_tools(raw: Raw | None) -> Toolbox:
    if raw is None:
        return NO_TOOLS
    key = bytes(raw)
    box = _known.get(key)
    if box is None:
        try:
            tools = _list.decode(key)
        except (msgspec.DecodeError, RecursionError):
            raise bad_request("'tools' must be a list of objects", "tools") from None
        box = Toolbox({}, [], Raw(), [])
        for tool in tools:
            _add(box, tool, None)
        box.raw = Raw(encode(box.chat))
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = box
    return box


def _add(box: Toolbox, tool: dict[str, Any], namespace: str | None) -> None:
    kind = tool.get("type")
    if kind == "namespace" and namespace is None:
        for inner in _inner(tool):
            _add(box, inner, _name(tool))
    elif kind == FUNCTION:
        _offer(box, FUNCTION, tool, namespace, tool.get("description"), tool.get("parameters"))
    elif kind == CUSTOM:
        if _format(tool).get("type") == "grammar":
            _flag(box, "grammar_not_enforced")
        _offer(box, CUSTOM, tool, namespace, _custom_description(tool), INPUT_SCHEMA)
    elif kind == LOCAL_SHELL:
        text = "Runs a command, given as a list of arguments, and returns its output."
        _offer(box, LOCAL_SHELL, {"name": LOCAL_SHELL}, namespace, text, SHELL_SCHEMA)
    elif kind in LEFT_OUT:
        _flag(box, f"tool_left_out:{kind}")
    else:
        raise bad_request(
            f"tools of type {kind!r} are not supported by this gateway: tools run on the agent's "
            "side, as 'function', 'custom', 'namespace' or 'local_shell'",
            "tools",
        )


def _name(tool: dict[str, Any]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise bad_request(f"a {tool.get('type')} tool needs a 'name'", "tools")
    return name


def _format(tool: dict[str, Any]) -> dict[str, Any]:
    form = tool.get("format") or {}
    if not isinstance(form, dict):
        raise bad_request("a custom tool's 'format' must be an object", "tools")
    return form


def _inner(tool: dict[str, Any]) -> list[dict[str, Any]]:
    inner = tool.get("tools")
    if not isinstance(inner, list) or not all(isinstance(one, dict) for one in inner):
        raise bad_request("a namespace's 'tools' must be a list of objects", "tools")
    return inner


def _offer(
    box: Toolbox,
    kind: str,
    tool: dict[str, Any],
    namespace: str | None,
    description: Any,
    parameters: Any,
) -> None:
    entry = Tool(kind, _name(tool), namespace)
    if entry.chat_name in box.tools:
        raise bad_request(f"two tools are named {entry.chat_name!r}", "tools")
    function: dict[str, Any] = {"name": entry.chat_name}
    if description:
        function["description"] = description
    function["parameters"] = parameters or {"type": "object", "properties": {}}
    if tool.get("strict"):
        function["strict"] = True
    box.tools[entry.chat_name] = entry
    box.chat.append({"type": "function", "function": function})


def _custom_description(tool: dict[str, Any]) -> str:
    parts = [str(tool.get("description") or "")]
    form = _format(tool)
    if form.get("type") == "grammar":
        syntax, grammar = form.get("syntax"), form.get("definition")
        parts.append(f"'input' must match this {syntax} grammar:\n{grammar}")
    return "\n\n".join(part for part in parts if part)


def _flag(box: Toolbox, flag: str) -> None:
    if flag not in box.flags:
        box.flags.append(flag)


def read_choice(raw: Raw | None, box: Toolbox) -> Any:
    """``tool_choice`` in chat shape; None where it says what is so anyway."""
    choice: Any = None if raw is None else _any.decode(raw)
    if choice in (None, "auto") or (choice == "none" and not box.tools):
        return None
    if choice in ("none", "required") and box.tools:
        return choice
    if isinstance(choice, dict) and choice.get("type") in (FUNCTION, CUSTOM, LOCAL_SHELL):
        name = chat_name(str(choice.get("name") or choice["type"]), choice.get("namespace"))
        if name in box.tools:
            return {"type": "function", "function": {"name": name}}
    raise bad_request(
        "'tool_choice' must be 'auto', 'none', 'required' or name one of the request's function, "
        "custom or local_shell tools",
        "tool_choice",
    )
