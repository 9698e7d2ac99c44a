"""Engines that take token ids and give token ids: the exact path.

The gateway has rendered the prompt, so no prompt ids come back; the answer is detokenised and
parsed here and put into the API's shape. Parameters that such an engine cannot honour exactly are
refused. Subclasses know one engine's wire.
"""

from __future__ import annotations

import abc
import time
import uuid
from typing import Any, ClassVar

import msgspec
import numpy as np

from ..dialects.base import Ask
from ..fault import bad_request, engine_fault
from ..render import CALL, THINK, Detokenizer, Renderer, parse
from ..wire import DONE, floats_to_bytes, ints_to_bytes
from .base import Answer, Engine, Prepared, Sampled, Stream

encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder(Any)

SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
    *("ignore_eos", "min_tokens"),
)
HARMLESS = frozenset(
    {
        *("model", "messages", "prompt", "stream", "stream_options", "n", "user", "metadata"),
        *("service_tier", "store", "tools", "parallel_tool_calls", "max_tokens"),
        *("max_completion_tokens", "chat_template_kwargs", "logprobs", "return_token_ids"),
        *("include_reasoning", "reasoning_effort"),
    }
)


class Tokens(msgspec.Struct):
    """What an engine said of one choice: a whole answer, or one event's part of it."""

    index: int
    ids: list[int]
    logprobs: list[float]
    finish_reason: str | None = None
    versions: list[tuple[str, int, int]] = []
    routed: bytes | None = None
    total: int | None = None
    """Tokens sampled so far, where the engine says so: tells repeated events from new ones."""
    version: str | None = None
    """Weight version of these tokens, where an engine has one for all of them."""


class TokenEngine(Engine):
    takes_ids = True
    renderer: Renderer
    """Set by the pool."""
    renames: ClassVar[dict[str, str]] = {}
    """Sampling parameters that have another name at the engine."""
    path: ClassVar[str]

    @abc.abstractmethod
    def request(self, ask: Ask, ids: list[int], sampling: dict[str, Any]) -> dict[str, Any]: ...

    @abc.abstractmethod
    def answers(self, body: bytes) -> list[Tokens]:
        """Choices of a whole answer, or of one event of a stream."""

    def prepare(self, ask: Ask, session_id: str) -> Prepared:
        if ask.prompt is None:
            raise engine_fault("the prompt was not rendered", retry=False)
        ids = np.frombuffer(ask.prompt, np.int32).tolist()
        sampling = self._sampling(ask, len(ids))
        headers = f"x-smg-routing-key: {session_id}\r\n"
        return Prepared(self.path, encode(self.request(ask, ids, sampling)), headers)

    def _sampling(self, ask: Ask, n_prompt: int) -> dict[str, Any]:
        given = {name: _any.decode(raw) for name, raw in ask.fields.items() if name in SAMPLING}
        for name in ask.fields.keys() - HARMLESS - set(SAMPLING):
            value: object = _any.decode(ask.fields[name])
            if (name, value) not in (("tool_choice", "auto"), ("tool_choice", "none")) and value:
                if name == "response_format" and value == {"type": "text"}:
                    continue
                raise bad_request(f"{name!r} cannot be honoured by a {self.kind} engine", name)
        if ask.wants_logprobs:
            raise bad_request(f"'logprobs' are not returned by a {self.kind} engine", "logprobs")
        limits = [ask.fields.get(n) for n in ("max_completion_tokens", "max_tokens")]
        limit: Any = next((_any.decode(raw) for raw in limits if raw is not None), None)
        if limit is None and self.capabilities.max_tokens is not None:
            limit = self.capabilities.max_tokens - n_prompt
            if limit <= 0:
                raise bad_request(f"the prompt of {n_prompt} tokens fills the context", "messages")
        if limit is None:
            raise bad_request("give 'max_tokens': the engine's own default is 16", "max_tokens")
        sampling = {self.renames.get(name, name): value for name, value in given.items()}
        return {**sampling, self.renames.get("max_tokens", "max_tokens"): limit}

    def read(self, ask: Ask, body: bytes) -> Answer:
        try:
            found = self.answers(body)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise engine_fault(f"the engine's answer is not what it should be: {error}") from error
        if len(found) != ask.n:
            raise engine_fault(f"asked for {ask.n} choices, the engine gave {len(found)}")
        reply = Shaped(ask, self.renderer)
        for tokens in found:
            tokens.versions = tokens.versions or add_span(tokens, tokens)
        sampled = [reply.take(tokens) for tokens in found]
        return Answer(reply.body(), sampled)

    def stream(self, ask: Ask) -> Stream:
        return TokenStream(self, ask)


