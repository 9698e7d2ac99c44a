"""Items of the Responses API as chat messages.

One answer is several items (reasoning, message, calls) and one chat message, so what a client
sends back is put together again: by the answer that an item's id names, else by order. Whether
reasoning comes back or not, the rest gives the same message. A reference to an item stands for the
whole answer that it was part of.

Reasoning travels as text in ``encrypted_content``, opaque to clients, or in ``content``. Items are
remembered by their bytes: a request costs the items that are new in it. Leading system and
developer messages become one, since many chat templates take only one and only at the front.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from ..fault import Refusal, bad_request
from .base import encode, first_byte
from .responses_tool import LOCAL_SHELL, chat_name

MESSAGE, REASONING, CALL, REFERENCE = "message", "reasoning", "call", "reference"
REASONING_KEYS = ("reasoning_content", "reasoning")
"""Where engines put it; an item's id says which."""
MARK = "art1."
REFERS = b'{"role":"assistant","refers":"'
"""Begins what stands for an answer until the session's own is put in its place."""
MAX_MEMO_BYTES = 32 << 20
MAX_ITEM_BYTES = 256 << 10

_raws = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)
_object = msgspec.json.Decoder(dict[str, Any])
_OWN_ID = re.compile(r"[a-z]+_([0-9a-f]{24})_\d+(r?)")


class Part(msgspec.Struct):
    """One item, read."""

    role: str
    message: bytes = b""
    """The whole message; of an assistant's, what it is when it stands alone, once that is asked."""
    kind: str = MESSAGE
    answer: str | None = None
    """Which answer of this gateway it belongs to."""
    text: str = ""
    refusal: str = ""
    key: str = REASONING_KEYS[0]
    call: dict[str, Any] | None = None


class Memo:
    """Bounded by bytes; shared by all sessions, since groups of rollouts share their prompts."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self.parts: dict[bytes, Part] = {}
        self.answers: dict[tuple[bytes, ...], bytes] = {}

    def grew(self, n_bytes: int) -> None:
        self._bytes += n_bytes
        if self._bytes > self._max_bytes:
            self.parts, self.answers, self._bytes = {}, {}, 0


_memo = Memo(MAX_MEMO_BYTES)


def own_id(kind: str, answer_id: str, index: int, key: str = REASONING_KEYS[0]) -> str:
    return f"{kind}_{answer_id}_{index}{'r' if key == REASONING_KEYS[1] else ''}"


def seal_reasoning(text: str, key: str) -> str:
    return MARK + base64.urlsafe_b64encode(encode([key, text])).decode()


def _open_reasoning(sealed: str) -> tuple[str, str]:
    try:
        if sealed.startswith(MARK):
            key, text = msgspec.json.decode(base64.urlsafe_b64decode(sealed[len(MARK) :]))
            if key in REASONING_KEYS and isinstance(text, str):
                return key, text
    except (binascii.Error, msgspec.DecodeError, ValueError, TypeError):
        pass
    raise bad_request("'encrypted_content' was not made by this gateway: leave the item out")


# --- a request's items ----------------------------------------------------------------------------


def read_input(raw: Raw) -> list[bytes]:
    """Chat messages of ``input``."""
    kind = first_byte(raw)
    if kind == b'"':
        return [encode({"role": "user", "content": _string.decode(raw)})]
    if kind != b"[":
        raise bad_request("'input' must be a string or a list of items", "input")
    return join_items([bytes(item) for item in _raws.decode(raw)])


def join_items(items: list[bytes]) -> list[bytes]:
    known = _memo.parts.get
    parts = [known(item) or _part(item, at) for at, item in enumerate(items)]
    leading = 0
    while leading < len(parts) and parts[leading].role == "system":
        leading += 1
    messages = _instructions(parts[:leading])
    several: list[tuple[int, list[int]]] = []  # answers of several items: their place, the items
    place, group = 0, list[int]()
    for at in range(leading, len(parts)):
        part = parts[at]
        if part.role != "assistant":
            messages.append(part.message)
            group = group if part.role == "tool" else []
        elif group and _belongs(part, parts[group[-1]], adjacent=group[-1] == at - 1):
            group.append(at)
            if len(group) == 2:
                several.append((place, group))
        else:
            place, group = len(messages), [at]
            messages.append(part.message or _alone(part))
    for place, group in several:
        messages[place] = _answer([items[i] for i in group], [parts[i] for i in group])
    return messages


def _instructions(parts: list[Part]) -> list[bytes]:
    if len(parts) < 2:
        return [part.message for part in parts]
    text = "\n\n".join(part.text for part in parts)
    return [encode({"role": "system", "content": text})]


def _belongs(part: Part, last: Part, *, adjacent: bool) -> bool:
    """To the same answer as the assistant's item before it."""
    if part.answer is not None and last.answer is not None:
        return part.answer == last.answer
    if not adjacent:
        return False
    if part.kind == CALL:
        return True
    return last.kind == REASONING or (part.kind == MESSAGE and last.kind == CALL)


def _alone(part: Part) -> bytes:
    part.message = _put_together([part])
    return part.message


def _put_together(parts: list[Part]) -> bytes:
    if any(part.kind == REFERENCE for part in parts):
        return REFERS + str(parts[0].answer).encode() + b'"}'
    return encode(answer_message(parts))


def _answer(items: list[bytes], parts: list[Part]) -> bytes:
    key = tuple(items)
    known = _memo.answers.get(key)
    if known is None:
        known = _put_together(parts)
        if len(known) <= MAX_ITEM_BYTES:
            _memo.answers[key] = known
            _memo.grew(len(known))
    return known


