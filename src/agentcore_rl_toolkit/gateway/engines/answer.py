"""Sampled ids on their way to the client: detokenised, taken apart and put into the API's shape.

``Growing`` is one choice of an answer. It is fed ids in any portions and gives deltas as soon as
they are certain; a whole answer is one portion, so streamed and not streamed answers are the same.
The message that is kept is put together from exactly the deltas that were given out.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from ...trajectory.turn import unpack_ids
from ..dialects.base import Ask
from ..fault import engine_fault
from ..text.assemble import Assembly
from ..text.detokenize import Detokenizer, Stops
from ..text.forced import is_forbidden
from ..text.logprob import tell_logprobs
from ..text.parse import PARSE_FAILED, Parsed, Splitter, is_foreign
from ..text.render import Renderer
from ..wire import floats_to_bytes, ints_to_bytes
from .base import Sampled

encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder(Any)

PARALLEL_CALLS = "parallel_calls"
"""The client wanted one call at a time and was given what was sampled, which was more."""


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
    entropies: list[float] = []
    """Where an engine tells them."""


class Growing:
    """One choice, from its first id to its finish reason."""

    def __init__(self, ask: Ask, renderer: Renderer, index: int, call_id: str) -> None:
        self._ask, self._renderer, self._call_id = ask, renderer, call_id
        self.got = Tokens(index, [], [])
        self._text = Detokenizer(renderer)
        # the opening of a forced call is prompt, and part of the answer all the same
        self._pending: list[int] = unpack_ids(ask.begun).tolist() if ask.begun else []
        self._stops = _stops(ask)
        self._told = self._offset = 0
        raw = ask.raw("tools") if ask.chat and not is_forbidden(ask) else None
        self._tools: Any = _any.decode(raw) if raw and raw != b"[]" else None
        self._built = Assembly(renderer.marks, renderer.read_calls, self._tools, call_id)
        self._cut: Splitter | None = None
        if ask.chat and renderer.marks is not None:
            self._marked = renderer.call_id_mark is None
            self._cut = Splitter(
                renderer.marks,
                tools=self._tools is not None and self._marked,
                reasoning=renderer.in_reasoning(self._asked),
                tells=True,
            )

    @property
    def _asked(self) -> bytes | None:
        """The prompt up to where the answer begins."""
        prompt, begun = self._ask.prompt, self._ask.begun
        return prompt[: -len(begun)] if prompt and begun else prompt

    def add(self, part: Tokens) -> list[dict[str, Any]]:
        """Deltas that are certain now."""
        self._collect(part)
        ids = self._pending + part.ids
        body = self._renderer.trim(ids)
        self._pending = ids[len(body) :]  # an id that ends answers is text if something follows
        if self._ask.chat and self._cut is None:
            return []
        text = self._text.feed(body)
        return self._deltas(self._stops.feed(text) if self._stops is not None else text, body)

    def _collect(self, part: Tokens) -> None:
        got = self.got
        if got.ids and part.total == len(part.ids):
            fresh = len(got.ids)  # some versions repeat everything in every event
            part.ids, part.logprobs = part.ids[fresh:], part.logprobs[fresh:]
            part.entropies = part.entropies[fresh:]
        got.ids += part.ids
        got.logprobs += part.logprobs
        got.entropies += part.entropies
        got.finish_reason = part.finish_reason or got.finish_reason
        got.routed = part.routed or got.routed
        got.versions = add_versions(got, part) if part.versions else add_span(got, part)

    def _deltas(self, text: str, ids: list[int]) -> list[dict[str, Any]]:
        if self._cut is None:
            return self._built.add("content", text) if text else []
        if not self._marked and self._renderer.call_id_mark in ids:
            self._marked, self._cut.tools = True, self._tools is not None
        return self._take(self._cut.feed(text))

    def _take(self, parts: list[Any]) -> list[dict[str, Any]]:
        out = []
        for kind, text in parts:
            if kind == "reasoning_content" and self._ask.hides_reasoning:
                continue
            out += self._built.add(kind, text)
        return out

    def end(self) -> list[dict[str, Any]]:
        """What was held back, once the engine has finished."""
        if self._ask.chat and self._cut is None:
            return self._whole()
        text = self._text.end()
        if self._stops is not None:
            text = self._stops.feed(text) + self._stops.end()
        deltas = self._deltas(text, [])
        if self._cut is not None:
            deltas += self._take(self._cut.end())
        if self._tools is not None and is_foreign(self._parsed):
            self._parsed.flags = [PARSE_FAILED]
        return deltas

    def _whole(self) -> list[dict[str, Any]]:
        """The one delta of a format that can be read at its end only."""
        ids = [*unpack_ids(self._ask.begun).tolist(), *self._renderer.trim(self.got.ids)]
        prompt = unpack_ids(self._asked or b"").tolist()
        parsed = self._renderer.parse_whole(ids, self._tools, prompt, self._call_id)
        if parsed is None:
            parsed = Parsed(self._renderer.decode(ids), flags=[PARSE_FAILED])
        if self._ask.hides_reasoning:
            parsed.reasoning = None
        self._built.out = parsed
        delta = {k: v for k, v in parsed.message().items() if k != "role" and v}
        if parsed.tool_calls:
            delta["tool_calls"] = [{"index": i, **c} for i, c in enumerate(parsed.tool_calls)]
        return [delta]

    @property
    def _parsed(self) -> Parsed:
        return self._built.settle()

    @property
    def in_call(self) -> int:
        return self._cut.in_call if self._cut is not None else len(self.got.ids)

    @property
    def stop(self) -> str | None:
        """The stop sequence that ended the answer."""
        return self._stops.matched if self._stops is not None else None

    def logprobs(self) -> dict[str, Any] | None:
        """Of the tokens that no event has told yet, for a client that asked for them."""
        ids, logprobs = self.got.ids[self._told :], self.got.logprobs[self._told :]
        if not self._ask.wants_logprobs or not ids:
            return None
        self._told += len(ids)
        told = tell_logprobs(self._ask, self._renderer.speller, ids, logprobs, self._offset)
        self._offset += sum(map(len, told.get("tokens", ())))
        return told

    @property
    def finish_reason(self) -> str:
        reason = self.got.finish_reason or "stop"
        return "tool_calls" if self._parsed.tool_calls and reason == "stop" else reason

    @property
    def message(self) -> dict[str, Any]:
        if self._ask.chat:
            return self._parsed.message()
        return {"role": "assistant", "content": self._parsed.content}

    @property
    def _flags(self) -> list[str]:
        one_by_one = self._ask.raw("parallel_tool_calls") == b"false"
        more = one_by_one and len(self._parsed.tool_calls) > 1
        return [*self._parsed.flags, PARALLEL_CALLS] if more else self._parsed.flags

    def seal(self) -> Sampled:
        """The captured choice; Refusal when something is missing, or calls can never be parsed."""
        got = self.got
        if len(got.ids) != len(got.logprobs):
            raise engine_fault(
                f"the engine returned {len(got.logprobs)} log-probabilities for {len(got.ids)} "
                "sampled tokens; missing ones are an error, never zero",
                retry=False,
            )
        if self._tools is not None and got.finish_reason not in ("length", "abort"):
            self._renderer.health.note(self._parsed)
        return self.sampled()

    def sampled(self) -> Sampled:
        got = self.got
        return Sampled(
            got.index,
            ints_to_bytes(got.ids),
            floats_to_bytes(got.logprobs),
            prompt=self._ask.prompt,
            finish_reason=self.finish_reason,
            message=encode(self.message),
            versions=got.versions,
            routed_experts=got.routed,
            flags=self._flags,
            stop=self.stop,
            entropies=floats_to_bytes(got.entropies)
            if got.entropies and len(got.entropies) == len(got.ids)
            else None,
        )


class Shape:
    """The API's envelope around choices."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def growing(self, renderer: Renderer, index: int) -> Growing:
        return Growing(self._ask, renderer, index, f"call-{self.id[-12:]}-{index}")

    def _envelope(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind if self._ask.chat else "text_completion",
            "created": self._created,
            "model": self._ask.model,
            "choices": choices,
        }

    def usage(self, choices: list[Growing]) -> dict[str, int]:
        n_prompt = len(self._ask.prompt or b"") // 4
        n_sampled = sum(len(choice.got.ids) for choice in choices)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_sampled,
            "total_tokens": n_prompt + n_sampled,
        }

    def _choice(self, choice: Growing, reason: str | None, body: dict[str, Any]) -> dict[str, Any]:
        out = {
            "index": choice.got.index,
            **body,
            "logprobs": choice.logprobs() if self._ask.wants_logprobs else None,
            "finish_reason": reason,
        }
        if reason and choice.stop is not None:
            out["stop_reason"] = choice.stop
        return {**out, "token_ids": choice.got.ids} if self._ask.wants_ids and reason else out

    def body(self, choices: list[Growing]) -> bytes:
        written = []
        for one in choices:
            message = one.message
            part = {"message": message} if self._ask.chat else {"text": message["content"]}
            written.append(self._choice(one, one.finish_reason, part))
        envelope = self._envelope("chat.completion", written)
        return encode({**envelope, "usage": self.usage(choices)})

    def event(self, choice: Growing, delta: dict[str, Any], reason: str | None = None) -> bytes:
        part = {"delta": delta} if self._ask.chat else {"text": delta.get("content", "")}
        written = self._choice(choice, reason, part)
        return b"data: %b\n\n" % encode(self._envelope("chat.completion.chunk", [written]))

    def last_event(self, choices: list[Growing]) -> bytes:
        if b"include_usage" not in bytes(self._ask.fields.get("stream_options", b"")):
            return b"data: [DONE]\n\n"
        envelope = self._envelope("chat.completion.chunk", [])
        usage = encode({**envelope, "usage": self.usage(choices)})
        return b"data: %b\n\ndata: [DONE]\n\n" % usage


def _stops(ask: Ask) -> Stops | None:
    raw = ask.raw("stop")
    if raw is None or "min_tokens" in ask.fields or "include_stop_str_in_output" in ask.fields:
        return None
    stop: Any = _any.decode(raw)
    given = [stop] if isinstance(stop, str) else stop
    texts = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    return Stops(texts) if texts else None


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
