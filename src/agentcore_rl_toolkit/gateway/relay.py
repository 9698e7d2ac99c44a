"""The data plane: one request in, the engine's answer out, the turn kept in between.

Invariants: engines are retried only before the first byte; the terminal bytes leave after the turn
is durable; a call that its client left is driven on for a grace period and then cancelled, and
what had been sampled is recorded as not delivered. A failed engine never makes a turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

import msgspec
from aiohttp import web

from ..errors import GatewayError
from ..trajectory.turn import ID_BYTES
from .call import (
    CLIENT_GONE,
    Call,
    Identity,
    Shelf,
)
from .capture import Capture
from .dialects.base import Ask, Dialect, Outlet, encode
from .engines.base import Engine, Sampled, Stream, apply_sampling, error_of
from .fault import Refusal, bad_request, engine_fault
from .metrics import Metrics
from .normal import DEFAULT_RULES, normalise
from .replay import find_answered
from .reply import Replies, json_response
from .route import Models, Slot
from .session import Session
from .text.render import render_prompt
from .upstream import Reply, UpstreamError
from .wire import EventSplitter

logger = logging.getLogger(__name__)

TRIES = 3
RETRY_STATUS = frozenset({502, 503, 504})
BYTES_A_TOKEN = 4
"""Of an estimate, where nothing here can count."""
ARGUMENTS_COMPLETED = "arguments_completed"
"""A tool call was not valid JSON, and the client's API has no way to say so."""
MEDIA = (b'"image_url"', b'"input_audio"', b'"file"')
LARGE_CALL = 16 << 10
"""Characters of a tool call above which it is read in a worker thread."""
LARGE_BYTES = 256 << 10
"""Above it the loop gets a turn between the steps of a call, so that large prompts that arrive
together do not add up to one long stall."""


