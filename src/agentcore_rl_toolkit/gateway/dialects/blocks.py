"""Anthropic's content blocks as chat messages.

Pure. A message is translated by itself, so that one that was seen before costs one look-up. What
has no place in a chat is a 400 that says so; ``cache_control`` and what only a vendor's own servers
understand is left out, since it changes between requests that mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ..fault import bad_request
from .base import encode

MEMO_BYTES = 32 << 20
"""Translated messages that are remembered, all sessions together."""


class Told(NamedTuple):
    """One message, translated."""

    role: str
    messages: list[bytes]


class Memo:
    """Translations by the raw messages that they were made of."""

    def __init__(self, max_bytes: int = MEMO_BYTES) -> None:
        self._known: dict[bytes, Told] = {}
        self._bytes, self._max_bytes = 0, max_bytes

    def translate(self, raws: list[bytes]) -> list[bytes]:
        """Neighbours of one role are one message, as the API has it."""
        known = self._known
        told = [known.get(raw) or self._told(raw, [raw]) for raw in raws]
        out: list[bytes] = []
        at = 0
        while at < len(told):
            end = at + 1
            while end < len(told) and told[end].role == told[at].role:
                end += 1
            if end - at > 1:
                key = b"\0".join(raws[at:end])
                out += (known.get(key) or self._told(key, raws[at:end])).messages
            else:
                out += told[at].messages
            at = end
        return out

    def _told(self, key: bytes, raws: list[bytes]) -> Told:
        messages = [read_message(raw) for raw in raws]
        blocks = [block for message in messages for block in message["content"]]
        told = Told(messages[0]["role"], translate(messages[0]["role"], blocks))
        self._bytes += len(key) + sum(map(len, told.messages)) + 256
        if self._bytes > self._max_bytes:
            self._known.clear()
            self._bytes = 0
        self._known[key] = told
        return told


def read_message(raw: bytes) -> dict[str, Any]:
    message = msgspec.json.decode(raw)
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
        raise bad_request("a message is an object with the role user or assistant", "messages")
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(b, dict) for b in content):
        raise bad_request("a message's 'content' is a string or a list of blocks", "messages")
    # instructions between the messages: many templates take a system prompt only at the head
    role = "assistant" if message["role"] == "assistant" else "user"
    return {"role": role, "content": content}


def translate(role: str, blocks: list[dict[str, Any]]) -> list[bytes]:
    if role == "assistant":
        return [encode(assistant(blocks))]
    return [encode(one) for one in user(blocks)]


def assistant(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            calls.append(call(block))
        elif kind != "redacted_thinking":
            raise unknown(kind, "an assistant message")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    elif message["content"] is None:
        message["content"] = ""
    return message


def call(block: Mapping[str, Any]) -> dict[str, Any]:
    name = block.get("name")
    if not isinstance(name, str) or not isinstance(block.get("id"), str):
        raise bad_request("a tool_use block needs an 'id' and a 'name'", "messages")
    arguments = encode(block.get("input") or {}).decode()
    function = {"name": name, "arguments": arguments}
    return {"id": block["id"], "type": "function", "function": function}


def user(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool results are messages of their own; the rest stays together, in order."""
    out: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            rest.append(block)
            continue
        if rest:
            out.append({"role": "user", "content": content(rest)})
            rest = []
        out.append(result(block))
    if rest or not out:
        out.append({"role": "user", "content": content(rest)})
    return out


def result(block: Mapping[str, Any]) -> dict[str, Any]:
    inner = block.get("content")
    if isinstance(inner, list):
        inner = content(inner)
    elif not isinstance(inner, str | None):
        raise bad_request("a tool_result's 'content' is a string or a list of blocks", "messages")
    if not isinstance(block.get("tool_use_id"), str):
        raise bad_request("a tool_result block needs a 'tool_use_id'", "messages")
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": inner or ""}


def content(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text as a string, which every template takes; parts only where there is more than text."""
    parts = [part(block) for block in blocks]
    if all(one["type"] == "text" for one in parts):
        return "\n".join(one["text"] for one in parts)
    return parts


def part(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind == "text":
        return {"type": "text", "text": text_of(block)}
    source = block.get("source") if isinstance(block, Mapping) else None
    if kind == "image" and isinstance(source, Mapping):
        url = source.get("url")
        if source.get("type") == "base64":
            url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        if isinstance(url, str):
            return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document" and isinstance(source, Mapping) and source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data"))}
    if kind == "tool_reference":
        return {"type": "text", "text": str(block.get("tool_name"))}
    raise unknown(kind, "a user message")


def text_of(block: Mapping[str, Any]) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise bad_request("a text block needs a 'text'", "messages")
    return text


def unknown(kind: object, place: str) -> Exception:
    return bad_request(f"a block of type {kind!r} in {place} is not supported", "messages")


def system(value: object) -> str:
    """The system prompt as one text."""
    if isinstance(value, str):
        value = [{"type": "text", "text": value}]
    if not isinstance(value, list) or not all(isinstance(b, dict) for b in value):
        raise bad_request("'system' is a string or a list of text blocks", "system")
    for block in value:
        if block.get("type") != "text":
            raise bad_request("'system' takes text blocks only", "system")
    return "\n".join(text_of(block) for block in value)
