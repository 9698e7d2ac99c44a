"""A session's answers, to put back what a client changed in them when it replays its history.

Two changes are known not to be meant. Some clients fill a call's missing parameters with their
schema's defaults; many drop reasoning, or never saw it. What the model said is then not in the
history any more, and an engine that renders messages itself would be given another prompt. Such a
message is put back as it was, and the turn says so; one that was changed in any other way stays as
the client has it.

Only for dialects that are translated, where no message is the engine's own bytes anyway.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from ...trajectory.messages import tell
from ..dialects.base import Ask, encode, join

PUT_BACK = "answer_put_back"
"""Flag of a turn whose history was mended."""
MAX_SEEN = 4096
REASONING = ("reasoning_content", "reasoning")

_ASSISTANT = b'{"role":"assistant"'
_CALLS = b'"tool_calls"'


class _Call(NamedTuple):
    keys: tuple[str, ...]
    """Parameters that the model gave, in its order."""
    digest: bytes


class AnswerBook:
    __slots__ = ("_calls", "_key", "_reasons", "_seen", "_thoughts")

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._reasons: dict[bytes, list[str]] = {}
        """Reasoning of answers with one digest, in the order they came."""
        self._thoughts: dict[str, str] = {}
        """Reasoning by the id of a call that it led to: tells answers with equal words apart."""
        self._key = REASONING[0]
        """What the engine calls it."""
        self._seen: dict[tuple[bytes, int], bytes] = {}
        """Replayed messages, the how manieth of its kind, and what became of them."""

    def learn(self, message: bytes) -> None:
        """Remembers an answer as it was sent to the client."""
        if _CALLS not in message and b'"reasoning' not in message:
            return
        answer = msgspec.json.decode(message)
        for call in answer.get("tool_calls") or ():
            given = _arguments(call)
            if given is not None and isinstance(call.get("id"), str):
                self._calls[call["id"]] = _Call(tuple(given), _digest(call, given))
        for key in REASONING:
            if answer.get(key):
                self._key = key
                known = self._reasons.setdefault(tell(answer).digest, [])
                if answer[key] not in known:
                    known.append(answer[key])
                for call in answer.get("tool_calls") or ():
                    self._thoughts[str(call.get("id"))] = answer[key]

    def restore(self, ask: Ask) -> None:
        if not (self._calls or self._reasons) or ask.messages is None:
            return
        out = list(ask.messages)
        counts: Counter[bytes] = Counter()
        for at, message in enumerate(out):
            if not message.startswith(_ASSISTANT):
                continue
            place = (message, counts[message])
            counts[message] += 1
            known = self._seen.get(place)
            if known is None:
                if len(self._seen) >= MAX_SEEN:
                    self._seen.clear()
                known = self._seen[place] = self._restored(message, place[1], ask)
            out[at] = known
        if any(new is not old for new, old in zip(out, ask.messages, strict=True)):
            ask.messages, ask.fields["messages"] = out, join(out)
            ask.flags = [*ask.flags, PUT_BACK]

    def _restored(self, message: bytes, number: int, ask: Ask) -> bytes:
        decoded = msgspec.json.decode(message)
        schemas = _schemas(ask) if _CALLS in message else {}
        changed = [self._mended(call, schemas) for call in decoded.get("tool_calls") or ()]
        was = next((key for key in REASONING if decoded.get(key)), None)
        thought = decoded.pop(was) if was else None
        reasons = self._reasons.get(tell(decoded).digest)
        if reasons and thought is None:
            names = (str(call.get("id")) for call in decoded.get("tool_calls") or ())
            led = (self._thoughts[name] for name in names if name in self._thoughts)
            thought = next(led, reasons[min(number, len(reasons) - 1)])
        if thought is not None:
            decoded[self._key] = thought
        same = (thought is None or was == self._key) and not any(changed)
        return message if same else encode(decoded)

    def _mended(self, call: Any, schemas: dict[str, Any]) -> bool:
        """Takes out of a call what only repeats its schema's defaults."""
        known, given = self._calls.get(call.get("id")), _arguments(call)
        if known is None or given is None or not given.keys() > set(known.keys):
            return False
        schema = schemas.get(call["function"].get("name"), {})
        if not all(_is_default(schema.get(k), given[k]) for k in given.keys() - set(known.keys)):
            return False
        kept = {key: given[key] for key in known.keys}
        if _digest(call, kept) != known.digest:
            return False
        call["function"]["arguments"] = encode(kept).decode()
        return True


def _arguments(call: Any) -> dict[str, Any] | None:
    try:
        given = msgspec.json.decode(call["function"]["arguments"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return given if isinstance(given, dict) else None


def _digest(call: Any, arguments: dict[str, Any]) -> bytes:
    """By what the graph itself goes by, so that what is put back is found."""
    function = {"name": call["function"].get("name"), "arguments": encode(arguments).decode()}
    return tell({"role": "assistant", "tool_calls": [{"function": function}]}).digest


def _schemas(ask: Ask) -> dict[str, Any]:
    """Parameters of every tool that the request offers."""
    out: dict[str, Any] = {}
    for tool in msgspec.json.decode(ask.raw("tools") or b"[]"):
        function = tool.get("function") or {}
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        out[str(function.get("name"))] = properties if isinstance(properties, dict) else {}
    return out


def _is_default(schema: Any, value: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema and bool(schema["default"] == value)