def answer_message(parts: Iterable[Part]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls = []
    for part in parts:
        if part.kind == REASONING:
            message[part.key] = message.get(part.key, "") + part.text
        elif part.call is not None:
            calls.append(part.call)
        else:
            message["content"] = (message["content"] or "") + part.text
            if part.refusal:
                message["refusal"] = message.get("refusal", "") + part.refusal
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    elif message["content"] is None:
        message["content"] = ""
    return message


def references(messages: list[bytes]) -> dict[int, str]:
    """Which messages stand for an answer, and for which."""
    return {
        at: message[len(REFERS) : -2].decode()
        for at, message in enumerate(messages)
        if message.startswith(REFERS)
    }


# --- one item -------------------------------------------------------------------------------------


def _part(raw: bytes, at: int) -> Part:
    try:
        part = read_item(_object.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        raise bad_request(f"input[{at}] must be an object", "input") from None
    except Refusal as refusal:
        raise bad_request(f"input[{at}]: {refusal.message}", "input") from None
    if len(raw) <= MAX_ITEM_BYTES:
        _memo.parts[raw] = part
        _memo.grew(2 * len(raw) + 256)
    return part


def read_item(item: dict[str, Any]) -> Part:
    kind = item.get("type") or "message"
    if kind == "message":
        return _message(item)
    if kind == "reasoning":
        return _reasoning(item)
    if kind in ("function_call", "custom_tool_call", "local_shell_call"):
        return _call(item, kind)
    if kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        call_id = item.get("call_id") or _need(item, "id")
        content = _content(item.get("output"))
        return _whole({"role": "tool", "tool_call_id": call_id, "content": content})
    if kind == "item_reference":
        return _reference(item)
    raise bad_request(f"items of type {kind!r} are not supported by this gateway")


def _whole(message: dict[str, Any], text: str = "") -> Part:
    return Part(str(message["role"]), message=encode(message), text=text)


def _message(item: dict[str, Any]) -> Part:
    role = item.get("role")
    if role == "user":
        return _whole({"role": "user", "content": _content(item.get("content"))})
    if role in ("system", "developer"):
        text = _content(item.get("content"))
        if not isinstance(text, str):
            raise bad_request(f"a {role} message must be text")
        return _whole({"role": "system", "content": text}, text)
    if role != "assistant":
        raise bad_request(f"a message's role must be user, assistant, system or developer: {role}")
    content = item.get("content")
    if isinstance(content, str):
        return Part("assistant", text=content, answer=_owner(item))
    texts, refusals = [], []
    for part in _parts(content):
        if part.get("type") == "refusal":
            refusals.append(_need(part, "refusal"))
        elif part.get("type") in ("output_text", "input_text", "text"):
            texts.append(_need(part, "text"))
        else:
            raise bad_request(f"content of type {part.get('type')!r} in an assistant's message")
    return Part("assistant", text="".join(texts), refusal="".join(refusals), answer=_owner(item))


def _reasoning(item: dict[str, Any]) -> Part:
    own = _OWN_ID.fullmatch(str(item.get("id") or ""))
    key = REASONING_KEYS[1 if own is not None and own[2] else 0]
    if item.get("encrypted_content"):
        key, text = _open_reasoning(_need(item, "encrypted_content"))
    else:
        text = "".join(_need(part, "text") for part in _parts(item.get("content") or []))
    return Part("assistant", kind=REASONING, text=text, key=key, answer=_owner(item))


def _reference(item: dict[str, Any]) -> Part:
    answer = _owner(item)
    if answer is None:
        raise bad_request("an item_reference must name an item of an answer of this gateway")
    return Part("assistant", kind=REFERENCE, answer=answer)


def _call(item: dict[str, Any], kind: str) -> Part:
    if kind == "function_call":
        name, arguments = _need(item, "name"), _need(item, "arguments")
    elif kind == "custom_tool_call":
        name, arguments = _need(item, "name"), encode({"input": _need(item, "input")}).decode()
    else:
        name, arguments = LOCAL_SHELL, encode(_action(item)).decode()
    function = {"name": chat_name(name, item.get("namespace")), "arguments": arguments}
    call = {"id": _need(item, "call_id"), "type": "function", "function": function}
    return Part("assistant", kind=CALL, call=call, answer=_owner(item))


def _action(item: dict[str, Any]) -> dict[str, Any]:
    action = item.get("action")
    if not isinstance(action, dict) or not isinstance(action.get("command"), list):
        raise bad_request("a local_shell_call needs an 'action' with its 'command'")
    return {name: value for name, value in action.items() if name != "type" and value}


def _owner(item: dict[str, Any]) -> str | None:
    own = _OWN_ID.fullmatch(str(item.get("id") or ""))
    return own[1] if own is not None else None


def _need(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise bad_request(f"{name!r} of a {item.get('type', 'message')} must be a string")
    return value


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise bad_request("'content' must be a string or a list of parts")
    return content


def _content(content: Any) -> str | list[dict[str, Any]]:
    """Told to the model: text where it is all text, else chat's parts."""
    if isinstance(content, str):
        return content
    parts = [_told(part) for part in _parts(content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _told(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": _need(part, "text")}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        if part.get("detail") not in (None, "auto"):
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    raise bad_request(f"content of type {kind!r} is not supported: send text or 'image_url'")
