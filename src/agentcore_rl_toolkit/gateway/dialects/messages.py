"""Anthropic's ``/v1/messages`` and ``/v1/messages/count_tokens``.

The request becomes a chat request, the answer comes back as content blocks. Reasoning is a
thinking block; ``thinking: {"type": "disabled"}`` leaves it out of the answer and not out of the
turn. The chat template is never switched by it: that is for the session's ``sampling`` to say.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from ..fault import Refusal, bad_request
from .base import (
    Ask,
    Dialect,
    Outlet,
    chat_ask,
    encode,
    first_byte,
    read_fields,
    refuse,
    take_bool,
)
from .blocks import Memo, system
from .messages_reply import MessagesOutlet

_raws = msgspec.json.Decoder(list[Raw])
_any = msgspec.json.Decoder(Any)

SAME = (
    *("model", "max_tokens", "temperature", "top_p", "top_k", "seed", "min_p", "stop_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "chat_template_kwargs"),
)
"""Parameters that mean the same in a chat request."""
READ = frozenset(
    {*SAME, "messages", "system", "stop_sequences", "stream", "tools", "tool_choice", "thinking"}
    | {"output_config", "output_format", "metadata", "service_tier", "cache_control", "betas"}
)
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class MessagesDialect(Dialect):
    name = "messages"
    salt = b"messages:"
    translated = True
    keep_alive = b'event: ping\ndata: {"type": "ping"}\n\n'
    refused: ClassVar[dict[str, str]] = {
        "mcp_servers": "tools run on the agent's side",
        "container": "tools run on the agent's side",
    }

    def __init__(self) -> None:
        self._memo = Memo()

    def parse(self, body: bytes) -> Ask:
        fields = read_fields(body)
        refuse(fields, self.refused)
        messages = self._messages(fields.get("messages"))
        chat: dict[str, Any] = {name: fields[name] for name in SAME if name in fields}
        flags = [f"ignored:{name}" for name in sorted(fields.keys() - READ)]
        if "system" in fields:
            text = system(_any.decode(fields["system"]))
            messages = [encode({"role": "system", "content": text}), *messages]
        if "stop_sequences" in fields:
            chat["stop"] = fields["stop_sequences"]
        chat |= tools_of(fields) | format_of(fields)
        thinking = read_object(fields, "thinking")
        return chat_ask(
            self.name,
            body,
            chat,
            messages,
            stream=take_bool(fields, "stream"),
            flags=flags,
            hides_reasoning=thinking.get("type") == "disabled",
        )

    def _messages(self, raw: Raw | None) -> list[bytes]:
        if raw is None or first_byte(raw) != b"[":
            raise bad_request("'messages' must be a list", "messages")
        split = [bytes(one) for one in _raws.decode(raw)]
        if not split:
            raise bad_request("'messages' must have at least one message", "messages")
        messages = self._memo.translate(split)
        if messages[-1].startswith(b'{"role":"assistant"'):
            raise bad_request(
                "the last message is the assistant's: an answer that begins with given words "
                "is not the policy's own, so it is not sampled here",
                "messages",
            )
        return messages

    def outlet(self, ask: Ask) -> Outlet:
        return MessagesOutlet(ask)

    def error(self, refusal: Refusal) -> bytes:
        kind = ERROR_TYPES.get(refusal.status)
        if kind is None:
            kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
        return encode({"type": "error", "error": {"type": kind, "message": words_of(refusal)}})

    def error_event(self, refusal: Refusal) -> bytes:
        return b"event: error\ndata: %b\n\n" % self.error(refusal)


def words_of(refusal: Refusal) -> str:
    """The message of an engine's own error, which has another API's shape, or ours."""
    try:
        error = msgspec.json.decode(refusal.body)["error"] if refusal.body else None
        return str(error["message"]) if error else refusal.message
    except (msgspec.DecodeError, TypeError, KeyError):
        return refusal.message


def read_object(fields: Mapping[str, Raw], name: str) -> dict[str, Any]:
    value: object = _any.decode(fields[name]) if name in fields else {}
    if not isinstance(value, dict):
        raise bad_request(f"{name!r} must be an object", name)
    return value


def tools_of(fields: Mapping[str, Raw]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    tools = tool_list(bytes(fields["tools"])) if "tools" in fields else None
    if tools is not None:
        out["tools"] = tools
    choice = read_object(fields, "tool_choice")
    if not choice:
        return out
    kind = choice.get("type")
    if kind == "tool":
        out["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif kind in CHOICES:
        out["tool_choice"] = CHOICES[kind]
    else:
        raise bad_request("'tool_choice' is of type auto, any, tool or none", "tool_choice")
    if choice.get("disable_parallel_tool_use"):
        out["parallel_tool_calls"] = False
    return out


@functools.lru_cache(maxsize=64)
def tool_list(raw: bytes) -> Raw | None:
    """The same long list comes with every request of an agent."""
    tools: object = _any.decode(raw)
    if not isinstance(tools, list):
        raise bad_request("'tools' must be a list", "tools")
    return Raw(encode([tool(one) for one in tools])) if tools else None


def tool(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise bad_request("a tool is an object with a 'name'", "tools")
    schema = given.get("input_schema")
    if not isinstance(schema, Mapping):
        raise bad_request(
            f"tool {given['name']!r} of type {given.get('type')!r} has no 'input_schema': tools "
            "that a vendor's servers define or run are not known to this model",
            "tools",
        )
    function = {"name": given["name"], "description": given.get("description") or ""}
    return {"type": "function", "function": {**function, "parameters": schema}}


def format_of(fields: Mapping[str, Raw]) -> dict[str, Any]:
    """A JSON schema that the answer must keep, under either of its names."""
    wanted = read_object(fields, "output_config").get("format")
    wanted = wanted or read_object(fields, "output_format")
    if not wanted:
        return {}
    if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), Mapping):
        raise bad_request("an output format is of type json_schema with a 'schema'")
    schema = {"name": "answer", "schema": wanted["schema"], "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


MESSAGES = MessagesDialect()
