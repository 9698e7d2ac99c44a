"""Reads OpenAI-shaped replies that carry token ids, whole or streamed, for chat and completions.

Parsed typed and once; what the client must not see is taken out of a dictionary of raw JSON, so
everything else is relayed byte for byte. Replies of the usual shape take the quick way.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ..dialects.base import Ask
from ..fault import Refusal, engine_fault
from ..wire import CUT_BYTES, DONE, IdText, cut_prompt_ids
from .base import Answer, Sampled, Stream
from .piece import Piece, collect, encode, finish, list_text, seal, stop_text
from .quick import (
    QuickAnswer,
    QuickEvents,
    collect_quick,
    quick_answer,
    quick_events,
)

NULL = Raw(b"null")
HIDDEN_ROOT = ("prompt_token_ids", "prompt_text")
HIDDEN_CHOICE = ("token_ids", "prompt_token_ids", "routed_experts")

_root = msgspec.json.Decoder(dict[str, Raw])
_choices = msgspec.json.Decoder(list[dict[str, Raw]])
_object = msgspec.json.Decoder(dict[str, Raw])
_int = msgspec.json.Decoder(int)


def is_plain(ask: Ask) -> bool:
    """The client asked for nothing that capture also asks for."""
    return not (ask.wants_ids or ask.wants_logprobs or ask.hides_reasoning)


def read_answer(ask: Ask, body: bytes, *, exact: bool = True) -> Answer:
    body, prompt_text = cut_prompt_ids(body) if len(body) > CUT_BYTES else (body, None)
    quick = quick_answer(body) if exact and ask.chat and is_plain(ask) else None
    answer = _read_quick(quick, prompt_text) if quick else _read(ask, body, prompt_text, exact)
    if len(answer.choices) != ask.n:
        raise engine_fault(f"asked for {ask.n} choices, the engine gave {len(answer.choices)}")
    return answer


def _read_quick(answer: QuickAnswer, prompt_text: IdText | None) -> Answer:
    hidden: Any = UNSET
    if prompt_text is None and answer.prompt_token_ids is not hidden:
        prompt_text = list_text(answer.prompt_token_ids)
    sampled = []
    for choice in answer.choices:
        logprobs = choice.logprobs.values() if choice.logprobs is not None else []
        ids = choice.token_ids if isinstance(choice.token_ids, list) else None
        one = seal(choice.index, ids, logprobs, prompt_text)
        one.finish_reason, one.message = choice.finish_reason or "", bytes(choice.message)
        if choice.stop_reason is not hidden:
            one.stop = stop_text(choice.stop_reason)
        sampled.append(one)
        choice.logprobs, choice.token_ids, choice.routed_experts = None, UNSET, UNSET
    answer.prompt_token_ids = answer.prompt_text = hidden
    return Answer(encode(answer), sampled)


def _read(ask: Ask, body: bytes, prompt_text: IdText | None, exact: bool) -> Answer:
    try:
        root = _root.decode(body)
        if "choices" not in root:
            raise engine_fault("the engine's answer has no 'choices'")
        choices = _choices.decode(root["choices"])
        prompt_text = prompt_text or root_prompt(root)
        sampled = [_read_choice(ask, choice, prompt_text, exact) for choice in choices]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise engine_fault(f"the engine's answer is not what it should be: {error}") from error
    hide(ask, root, choices)
    return Answer(encode(root), sampled)


def _read_choice(
    ask: Ask, choice: dict[str, Raw], prompt_text: IdText | None, exact: bool
) -> Sampled:
    piece = Piece(_int.decode(choice["index"]))
    collect(piece, choice, "message" if ask.chat else "text", exact=exact)
    return finish(ask, piece, prompt_text, exact=exact)


def root_prompt(root: dict[str, Raw]) -> bytes | None:
    raw = root.get("prompt_token_ids")
    return None if raw is None else list_text(raw)


def hide(ask: Ask, root: dict[str, Raw], choices: list[dict[str, Raw]]) -> None:
    """Takes out of a reply what the gateway asked for on its own account."""
    if not ask.wants_ids:
        for name in HIDDEN_ROOT:
            root.pop(name, None)
        for choice in choices:
            for name in HIDDEN_CHOICE:
                choice.pop(name, None)
    if not ask.wants_logprobs:
        for choice in choices:
            if "logprobs" in choice:
                choice["logprobs"] = NULL
    if ask.hides_reasoning:
        for choice in choices:
            _hide_reasoning(choice)
    root["choices"] = Raw(encode(choices))


def _hide_reasoning(choice: dict[str, Raw]) -> None:
    for place in ("message", "delta"):
        if place in choice:
            message = _object.decode(choice[place])
            for name in ("reasoning", "reasoning_content"):
                message.pop(name, None)
            choice[place] = Raw(encode(message))


class OpenAIStream(Stream):
    """A chat or completions stream. Finish events are held, everything else is relayed."""

    def __init__(self, ask: Ask, *, exact: bool = True) -> None:
        self._ask, self._exact = ask, exact
        self._pieces: dict[int, Piece] = {}
        self._prompt_text: IdText | None = None
        self._quick = is_plain(ask)
        self._body = "delta" if ask.chat else "text"

    def feed(self, events: list[bytes]) -> tuple[bytes, bytes]:
        now, held = [], []

        def one_by_one(some: list[bytes]) -> None:
            for event in some:
                relayed, kept = self._feed_one(event)
                now.append(relayed)
                held.append(kept)

        if self._prompt_text is None and not self.tokens:
            one_by_one([self._cut(events[0])])  # prompt ids come first of all
            events = events[1:]
        quick = quick_events(events) if events and self._quick and not self.finished else None
        if quick is not None:
            now.append(self._feed_quick(quick))
            events = events[len(quick.choices) :]
        one_by_one(events)
        return b"".join(now), b"".join(held)

    def _cut(self, event: bytes) -> bytes:
        event, text = cut_prompt_ids(event)
        self._prompt_text = text
        return event

    def _feed_quick(self, events: QuickEvents) -> bytes:
        """Many events at once, by column: a loop with branches for each would cost twice that."""
        choices = events.choices
        for index in {choice.index for choice in choices}:
            piece = self._pieces.get(index)
            if piece is None:
                piece = self._pieces[index] = Piece(index)
            self.tokens += collect_quick(piece, [c for c in choices if c.index == index])
        for choice in choices:
            choice.token_ids = UNSET
            if choice.logprobs is not UNSET:
                choice.logprobs = None
        return events.encoded()

    def _feed_one(self, event: bytes) -> tuple[bytes, bytes]:
        if event == DONE:
            return b"", b"data: [DONE]\n\n"
        try:
            root = _root.decode(event)
            choices = _choices.decode(root["choices"]) if "choices" in root else []
            ended = sum(self._collect(choice) for choice in choices) > 0
        except (msgspec.DecodeError, TypeError) as error:
            raise engine_fault(f"the engine streamed an unexpected event: {error}") from error
        if "error" in root:
            raise engine_fault(f"the engine failed while streaming: {event[:500]!r}")
        if self._prompt_text is None:
            self._prompt_text = root_prompt(root)
        hide(self._ask, root, choices)
        out = b"data: %b\n\n" % encode(root)
        return (b"", out) if ended or self.finished else (out, b"")

    def _collect(self, choice: dict[str, Raw]) -> bool:
        index = _int.decode(choice["index"]) if "index" in choice else 0
        piece = self._pieces.get(index)
        if piece is None:
            piece = self._pieces[index] = Piece(index)
        collect(piece, choice, self._body, exact=self._exact)
        if "token_ids" in choice:
            self.tokens += 1
        if piece.finish_reason is None:
            return False
        pieces = self._pieces.values()
        self.finished = len(pieces) >= self._ask.n and all(p.finish_reason for p in pieces)
        return True

    def result(self) -> list[Sampled]:
        if not self.finished:
            raise engine_fault("the engine's stream ended before its finish reason")
        return self._decode()

    def partial(self) -> list[Sampled]:
        for piece in self._pieces.values():
            piece.finish_reason = piece.finish_reason or "abort"
        try:
            return self._decode()
        except Refusal:
            return []

    def _decode(self) -> list[Sampled]:
        try:
            return [
                finish(self._ask, piece, self._prompt_text, exact=self._exact)
                for _, piece in sorted(self._pieces.items())
            ]
        except (msgspec.DecodeError, TypeError) as error:
            raise engine_fault(f"the engine's stream is not what it should be: {error}") from error
