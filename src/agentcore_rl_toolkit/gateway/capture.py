"""From an engine's answer to turns in the graph and the journal.

The order is fixed: make the turn, commit it to the graph, journal it, and only then may the
terminal bytes leave. Making and committing are one step without an await, so that calls of one
session that end together keep apart. A turn that cannot be made exactly is a refusal.
"""

from __future__ import annotations

import logging
import time

from ..errors import ContractError, GatewayError
from ..run.frame import Frame, decode, encode
from ..run.journal import Journal
from ..trajectory.placement import Placement
from ..trajectory.strand import Prompt
from ..trajectory.turn import ID_BYTES, Span, Turn
from .call import Call
from .engines.base import Sampled
from .fault import Refusal, engine_fault
from .memory.requests import blocks_of
from .metrics import Metrics

LARGE_TEXT = 128 << 10
"""Prompt ids as text above which they are packed in steps."""

logger = logging.getLogger(__name__)


class Capture:
    """Owns the way into the journal."""

    def __init__(self, journal: Journal, metrics: Metrics | None = None) -> None:
        self._journal = journal
        self._metrics = metrics

    async def write(self, *frames: Frame) -> None:
        for frame in frames:
            await self._journal.write(encode(frame))

    def read(self, place: int) -> Turn:
        """A turn from its place in the journal."""
        try:
            turn = decode(self._journal.read(place))
        except OSError as error:
            raise Refusal(
                410, f"a turn is no longer in the journal: {error}", code="gone", retry=False
            ) from error
        assert isinstance(turn, Turn), "only the places of turns are kept"
        return turn

    async def keep(
        self, call: Call, choices: list[Sampled], *, error: str | None = None
    ) -> list[Turn]:
        """Commits and journals what was sampled; returns when it is durable."""
        for choice in choices:
            if len(choice.prompt_text or b"") > LARGE_TEXT and choice.prompt is None:
                session = call.session
                text = choice.prompt_text or b""
                choice.prompt = await session.prompts.pack_in_steps(text, session.graph)
        delivered = error is None and not (call.gone and not call.followers)
        try:
            turns = [self._commit(call, choice, error, delivered) for choice in choices]
        except ContractError as problem:
            raise engine_fault(f"the answer cannot be captured: {problem}", retry=False) from None
        call.delivered = delivered
        graph = call.session.graph
        try:
            places = await self._journal.write(*[encode(turn) for turn in turns])
        except (GatewayError, OSError):
            self._take_back(call, turns)
            raise
        for turn, place in zip(turns, places, strict=True):
            graph.settle(turn.turn_id, place)
        return turns

    @staticmethod
    def _take_back(call: Call, turns: list[Turn]) -> None:
        """What the journal does not have, no later turn may be a delta to."""
        call.turns.clear()
        for turn in turns:
            gone = call.session.graph.retract(turn.turn_id)
            call.session.turns -= len(gone)
        call.session.prompts.forget()
        call.session.requests.forget()

    @staticmethod
    def _place(
        call: Call, index: int, prompt: bytes | Prompt | None
    ) -> tuple[Placement, list[str]]:
        """By messages and ids; by ids alone when the messages have a shape nobody expected."""
        try:
            return _where(call, index, prompt, read=True), []
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            logger.warning("session=<%s> | messages not understood", call.session.session_id)
            return _where(call, index, prompt, read=False), ["messages_unread"]

    def _commit(self, call: Call, choice: Sampled, error: str | None, delivered: bool) -> Turn:
        session, ask, pool = call.session, call.ask, call.pool
        graph = session.graph
        prompt = choice.prompt
        if prompt is None and choice.prompt_text:
            prompt = session.prompts.pack(choice.prompt_text, graph)
        placement, unread = self._place(call, choice.index, prompt or None)
        n_sampled = len(choice.sampled) // ID_BYTES
        versions, flags = version_spans(call, choice, n_sampled)
        now = time.monotonic()
        request = ask.body if choice.index == 0 else b""
        blocks = blocks_of(request)
        shared = session.requests.shared(placement.hangs_on, blocks)
        turn = graph.make_turn(
            placement,
            sampled=choice.sampled,
            logprobs=choice.logprobs,
            train=pool.train,
            dialect=ask.dialect,
            engine=call.slot.name if call.slot else "",
            request=request[shared:] if shared else request,
            request_shared=shared,
            response=choice.message,
            finish_reason=choice.finish_reason or "abort",
            stop=choice.stop,
            versions=versions,
            delivered=delivered,
            started=call.started_unix,
            first_token_s=call.first_token - call.started if call.first_token else None,
            total_s=now - call.started,
            error=error,
            edits=ask.edits if choice.index == 0 else [],
            flags=[*ask.flags, *choice.flags, *flags, *unread],
            routed_experts=choice.routed_experts,
            entropies=choice.entropies,
        )
        drift = graph.commit(turn)
        if drift is not None and self._metrics is not None:
            self._metrics.drift.add(*drift)
        call.turns.append(graph.head(turn.turn_id))
        if choice.prompt_text and error is None:
            session.prompts.learn(choice.prompt_text, turn, turn.parent)
        session.requests.learn(turn.turn_id, blocks)
        session.turns += 1
        session.tokens += n_sampled
        return turn


def _where(call: Call, index: int, prompt: bytes | Prompt | None, *, read: bool) -> Placement:
    return call.session.graph.place(
        model=call.pool.name,
        messages=call.ask.messages if read else None,
        tools=call.ask.raw("tools") if read else None,
        prompt_ids=prompt,
        retry_key=call.retry_key,
        choice=index,
    )


def version_spans(call: Call, choice: Sampled, n: int) -> tuple[list[Span], list[str]]:
    """Weight versions over the sampled ids: the engine's word, else what the gateway knows."""
    if choice.versions or not n:
        return choice.versions, []
    marks = [mark for mark in call.marks if mark[0] is not None]
    if len(call.marks) == 1:
        return ([(marks[0][0], 0, n)] if marks and marks[0][0] else []), []
    if not call.ask.stream or call.ask.n > 1:
        # weights changed while nothing could be seen of the answer
        return [], ["version_unknown"]
    spans: list[Span] = []
    for at, (version, start) in enumerate(call.marks):
        end = call.marks[at + 1][1] if at + 1 < len(call.marks) else n
        if version is not None and min(start, n) < min(end, n):
            spans.append((version, min(start, n), min(end, n)))
    return spans, ["version_estimated"]