class Shaped:
    """An answer in the API's shape, made from ids."""

    def __init__(self, ask: Ask, renderer: Renderer) -> None:
        self._ask, self._renderer = ask, renderer
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self._choices: list[dict[str, Any]] = []
        self._n_sampled = 0

    def take(self, tokens: Tokens) -> Sampled:
        if len(tokens.ids) != len(tokens.logprobs):
            raise engine_fault(
                f"the engine returned {len(tokens.logprobs)} log-probabilities for "
                f"{len(tokens.ids)} sampled tokens; missing ones are an error, never zero",
                retry=False,
            )
        text = self._renderer.answer_text(tokens.ids)
        tools = "tools" in self._ask.fields
        parsed = parse(text, tools=tools, call_id=f"call-{self.id[-12:]}-{tokens.index}")
        message = parsed.message() if self._ask.dialect == "chat" else {"content": text}
        reason = tokens.finish_reason or "stop"
        reason = "tool_calls" if parsed.tool_calls and reason == "stop" else reason
        choice: dict[str, Any] = {"index": tokens.index, "logprobs": None, "finish_reason": reason}
        if self._ask.dialect == "chat":
            choice["message"] = message
        else:
            choice["text"] = text
        if self._ask.wants_ids:
            choice["token_ids"] = tokens.ids
        self._choices.append(choice)
        self._n_sampled += len(tokens.ids)
        return Sampled(
            tokens.index,
            ints_to_bytes(tokens.ids),
            floats_to_bytes(tokens.logprobs),
            prompt=self._ask.prompt,
            finish_reason=reason,
            message=encode({"role": "assistant", **message}),
            versions=tokens.versions,
            routed_experts=tokens.routed,
            flags=parsed.flags if self._ask.dialect == "chat" else [],
        )

    def usage(self) -> dict[str, int]:
        n_prompt = len(self._ask.prompt or b"") // 4
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": self._n_sampled,
            "total_tokens": n_prompt + self._n_sampled,
        }

    def body(self) -> bytes:
        chat = self._ask.dialect == "chat"
        return encode(
            {
                "id": self.id,
                "object": "chat.completion" if chat else "text_completion",
                "created": self.created,
                "model": self._ask.model,
                "choices": self._choices,
                "usage": self.usage(),
            }
        )

    def event(self, index: int, part: Any, reason: str | None = None) -> bytes:
        chat = self._ask.dialect == "chat"
        choice = {
            "index": index,
            "delta" if chat else "text": part,
            "logprobs": None,
            "finish_reason": reason,
        }
        return b"data: %b\n\n" % encode(
            {
                "id": self.id,
                "object": "chat.completion.chunk" if chat else "text_completion",
                "created": self.created,
                "model": self._ask.model,
                "choices": [choice],
            }
        )


