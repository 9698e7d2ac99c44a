"""When two messages are the same message: canonical digests, chained over a conversation.

A client replays its history with every request, seldom as it was sent: reasoning is dropped, null
content becomes "", parts become text, tool-call arguments are written anew, keys change order. The
digest of a message keeps what the model said or was told (role, text, calls, results, media) and
forgets the rest, so a replayed answer is recognised against what was *sent to the client*. White
space counts in what the model is told and does not count in what it said.

A chain digest stands for all messages up to one point; equal chains are equal conversations.
Raw JSON messages that were seen before cost one hash and no parse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

Message: TypeAlias = Mapping[str, Any] | bytes

DIGEST_BYTES = 16
MEMO_MESSAGES = 8192
"""Raw messages remembered for a session; above it the memo starts again."""

RECENT_REQUESTS = 4
"""Conversations of a session that take turns without being hashed anew."""
RECENT_BYTES = 512 << 10
"""A longer request is not kept whole; its messages are found by hash."""

_SYSTEM_ROLES = ("system", "developer")
_REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALL_PARTS = ("tool_use", "function_call", "server_tool_use")
_VOLATILE_KEYS = ("cache_control", "id", "call_id", "tool_use_id", "tool_call_id", "index")
_WHITE = bytes(code for code in range(128) if chr(code).isspace())
_sorted = msgspec.json.Encoder(order="sorted", enc_hook=str)


class Told(NamedTuple):
    """What is remembered of a message."""

    digest: bytes
    role: str


class Conversation(NamedTuple):
    root: bytes
    """Digest of model, tools and system prompt."""
    chains: list[bytes]
    """``chains[i]`` stands for the first i messages; entries inside the system prompt are empty."""
    told: list[Told]

    @property
    def chain(self) -> bytes:
        return self.chains[-1]

    @property
    def answered(self) -> bool:
        """The history holds an assistant message."""
        return any(one.role == "assistant" for one in self.told)


class _Heard(NamedTuple):
    """An earlier request, kept to recognise the beginning of the next."""

    base: bytes
    messages: list[bytes]
    talk: Conversation


class Digester:
    """Digests of one session's conversations.

    Raw messages are compared with those of the latest requests first, so that a request costs the
    messages that are new in it; what is left is looked up by hash, then parsed.
    """

    def __init__(self) -> None:
        self._memo: dict[bytes, Told] = {}
        self._roots: dict[bytes, bytes] = {}
        self._recent: list[_Heard] = []

    def read(
        self, model: str, system: object, tools: object, messages: Sequence[Message]
    ) -> Conversation:
        base = self._base(model, system, tools)
        if not set(map(type, messages)) <= {bytes}:
            return _chain(base, [self._told(message) for message in messages])
        raw = cast(list[bytes], list(messages))
        heard = self._nearest(base, raw)
        if heard is None:
            talk = _chain(base, [self._told(message) for message in raw])
        else:
            old, same = heard
            told = old.talk.told[:same] + [self._told(message) for message in raw[same:]]
            raw[:same] = old.messages[:same]  # the same objects again: one copy in memory
            talk = _chain(base, told, old.talk.chains[: same + 1])
        self._remember(_Heard(base, raw, talk), heard)
        return talk

    def _base(self, model: str, system: object, tools: object) -> bytes:
        """Digest of everything that stands before the messages."""
        key = None
        if isinstance(system, bytes | None) and isinstance(tools, bytes | None):
            key = _hash(model.encode(), b"\0", system or b"", b"\0", tools or b"")
            if (known := self._roots.get(key)) is not None:
                return known
        system, tools = _decoded(system), _decoded(tools)
        root = _hash(_sorted.encode([model, _normal(tools) if tools else None, _text_of(system)]))
        if key is not None and len(self._roots) < MEMO_MESSAGES:
            self._roots[key] = root
        return root

    def _nearest(self, base: bytes, raw: list[bytes]) -> tuple[_Heard, int] | None:
        best: tuple[_Heard, int] | None = None
        for heard in self._recent:
            if heard.base != base:
                continue
            same = _same(heard.messages, raw)
            if same and (best is None or same > best[1]):
                best = (heard, same)
        return best

    def _remember(self, heard: _Heard, after: tuple[_Heard, int] | None) -> None:
        if after is not None and after[1] == len(after[0].messages):
            self._recent.remove(after[0])  # it is the beginning of this one
        if sum(map(len, heard.messages)) <= RECENT_BYTES:
            self._recent.insert(0, heard)
        del self._recent[RECENT_REQUESTS:]

    def _told(self, message: Message) -> Told:
        if not isinstance(message, bytes):
            return tell(message)
        key = _hash(message)
        known = self._memo.get(key)
        if known is None:
            if len(self._memo) >= MEMO_MESSAGES:
                self._memo.clear()
            known = self._memo[key] = _tell_raw(message)
        return known


def _same(old: list[bytes], new: list[bytes]) -> int:
    """How many leading messages are equal; a list that only grew is compared at once."""
    if new[: len(old)] == old:
        return len(old)
    for n, (mine, theirs) in enumerate(zip(old, new, strict=False)):
        if mine != theirs:
            return n
    return min(len(old), len(new))


def _chain(base: bytes, told: list[Told], known: list[bytes] | None = None) -> Conversation:
    """``known``: chains of the first messages, when the request begins like an earlier one."""
    leading = 0
    while leading < len(told) and told[leading].role == "system":
        leading += 1
    if known is not None and len(known) > leading and known[leading]:
        chains = list(known)
    else:
        chains = [b""] * leading + [_hash(base, *(one.digest for one in told[:leading]))]
    root = chains[leading]
    for one in told[len(chains) - 1 :]:
        chains.append(extend(chains[-1], one.digest))
    return Conversation(root, chains, told)


def _decoded(value: object) -> object:
    try:
        return msgspec.json.decode(value) if isinstance(value, bytes) else value
    except RecursionError:
        return _hash(value).hex() if isinstance(value, bytes) else value


def _tell_raw(message: bytes) -> Told:
    try:
        return tell(msgspec.json.decode(message))
    except (RecursionError, AttributeError):  # nested beyond reading, or no object: taken as it is
        return Told(_hash(message), "user")


def extend(chain: bytes, digest: bytes) -> bytes:
    return _hash(chain, digest)


def answer_digest(response: bytes) -> bytes | None:
    """Digest of an answer as sent to the client; None when there was none to replay."""
    try:
        message = msgspec.json.decode(response)
    except msgspec.DecodeError:
        return None
    return tell({"role": "assistant", **message}).digest if isinstance(message, dict) else None


def tell(message: Mapping[str, Any]) -> Told:
    role = str(message.get("role") or _role_of_item(message))
    role = "system" if role in _SYSTEM_ROLES else "tool" if role == "function" else role
    parts: list[Any] = []
    calls: list[Any] = []
    _read_content(message.get("content"), parts, calls)
    if message.get("type") in _CALL_PARTS:
        calls.append(_call(message))
    elif "output" in message:  # an item of the Responses API
        _read_content(message["output"], parts, calls)
    for call in _listed(message.get("tool_calls")):
        calls.append(_call(call))
    if message.get("function_call"):
        calls.append(_call(message["function_call"]))
    if message.get("refusal"):
        parts.append(str(message["refusal"]))
    text = "".join(part for part in parts if isinstance(part, str))
    others = [part for part in parts if not isinstance(part, str)]
    if role == "assistant":
        text = _squeeze(_without_thinking(text))
    return Told(_hash(_sorted.encode([role, text, calls, others])), role)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """What tells two answers with the same digest apart, when the client kept it."""
    found = [str(message.get(key) or "") for key in ("reasoning", "reasoning_content")]
    content = message.get("content")
    if isinstance(content, str):
        found.append(content[: len(content) - len(_without_thinking(content))])
    elif isinstance(content, list):
        found += [
            str(part.get("thinking") or part.get("text") or "")
            for part in content
            if isinstance(part, dict) and part.get("type") in _REASONING_PARTS
        ]
    return _squeeze("".join(found))


def _role_of_item(message: Mapping[str, Any]) -> str:
    kind = str(message.get("type", ""))
    if kind in _CALL_PARTS or kind in _REASONING_PARTS:
        return "assistant"
    return "tool" if kind.endswith("_output") else "user"


def _read_content(content: object, parts: list[Any], calls: list[Any]) -> None:
    for part in _listed(content):
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Mapping):
            _read_part(part, parts, calls)
        elif part is not None:
            parts.append([_normal(part)])


def _read_part(part: Mapping[str, Any], parts: list[Any], calls: list[Any]) -> None:
    kind = part.get("type")
    if kind in _REASONING_PARTS:
        return
    if kind in _CALL_PARTS:
        calls.append(_call(part))
    elif kind == "tool_result":
        inner: list[Any] = []
        _read_content(part.get("content"), inner, calls)
        parts.append(["result", *inner])
    elif isinstance(part.get("text"), str):
        parts.append(part["text"])
    else:
        parts.append(_normal({k: v for k, v in part.items() if k not in _VOLATILE_KEYS}))


def _listed(value: object) -> Sequence[Any]:
    """What should be a list, whatever the client sent: nothing it says is lost from the digest."""
    if isinstance(value, list | tuple):
        return value
    return () if value is None else (value,)


def _call(call: Any) -> list[Any]:
    """Name and parsed arguments; ids are left out, for clients rename them."""
    if not isinstance(call, Mapping):
        return [_normal(call)]
    function = call.get("function") or call.get("custom") or call
    if not isinstance(function, Mapping):
        return [_normal(function)]
    arguments: Any = next((function[k] for k in ("arguments", "input") if k in function), None)
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    return [function.get("name"), _normal({} if arguments is None else arguments)]


def _parsed(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments) if arguments.strip() else {}
    except msgspec.DecodeError:
        return _squeeze(arguments)


def _normal(value: Any) -> Any:
    """JSON values with 1.0 written as 1, as JavaScript clients do."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(k): _normal(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    return value


def _text_of(system: object) -> str:
    parts: list[Any] = []
    _read_content(system, parts, [])
    return "".join(str(part) for part in parts)


def _without_thinking(text: str) -> str:
    """Without a leading <think> block; linear, and an unclosed block is kept as it is."""
    head = text.lstrip()
    if not head.startswith("<think>"):
        return text
    end = head.find("</think>")
    return head[end + len("</think>") :] if end >= 0 else text


def _squeeze(text: str) -> str:
    if text.isascii():  # the same, many times quicker
        return text.encode().translate(None, _WHITE).decode()
    return "".join(text.split())


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
