"""Answers on their way to clients: to the one that asked, and to those that ask again.

A retry follows the call that it repeats while that is in memory, and is answered from the journal
after that. Whoever was told the whole answer makes its turns delivered; the journal learns when
that is not as the turns say.
"""

from __future__ import annotations

from aiohttp import web

from ..trajectory.turn import Turn
from .call import SSE_HEADERS, Call, deliveries, open_outlet
from .capture import Capture
from .dialects.base import Ask, Dialect
from .fault import Refusal
from .metrics import Metrics
from .replay import replay
from .session import Session
from .text.spelling import Speller

FOLLOW_S = 1.0


class Replies:
    def __init__(self, capture: Capture, metrics: Metrics) -> None:
        self._capture, self._metrics = capture, metrics

    async def send(self, call: Call) -> web.StreamResponse:
        """The end of a call that its own client waits for."""
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

    async def replay(
        self,
        dialect: Dialect,
        ask: Ask,
        turns: list[Turn],
        session: Session,
        speller: Speller | None = None,
    ) -> web.StreamResponse:
        """Answers a retry from the journal's turns."""
        self._metrics.joined += 1
        body = replay(ask, turns, speller)
        outlet = open_outlet(dialect, ask, session, turns[0].retry_key)
        if outlet is not None:
            body = outlet.events(body) if ask.stream else outlet.whole(body)
        await self._capture.write(*deliveries(session, turns, True))
        kind = "text/event-stream" if ask.stream else "application/json"
        return web.Response(body=body, content_type=kind)

    async def follow(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a retry from the call that it repeats."""
        self._metrics.joined += 1
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
                        await response.write(call.dialect.keep_alive)
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
    return json_response(b"".join(call.out))


def json_response(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


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