class TokenStream(Stream):
    """Text is relayed as it comes, up to where a tool call or reasoning begins."""

    def __init__(self, engine: TokenEngine, ask: Ask) -> None:
        self._engine, self._ask = engine, ask
        self._reply = Shaped(ask, engine.renderer)
        self._got: dict[int, Tokens] = {}
        self._texts: dict[int, Detokenizer] = {}
        self._seen: dict[int, str] = {}
        self._sent: dict[int, int] = {}
        self._sampled: list[Sampled] = []

    def feed(self, events: list[bytes]) -> tuple[bytes, bytes]:
        now = [self._event(event) for event in events if event != DONE]
        if self.finished and not self._sampled:
            return b"".join(now), self._end()
        return b"".join(now), b""

    def _event(self, event: bytes) -> bytes:
        try:
            parts = self._engine.answers(event)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise engine_fault(f"the engine streamed something unexpected: {error}") from error
        return b"".join(self._take(part) for part in parts)

    def _take(self, part: Tokens) -> bytes:
        got = self._got.get(part.index)
        first = got is None
        if got is None:
            got = self._got[part.index] = Tokens(part.index, [], [])
            self._texts[part.index] = Detokenizer(self._engine.renderer)
            self._seen[part.index], self._sent[part.index] = "", 0
        if got.ids and part.total == len(part.ids):
            # some versions repeat everything in every event
            fresh = len(part.ids) - len(got.ids)
            part.ids, part.logprobs = (
                part.ids[len(part.ids) - fresh :],
                part.logprobs[len(part.logprobs) - fresh :],
            )
        got.ids += part.ids
        got.logprobs += part.logprobs
        got.finish_reason = part.finish_reason or got.finish_reason
        got.versions = add_versions(got, part) if part.versions else add_span(got, part)
        self.tokens = max(len(one.ids) for one in self._got.values())
        done = [one for one in self._got.values() if one.finish_reason]
        self.finished = len(done) >= self._ask.n
        role = self._reply.event(part.index, {"role": "assistant", "content": ""})
        head = role if first and self._ask.dialect == "chat" else b""
        return head + self._text(part)

    def _text(self, part: Tokens) -> bytes:
        index = part.index
        self._seen[index] += self._texts[index].feed(part.ids)
        text = self._seen[index].removesuffix(self._engine.renderer.tokenizer.eos_token)
        end = len(text)
        if self._ask.dialect == "chat":
            end = _safe_end(text, tools="tools" in self._ask.fields)
        fresh = text[self._sent[index] : end]
        if not fresh:
            return b""
        self._sent[index] = end
        return self._reply.event(
            index, {"content": fresh} if self._ask.dialect == "chat" else fresh
        )

    def _end(self) -> bytes:
        """What is left of every choice, finish reasons and usage: held until it is durable."""
        out = []
        for index, tokens in sorted(self._got.items()):
            sampled = self._reply.take(tokens)
            self._sampled.append(sampled)
            message = msgspec.json.decode(sampled.message)
            part: Any = _rest(message, self._sent[index])
            if self._ask.dialect != "chat":
                part = part.get("content", "")
            out.append(self._reply.event(index, part, sampled.finish_reason))
        if b"include_usage" in bytes(self._ask.fields.get("stream_options", b"")):
            usage = {"id": self._reply.id, "object": "chat.completion.chunk", "choices": []}
            out.append(b"data: %b\n\n" % encode({**usage, "usage": self._reply.usage()}))
        return b"".join(out) + b"data: [DONE]\n\n"

    def result(self) -> list[Sampled]:
        if not self.finished:
            raise engine_fault("the engine's stream ended before its finish reason")
        return self._sampled

    def partial(self) -> list[Sampled]:
        found = []
        for tokens in self._got.values():
            tokens.finish_reason = "abort"
            tokens.ids = tokens.ids[: len(tokens.logprobs)]
            tokens.logprobs = tokens.logprobs[: len(tokens.ids)]
            found.append(Shaped(self._ask, self._engine.renderer).take(tokens))
        return found


def add_versions(got: Tokens, part: Tokens) -> list[tuple[str, int, int]]:
    """Spans that an event brings are over its own ids, or over all so far."""
    at = len(got.ids) - len(part.ids)
    if not at or part.versions[-1][2] > len(part.ids):
        return part.versions
    spans = list(got.versions)
    for version, start, end in part.versions:
        if spans and spans[-1][0] == version and spans[-1][2] == at + start:
            spans[-1] = (version, spans[-1][1], at + end)
        else:
            spans.append((version, at + start, at + end))
    return spans


def add_span(got: Tokens, part: Tokens) -> list[tuple[str, int, int]]:
    """Version spans once ``part`` has been added to ``got``."""
    end = len(got.ids)
    if part.version is None or not part.ids:
        return got.versions
    if got.versions and got.versions[-1][0] == part.version:
        return [*got.versions[:-1], (part.version, got.versions[-1][1], end)]
    return [*got.versions, (part.version, end - len(part.ids), end)]


def _safe_end(text: str, *, tools: bool) -> int:
    """Up to where text is certainly content: not reasoning, not a call, not the start of one."""
    if THINK.startswith(text.lstrip()[: len(THINK)]):
        return 0
    if not tools:
        return len(text)
    at = text.find(CALL)
    if at >= 0:
        return at
    for size in range(min(len(CALL) - 1, len(text)), 0, -1):
        if CALL.startswith(text[-size:]):
            return len(text) - size
    return len(text)


def _rest(message: dict[str, Any], sent: int) -> dict[str, Any]:
    """The delta that completes a message of which ``sent`` characters have gone out."""
    delta: dict[str, Any] = {}
    content = message.get("content") or ""
    if content[sent:]:
        delta["content"] = content[sent:]
    if message.get("reasoning_content"):
        delta["reasoning_content"] = message["reasoning_content"]
    if message.get("tool_calls"):
        delta["tool_calls"] = [{"index": i, **c} for i, c in enumerate(message["tool_calls"])]
    return delta