class Relay:
    def __init__(
        self,
        models: Models,
        capture: Capture,
        shelf: Shelf,
        metrics: Metrics,
        rules: Collection[str] = DEFAULT_RULES,
    ) -> None:
        self._models, self._capture, self._shelf = models, capture, shelf
        self._metrics, self._rules = metrics, rules
        self._replies = Replies(capture, metrics)
        self.calls: set[Call] = set()

    async def handle(
        self, request: web.BaseRequest, dialect: Dialect, session: Session
    ) -> web.StreamResponse:
        body = await request.read()
        ask = session.heard.read(dialect, body)
        normalise(ask, self._rules)
        session.heard.learn(ask)
        if len(body) > LARGE_BYTES:
            await asyncio.sleep(0)
        pool = self._models.find(ask.model)
        identity = Identity.of(request, body, dialect.salt)
        twin = self._shelf.twin(session, identity)
        if twin is not None:
            return await self._replies.follow(twin, request)
        answered = find_answered(session, identity, dialect.salt)
        if answered:
            speller = pool.renderer.speller if pool.renderer is not None else None
            return await self._replies.replay(dialect, ask, answered, session, speller)
        session.responses.go_on(ask)
        if dialect.translated:
            session.book.restore(ask)
        session.admit(len(body))
        apply_sampling(ask.fields, session.sampling, overwrite=session.spec.overwrite)
        call = Call(session, pool, ask, dialect, identity, request)
        self._shelf.add(call)
        return await self._drive(call)

    async def count_tokens(
        self, request: web.BaseRequest, dialect: Dialect, session: Session
    ) -> web.Response:
        """Length of a prompt: exact where the gateway renders it, else about four bytes a token."""
        ask = dialect.parse(await request.read())
        normalise(ask, self._rules)
        pool = self._models.find(ask.model)
        if pool.renderer is None:
            told = sum(map(len, ask.messages or ())) + len(ask.raw("tools") or b"")
            return json_response(encode({"input_tokens": -(-told // BYTES_A_TOKEN)}))
        ids = await render_prompt(pool.renderer, ask, session.graph, pool.name)
        return json_response(encode({"input_tokens": len(ids) // ID_BYTES}))

    # --- one call -------------------------------------------------------------------------

    async def _drive(self, call: Call) -> web.StreamResponse:
        session = call.session
        self.calls.add(call)
        session.calls.append(call)
        try:
            await (self._stream(call) if call.ask.stream else self._whole(call))
        except Refusal as refusal:
            self._failed(call, refusal)
        except asyncio.CancelledError:
            if not call.cancelled:
                raise
            if call.task is not None:
                call.task.uncancel()
            await self._abandoned(call)
        finally:
            if not call.done:
                call.finish(Refusal(500, "the gateway failed", code="gateway_error"))
            self.calls.discard(call)
            session.calls.remove(call)
            session.touched = time.monotonic()
            if call.slot is not None:
                call.slot.in_flight -= 1
            self._shelf.finished(call)
            self._metrics.ended(call)
        response = await self._replies.send(call)
        call.release()
        return response

    async def _whole(self, call: Call) -> None:
        reply, slot = await self._open(call)
        async with reply:
            body = await _read(reply, slot)
        if slot.engine.takes_ids and len(body) > LARGE_BYTES:
            # detokenising and parsing a long answer would hold up everybody else
            answer = await asyncio.to_thread(slot.engine.read, call.ask, body)
        else:
            answer = slot.engine.read(call.ask, body)
        if len(body) > LARGE_BYTES:
            await asyncio.sleep(0)
        data = call.shaped(answer.body, whole=True)
        await self._keep(call, answer.choices)
        call.out.append(data)
        call.finish()

    async def _stream(self, call: Call) -> None:
        reply, slot = await self._open(call)
        async with reply:
            stream = slot.engine.stream(call.ask)
            await call.begin()
            try:
                held = await self._pump(call, reply, stream)
                choices = stream.result()
            except (UpstreamError, Refusal) as error:
                refusal = _as_refusal(error, slot)
                await self._cut(call, stream, refusal.message)
                raise refusal from None
            except asyncio.CancelledError:
                if call.cancelled:
                    await self._cut(call, stream, call.cancelled)
                raise
        await self._keep(call, choices)
        delivered = await call.send(call.shaped(held)) or bool(call.followers)
        if call.delivered != delivered:
            await self._capture.write(*call.delivery_frames(delivered))
        call.finish()

    async def _pump(self, call: Call, reply: Reply, stream: Stream) -> bytes:
        """Relays events as they come; returns those that wait for the journal."""
        splitter, held = EventSplitter(), []
        while True:
            chunk = await reply.next_chunk()
            events = splitter.feed(chunk) if chunk is not None else splitter.end()
            if events:
                if stream.held > LARGE_CALL:
                    now, kept = await asyncio.to_thread(stream.feed, events)
                else:
                    now, kept = stream.feed(events)
                if kept:
                    held.append(kept)
                call.tokens = stream.tokens
                if call.first_token is None and stream.tokens:
                    call.first_token = time.monotonic()
                if now and (data := call.shaped(now)):
                    await call.send(data)
            if chunk is None:
                return b"".join(held)

    async def _keep(self, call: Call, choices: list[Sampled]) -> None:
        if call.outlet is not None:
            as_sent(call.outlet, choices)
        try:
            await self._capture.keep(call, choices)
        except (GatewayError, OSError) as error:
            if isinstance(error, Refusal):
                raise
            raise Refusal(500, f"the turn could not be recorded: {error}") from error
        if call.dialect.translated:
            for choice in choices:
                call.session.book.learn(choice.message)
        if call.ask.remember:
            call.session.responses.remember(call.ask, choices[0].message)

    async def _cut(self, call: Call, stream: Stream | None, error: str) -> None:
        """Records what was sampled of a call that did not end: never trained."""
        choices = stream.partial() if stream is not None else []
        if not choices and not call.cancelled:
            return
        await self._keep_quietly(call, choices or [Sampled(0, finish_reason="abort")], error)

    async def _keep_quietly(self, call: Call, choices: list[Sampled], error: str) -> None:
        try:
            await self._capture.keep(call, choices, error=error)
        except (GatewayError, OSError) as problem:
            logger.warning(
                "session=<%s> | partial turn was not recorded: %s",
                call.session.session_id,
                problem,
            )

    async def _abandoned(self, call: Call) -> None:
        reason = call.cancelled or CLIENT_GONE
        if call.turns:
            await self._capture.write(*call.delivery_frames(False))
        else:
            await self._cut(call, None, reason)
        status = 499 if reason == CLIENT_GONE else 503
        call.finish(Refusal(status, reason, code="cancelled"))

    def _failed(self, call: Call, refusal: Refusal) -> None:
        call.session.failed += 1
        logger.info(
            "session=<%s> status=<%d> | call failed: %s",
            call.session.session_id,
            refusal.status,
            refusal.message,
        )
        call.finish(refusal)

    # --- engines --------------------------------------------------------------------------

    async def _open(self, call: Call) -> tuple[Reply, Slot]:
        """An engine's reply with status 200; other engines are tried before the first byte."""
        pool, session = call.pool, call.session
        avoid: frozenset[str] = frozenset()
        for left in range(TRIES - 1, -1, -1):
            if not pool.gate.is_set():
                await pool.gate.wait()
                call.marks = [(pool.version, 0)]
            slot = self._take(call, avoid)
            if slot.engine.takes_ids and call.ask.prompt is None:
                refuse_media(call.ask)
                assert pool.renderer is not None, "the pool checked it"
                call.ask.prompt = await render_prompt(
                    pool.renderer, call.ask, session.graph, pool.name
                )
            try:
                prepared = slot.engine.prepare(call.ask, session.session_id)
            except msgspec.DecodeError as error:
                raise bad_request(f"a parameter cannot be read: {error}") from None
            try:
                reply = await slot.engine.http.send(
                    "POST", prepared.path, prepared.body, prepared.headers
                )
            except UpstreamError as error:
                slot.failed()
                if not left:
                    raise _as_refusal(error, slot) from error
            else:
                if reply.status == 200:
                    slot.fails = 0
                    return reply, slot
                async with reply:
                    body = await _read(reply, slot)
                if not left or reply.status not in RETRY_STATUS:
                    raise error_of(reply.status, reply.headers, body, slot.name)
            self._metrics.retried += 1
            avoid |= {slot.name}
            if len(pool.slots) <= len(avoid):
                await asyncio.sleep(0.1 * (TRIES - left))
                avoid = frozenset()
        raise AssertionError("unreachable")

    def _take(self, call: Call, avoid: frozenset[str]) -> Slot:
        engines = call.session.engines
        slot = call.pool.pick(engines.get(call.pool.name), avoid)
        if call.slot is not None:
            call.slot.in_flight -= 1
        call.slot = slot
        slot.in_flight += 1
        slot.served += 1
        engines[call.pool.name] = slot.name
        _check_dialect(slot.engine, call.ask)
        return slot


def refuse_media(ask: Ask) -> None:
    """400 for what cannot become token ids here."""
    for message in ask.messages or ():
        if not any(mark in message for mark in MEDIA):
            continue
        content = msgspec.json.decode(message).get("content")
        kinds = {part.get("type") for part in content} if isinstance(content, list) else set()
        if kinds - {"text"}:
            raise bad_request("this model takes text only: leave out images and files", "messages")


def as_sent(outlet: Outlet, choices: list[Sampled]) -> None:
    """The messages as the client will replay them, which is what a later request is matched by."""
    for choice in choices:
        message = outlet.sent(choice.message)
        if message != choice.message:
            choice.message = message
            choice.flags = [*choice.flags, ARGUMENTS_COMPLETED]


async def _read(reply: Reply, slot: Slot) -> bytes:
    try:
        return await reply.read()
    except UpstreamError as error:
        slot.failed()
        raise _as_refusal(error, slot) from error


def _as_refusal(error: Exception, slot: Slot) -> Refusal:
    if isinstance(error, Refusal):
        return error
    return engine_fault(f"engine {slot.name}: {error}")


def _check_dialect(engine: Engine, ask: Ask) -> None:
    if ask.shape not in engine.dialects:
        raise Refusal(
            400, f"this model's {engine.kind} engine does not serve {ask.dialect}", retry=False
        )
