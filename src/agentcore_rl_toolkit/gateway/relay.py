"""The data plane: one request in, the engine's answer out, the turn kept in between.

Invariants: engines are retried only before the first byte; the terminal bytes leave after the turn
is durable; a call that its client left is driven on for a grace period and then cancelled, and
what had been sampled is recorded as not delivered. A failed engine never makes a turn.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from ..errors import GatewayError
from ..trajectory.turn import Turn
from .call import (
    CLIENT_GONE,
    KEEP_ALIVE_EVENT,
    SSE_HEADERS,
    Call,
    Identity,
    Shelf,
    deliveries,
)
from .capture import Capture
from .dialects.base import Ask, Dialect
from .engines.base import Engine, Sampled, Stream, apply_sampling, error_of
from .fault import Refusal, engine_fault
from .metrics import Metrics
from .render import render_ask
from .replay import find_answered, replay
from .route import Models, Slot
from .session import Session
from .upstream import Reply, UpstreamError
from .wire import EventSplitter

logger = logging.getLogger(__name__)

TRIES = 3
RETRY_STATUS = frozenset({502, 503, 504})
FOLLOW_S = 1.0
LARGE_BYTES = 256 << 10
"""Above it the loop gets a turn between the steps of a call, so that large prompts that arrive
together do not add up to one long stall."""


class Relay:
    def __init__(self, models: Models, capture: Capture, shelf: Shelf, metrics: Metrics) -> None:
        self._models, self._capture, self._shelf = models, capture, shelf
        self._metrics = metrics
        self.calls: set[Call] = set()

    async def handle(
        self, request: web.BaseRequest, dialect: Dialect, session: Session
    ) -> web.StreamResponse:
        body = await request.read()
        ask = dialect.parse(body)
        if len(body) > LARGE_BYTES:
            await asyncio.sleep(0)
        pool = self._models.find(ask.model)
        identity = Identity.of(request, body)
        twin = self._shelf.twin(session, identity)
        if twin is not None:
            self._metrics.joined += 1
            return await self._follow(twin, request)
        answered = find_answered(session, identity)
        if answered:
            return await self._replay(ask, answered, session)
        session.admit(len(body))
        apply_sampling(ask.fields, session.sampling, overwrite=session.spec.overwrite)
        call = Call(session, pool, ask, dialect, identity, request)
        self._shelf.add(call)
        return await self._drive(call)

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
        response = await self._reply(call)
        call.release()
        return response

    async def _whole(self, call: Call) -> None:
        reply, slot = await self._open(call)
        async with reply:
            body = await _read(reply, slot)
        answer = slot.engine.read(call.ask, body)
        if len(body) > LARGE_BYTES:
            await asyncio.sleep(0)
        await self._keep(call, answer.choices)
        call.out.append(answer.body)
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
        delivered = await call.send(held) or bool(call.followers)
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
                now, kept = stream.feed(events)
                if kept:
                    held.append(kept)
                call.tokens = stream.tokens
                if call.first_token is None and stream.tokens:
                    call.first_token = time.monotonic()
                if now:
                    await call.send(now)
            if chunk is None:
                return b"".join(held)

    async def _keep(self, call: Call, choices: list[Sampled]) -> None:
        try:
            await self._capture.keep(call, choices)
        except (GatewayError, OSError) as error:
            if isinstance(error, Refusal):
                raise
            for turn in call.turns:
                call.session.graph.mark_delivered(turn.turn_id, False)
            raise Refusal(500, f"the turn could not be recorded: {error}") from error

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
                call.ask.prompt = await self._render(call)
            prepared = slot.engine.prepare(call.ask, session.session_id)
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

    async def _render(self, call: Call) -> bytes:
        """Prompt ids: those of the turn that it continues, and the rest rendered off the loop."""
        ask, graph, renderer = call.ask, call.session.graph, call.pool.renderer
        assert renderer is not None, "the pool checked it"
        held, n_held = None, 0
        if ask.messages is not None:
            placement = graph.place(
                model=call.pool.name, messages=ask.messages, tools=ask.raw("tools")
            )
            if placement.continues is not None:
                held, n_held = graph.ids(placement.continues), placement.n_matched
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, render_ask, renderer, ask, held, n_held)

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

    # --- replies --------------------------------------------------------------------------

    async def _reply(self, call: Call) -> web.StreamResponse:
        if call.response is None:
            response = _plain(call)
            if call.refusal is None and not call.gone:
                call.delivered = True
            elif call.turns and call.refusal is None:
                await self._capture.write(*call.delivery_frames(False))
            return response
        if call.refusal is not None:
            if call.ask.stream:
                await call.write(call.dialect.error_event(call.refusal))
            elif call.request is not None and call.request.transport is not None:
                # the status line said 200 already: a broken connection is the only honest error
                call.request.transport.abort()
        elif not call.ask.stream:
            delivered = await call.write(call.out[0])
            await self._capture.write(*call.delivery_frames(delivered))
        await _end(call.response)
        return call.response

    async def _replay(self, ask: Ask, turns: list[Turn], session: Session) -> web.StreamResponse:
        self._metrics.joined += 1
        await self._capture.write(*deliveries(session, turns, True))
        kind = "text/event-stream" if ask.stream else "application/json"
        return web.Response(body=replay(ask, turns), content_type=kind)

    async def _follow(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a retry from the call that it repeats."""
        call.followers += 1
        call.orphaned = None
        try:
            if call.ask.stream:
                return await self._follow_stream(call, request)
            while not call.done:
                await call.changed(FOLLOW_S)
                if request.transport is None:
                    raise ConnectionResetError("the client disconnected")
            response = _plain(call)
            if call.refusal is None:
                await self._capture.write(*call.delivery_frames(True))
            return response
        finally:
            call.followers -= 1

    async def _follow_stream(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        sent, complete = 0, False
        try:
            while not complete:
                complete = call.done
                if sent < len(call.out):
                    data = b"".join(call.out[sent:])
                    sent = len(call.out)
                    await response.write(data)
                elif not complete:
                    await call.changed(FOLLOW_S)
                    if sent == len(call.out) and not call.done:
                        await response.write(KEEP_ALIVE_EVENT)
            if call.refusal is not None:
                await response.write(call.dialect.error_event(call.refusal))
            else:
                await self._capture.write(*call.delivery_frames(True))
        except ConnectionError:
            pass
        await _end(response)
        return response


def _plain(call: Call) -> web.Response:
    if call.refusal is not None:
        return error_response(call.dialect, call.refusal)
    return web.Response(body=b"".join(call.out), content_type="application/json")


def error_response(dialect: Dialect, refusal: Refusal) -> web.Response:
    headers = {"x-should-retry": "true" if refusal.retry else "false", **refusal.headers}
    return web.Response(
        status=refusal.status,
        body=dialect.error(refusal),
        content_type="application/json",
        headers=headers,
    )


async def _end(response: web.StreamResponse) -> None:
    try:
        await response.write_eof()
    except ConnectionError:
        pass


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
    if ask.dialect not in engine.dialects:
        raise Refusal(
            400, f"this model's {engine.kind} engine does not serve {ask.dialect}", retry=False
        )
