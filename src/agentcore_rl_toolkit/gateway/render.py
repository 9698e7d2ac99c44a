"""Messages to token ids and back, for engines that take and give ids.

Only what is new is rendered: when a request continues a turn, its prompt is the exact ids of that
turn followed by the rendered rest, so ids that were sampled are never tokenised again. Based on
the model's own chat template; parsing is linear and a call that cannot be parsed stays in the text
and is flagged, never lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec
import numpy as np

from ..errors import MissingExtraError
from ..trajectory.turn import Ids, pack_ids
from .dialects.base import Ask
from .fault import bad_request

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
PARSE_FAILED = "parse_failed"

Messages = Sequence[Mapping[str, Any]]


class TokenizerLike(Protocol):
    """The slice of a transformers tokenizer that is used."""

    eos_token: str

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...
    def encode(self, text: str, **options: Any) -> list[int]: ...
    def decode(self, token_ids: Any, **options: Any) -> str: ...


class Parsed(msgspec.Struct):
    """An answer's text, taken apart."""

    content: str
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] = []
    flags: list[str] = []

    def message(self) -> dict[str, Any]:
        out: dict[str, Any] = {"role": "assistant", "content": self.content or None}
        if self.reasoning is not None:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = self.tool_calls
            out["content"] = self.content if self.content.strip() else None
        elif out["content"] is None:
            out["content"] = ""
        return out


class Renderer:
    """One model's template and tokenizer. Pure: safe to call from a worker thread."""

    def __init__(self, tokenizer: TokenizerLike) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, path: str) -> Renderer:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise MissingExtraError("gateway", "a token-in/token-out engine") from None
        return cls(cast("TokenizerLike", AutoTokenizer.from_pretrained(path)))

    def encode(self, text: str) -> bytes:
        return pack_ids(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Any) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def _text(self, messages: Messages, tools: Any, *, ask: bool, options: Any) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                [plain_arguments(message) for message in messages],
                tools=tools,
                tokenize=False,
                add_generation_prompt=ask,
                **(options or {}),
            )
        )

    def render(self, messages: Messages, tools: Any = None, options: Any = None) -> bytes:
        """Packed ids of a whole conversation, ready to be answered."""
        return self.encode(self._text(messages, tools, ask=True, options=options))

    def bridge(
        self, held: Ids, messages: Messages, n_held: int, tools: Any = None, options: Any = None
    ) -> bytes | None:
        """The ids held for the first ``n_held`` messages and the rest rendered after them.

        None when the template does not simply append: then the conversation is rendered whole.
        """
        full = self._text(messages, tools, ask=True, options=options)
        known = self._text(messages[:n_held], tools, ask=False, options=options)
        if not full.startswith(known):
            return None
        end = self.tokenizer.eos_token
        tail = known.rpartition(end)[2] if end in known else ""
        closed = self.decode(held[-1:]) == end
        rest = ("" if closed else end) + tail + full[len(known) :]
        return held.astype(np.int32).tobytes() + self.encode(rest)

    def answer_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, without the token that ended them."""
        text, end = self.decode(ids), self.tokenizer.eos_token
        return text.removesuffix(end) if end else text


def render_ask(renderer: Renderer, ask: Ask, held: Ids | None, n_held: int) -> bytes:
    """Packed prompt ids of a request; ``held`` are the ids of its first ``n_held`` messages."""
    if ask.messages is None:
        prompt = msgspec.json.decode(ask.fields["prompt"])
        return renderer.encode(prompt) if isinstance(prompt, str) else pack_ids(prompt)
    messages = [msgspec.json.decode(message) for message in ask.messages]
    tools = msgspec.json.decode(ask.raw("tools") or b"null")
    options = msgspec.json.decode(ask.raw("chat_template_kwargs") or b"null")
    try:
        bridged = None
        if held is not None and held.size:
            bridged = renderer.bridge(held, messages, n_held, tools, options)
        return renderer.render(messages, tools, options) if bridged is None else bridged
    except Exception as error:  # a template raises whatever it likes
        raise bad_request(f"the chat template refused the messages: {error}", "messages") from error


def plain_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Templates want tool-call arguments as objects, the API has them as text."""
    out = dict(message)
    calls = []
    for call in out.get("tool_calls") or ():
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = msgspec.json.decode(function["arguments"] or "{}")
            except msgspec.DecodeError:
                pass
        calls.append({**call, "function": function})
    if calls:
        out["tool_calls"] = calls
    if out.get("content") is None:
        out["content"] = ""
    return out


def parse(text: str, *, tools: bool, call_id: str) -> Parsed:
    """Takes reasoning and tool calls out of an answer."""
    reasoning = None
    head = text.lstrip()
    if head.startswith(THINK):
        reasoning, closed, text = head[len(THINK) :].partition(END_THINK)
        text = text.lstrip("\n") if closed else ""
    if not tools or CALL not in text:
        return Parsed(text, reasoning)
    content, _, rest = text.partition(CALL)
    calls: list[dict[str, Any]] = []
    for at, part in enumerate(rest.split(CALL)):
        call = _call(part.partition(END_CALL)[0], f"{call_id}-{at}")
        if call is None:
            return Parsed(text, reasoning, [], [PARSE_FAILED])
        calls.append(call)
    return Parsed(content, reasoning, calls)


def _call(text: str, call_id: str) -> dict[str, Any] | None:
    try:
        call = msgspec.json.decode(text.strip())
        name, arguments = call["name"], call.get("arguments", {})
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(name, str):
        return None
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


class Detokenizer:
    """Text of a growing answer; a character that is not whole yet is held back."""

    WINDOW = 16

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.ids: list[int] = []
        self._start = self._read = 0

    def feed(self, ids: Sequence[int]) -> str:
        self.ids += ids
        before = self._renderer.decode(self.ids[self._start : self._read])
        now = self._renderer.decode(self.ids[self._start :])
        if now.endswith("\ufffd") or len(now) <= len(before):
            return ""
        self._start, self._read = max(self._start, self._read), len(self.ids)
        return now[len(before) :]
