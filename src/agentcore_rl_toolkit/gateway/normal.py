"""Known prefix killers taken out of requests: what changes every time and tells the model nothing.

Agents put things into their prompts that differ from one request to the next, so that no prompt
continues the one before it: the session falls into one row a turn and no cache is ever warm. Each
rule of the table takes one such thing out, before the request is placed, rendered or sent on.

Invariants: the request is recorded as it was received; a turn says by its ``edits`` what the engine
saw instead, byte for byte, and ``revert`` undoes them; a rule is a pure function of one message or
of the tools, so the same request always becomes the same. Rules that a request does not concern
cost one search for a word in its body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from ..trajectory.turn import Edit
from .dialects.base import Ask, encode, join

BILLING = "x-anthropic-billing-header:"
_CLOCK = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
    r"(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?"
)
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any)
TOOLS = "/tools"
MESSAGE = "/messages/"
SYSTEM_ROLES = ("system", "developer")


class Rule(NamedTuple):
    """One line of the table."""

    does: str
    default: bool
    hint: bytes
    """A request without it is none of the rule's business."""
    message: Callable[[dict[str, Any]], Any] | None = None
    """What becomes of a message."""
    leading: bool = False
    """Only of the system prompt, which comes first."""
    tools: Callable[[list[Any]], list[Any]] | None = None


def _without_billing(message: dict[str, Any]) -> Any:
    return _with_texts(message, _cut_billing)


def _cut_billing(text: str) -> str:
    return text.partition("\n")[2].lstrip("\n") if text.startswith(BILLING) else text


def _without_clock(message: dict[str, Any]) -> Any:
    return _with_texts(message, lambda text: _CLOCK.sub(r"\1", text))


def _with_texts(message: dict[str, Any], change: Callable[[str], str]) -> Any:
    """A message with its texts changed; parts that become empty go."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": change(content)}
    if not isinstance(content, list):
        return message
    parts = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            part = {**part, "text": change(part["text"])}
            if not part["text"]:
                continue
        parts.append(part)
    return {**message, "content": parts}


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [_without_marks(v) for v in value] if isinstance(value, list) else value


def _by_name(tools: list[Any]) -> list[Any]:
    def name(tool: Any) -> str:
        function = tool.get("function") if isinstance(tool, dict) else None
        return str((function if isinstance(function, dict) else tool or {}).get("name", ""))

    return sorted(tools, key=name)


RULES: dict[str, Rule] = {
    "billing": Rule(
        "the billing line that Claude Code puts before its system prompt is left out",
        True,
        BILLING.encode(),
        message=_without_billing,
        leading=True,
    ),
    "cache_marks": Rule(
        "cache_control is left out of messages and tools: it moves on with every request",
        True,
        b'"cache_control"',
        message=_without_marks,
        tools=_without_marks,
    ),
    "clock": Rule(
        "times of day in the system prompt are cut down to their date",
        False,
        b":",
        message=_without_clock,
        leading=True,
    ),
    "tool_order": Rule(
        "tools are put in the order of their names, for clients that list them in any order",
        False,
        b'"tools"',
        tools=_by_name,
    ),
}
DEFAULT_RULES = frozenset(name for name, rule in RULES.items() if rule.default)


def normalise(ask: Ask, names: Collection[str] = DEFAULT_RULES) -> None:
    """Applies the rules to a request in chat shape and notes on it what was done."""
    if ask.messages is None:
        return
    body = ask.fresh or ask.body  # messages that went through it before were left as they were
    for name in RULES:
        rule = RULES[name]
        if name not in names or rule.hint not in body:
            continue
        if rule.message is not None:
            _edit_messages(ask, name, rule)
        tools = ask.raw("tools")
        if rule.tools is not None and tools is not None and rule.hint in b'"tools":' + tools:
            after = encode(rule.tools(_any.decode(tools)))
            if _any.decode(after) != _any.decode(tools):
                ask.edits.append(_splice(name, TOOLS, tools, after))
                ask.fields["tools"] = Raw(after)


def _edit_messages(ask: Ask, name: str, rule: Rule) -> None:
    assert rule.message is not None, "asked for by the caller"
    messages, changed = ask.messages or [], False
    for number, raw in enumerate(messages):
        if rule.hint not in raw:
            continue
        message = _any.decode(raw)
        if rule.leading and message.get("role") not in SYSTEM_ROLES:
            break
        after = rule.message(message)
        if after == message:
            continue
        edited = encode(after)
        ask.edits.append(_splice(name, f"{MESSAGE}{number}", raw, edited))
        messages[number], changed = edited, True
    if changed:
        ask.fields["messages"] = join(messages)


def _splice(rule: str, where: str, before: bytes, after: bytes) -> Edit:
    """The shortest replacement that turns one into the other."""
    start = _common(before, after)
    tail = _common(before[start:][::-1], after[start:][::-1])
    return Edit(
        rule, where, start, before[start : len(before) - tail], after[start : len(after) - tail]
    )


def _common(one: bytes, other: bytes) -> int:
    """Length of the common beginning, by halving: comparing slices is quick, bytes are not."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def apply(edits: Sequence[Edit], messages: Sequence[bytes], tools: bytes | None) -> Seen:
    """What the engine saw, from the messages and tools of the request as recorded."""
    return _replay(edits, messages, tools, back=False)


def revert(edits: Sequence[Edit], messages: Sequence[bytes], tools: bytes | None) -> Seen:
    """What the client sent, from what the engine saw."""
    return _replay(list(edits)[::-1], messages, tools, back=True)


class Seen(NamedTuple):
    messages: list[bytes]
    tools: bytes | None


def _replay(
    edits: Sequence[Edit], messages: Sequence[bytes], tools: bytes | None, *, back: bool
) -> Seen:
    seen = list(messages)
    for edit in edits:
        old, new = (edit.after, edit.before) if back else (edit.before, edit.after)
        at = int(edit.where.removeprefix(MESSAGE)) if edit.where != TOOLS else None
        raw = (tools or b"") if at is None else seen[at]
        raw = raw[: edit.start] + new + raw[edit.start + len(old) :]
        if at is None:
            tools = raw
        else:
            seen[at] = raw
    return Seen(seen, tools)
