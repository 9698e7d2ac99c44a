"""Engines that take token ids and give token ids: the exact path.

The gateway has rendered the prompt, so no prompt ids come back; the answer is detokenised and
parsed here and put into the API's shape. Parameters that such an engine cannot honour exactly are
refused. Subclasses know one engine's wire.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import msgspec
import numpy as np

from ..dialects.base import Ask
from ..fault import Refusal, bad_request, engine_fault
from ..text.logprob import refuse_alternatives
from ..text.render import Renderer
from ..wire import DONE
from .answer import Growing, Shape, Tokens
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
        *("include_reasoning", "reasoning_effort", "tool_choice", "top_logprobs"),
    }
)


def too_long(n_prompt: int, room: int) -> Refusal:
    """In words and with the code by which agent frameworks know that they must drop messages."""
    return Refusal(
        400,
        f"prompt is too long: {n_prompt} tokens > {room} maximum context length",
        code="context_length_exceeded",
        param="messages",
        retry=False,
    )


class TokenEngine(Engine):
    takes_ids = True
    renderer: Renderer
    """Set by the pool."""
    experts: bool = False
    """Whether to ask for the experts that each token was routed to."""
    renames: ClassVar[dict[str, str]] = {}
    """Sampling parameters that have another name at the engine."""
    sampling: ClassVar[tuple[str, ...]] = SAMPLING
    """Parameters that are passed on to the engine."""
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
        given: dict[str, Any] = {
            name: _any.decode(raw) for name, raw in ask.fields.items() if name in self.sampling
        }
        for name in ask.fields.keys() - HARMLESS - set(self.sampling):
            value: object = _any.decode(ask.fields[name])
            if value and not (name == "response_format" and value == {"type": "text"}):
                raise bad_request(f"{name!r} cannot be honoured by a {self.kind} engine", name)
        refuse_alternatives(ask, self.kind)
        limits = [ask.fields.get(n) for n in ("max_completion_tokens", "max_tokens")]
        limit: Any = next((_any.decode(raw) for raw in limits if raw is not None), None)
        room = self.capabilities.max_tokens
        if room is not None and n_prompt >= room:
            raise too_long(n_prompt, room)
        if limit is None and room is not None:
            limit = room - n_prompt
        if limit is None:
            raise bad_request("give 'max_tokens': the engine's own default is 16", "max_tokens")
        if self.renderer.stop_ids and not given.get("ignore_eos"):
            stops = {*(given.get("stop_token_ids") or ()), *self.renderer.stop_ids}
            given["stop_token_ids"] = sorted(stops)
        sampling = {self.renames.get(name, name): value for name, value in given.items()}
        return {**sampling, self.renames.get("max_tokens", "max_tokens"): limit}

    def read(self, ask: Ask, body: bytes) -> Answer:
        try:
            found = self.answers(body)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise engine_fault(f"the engine's answer is not what it should be: {error}") from error
        if len(found) != ask.n:
            raise engine_fault(f"asked for {ask.n} choices, the engine gave {len(found)}")
        shape = Shape(ask)
        choices = []
        for tokens in found:
            choice = shape.growing(self.renderer, tokens.index)
            choice.add(tokens)
            choice.end()
            choices.append(choice)
        sampled = [choice.seal() for choice in choices]
        return Answer(shape.body(choices), sampled)

    def stream(self, ask: Ask) -> Stream:
        return TokenStream(self, ask)


class TokenStream(Stream):
    """Deltas are relayed as they become certain; what ends the answer is held."""

    def __init__(self, engine: TokenEngine, ask: Ask) -> None:
        self._engine, self._ask = engine, ask
        self._shape = Shape(ask)
        self._choices: dict[int, Growing] = {}
        self._sampled: list[Sampled] = []

    def feed(self, events: list[bytes]) -> tuple[bytes, bytes]:
        now = [self._event(event) for event in events if event != DONE]
        self.held = sum(choice.in_call for choice in self._choices.values())
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
        out = []
        choice = self._choices.get(part.index)
        if choice is None:
            choice = self._shape.growing(self._engine.renderer, part.index)
            self._choices[part.index] = choice
            if self._ask.chat:
                out.append(self._shape.event(choice, {"role": "assistant", "content": ""}))
        deltas = choice.add(part)
        self.tokens = max(len(one.got.ids) for one in self._choices.values())
        done = [one for one in self._choices.values() if one.got.finish_reason]
        self.finished = len(done) >= self._ask.n
        return b"".join([*out, *(self._shape.event(choice, delta) for delta in deltas)])

    def _end(self) -> bytes:
        """What is left of every choice, finish reasons and usage: held until it is durable."""
        out = []
        choices = [choice for _, choice in sorted(self._choices.items())]
        for choice in choices:
            out += [self._shape.event(choice, delta) for delta in choice.end()]
            self._sampled.append(choice.seal())
            out.append(self._shape.event(choice, {}, choice.finish_reason))
        return b"".join([*out, self._shape.last_event(choices)])

    def result(self) -> list[Sampled]:
        if not self.finished:
            raise engine_fault("the engine's stream ended before its finish reason")
        return self._sampled

    def partial(self) -> list[Sampled]:
        found = []
        for choice in self._choices.values():
            got = choice.got
            got.finish_reason = "abort"
            got.ids = got.ids[: len(got.logprobs)]
            got.logprobs = got.logprobs[: len(got.ids)]
            found.append(choice.sampled())
        return found
