"""Notices passed on to clients of the gateway, as server-sent events.

Each subscriber has its own bounded queue; one that does not read loses its connection, not the
gateway's memory. Notices are hints: the result store and the journal stay the truth.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from .call import KEEP_ALIVE_EVENT, SSE_HEADERS

MAX_QUEUED = 10_000
KEEP_ALIVE_S = 15.0


class Events:
    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[bytes | None]] = set()

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        event = b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))
        for queue in list(self._queues):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._queues.discard(queue)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED)
        self._queues.add(queue)
        response = web.StreamResponse(headers=SSE_HEADERS)
        try:
            await response.prepare(request)
            await response.write(b"event: hello\ndata: {}\n\n")
            while queue in self._queues:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        event = await queue.get()
                except TimeoutError:
                    event = KEEP_ALIVE_EVENT
                if event is None:
                    break
                await response.write(event)
        except ConnectionError:
            pass
        finally:
            self._queues.discard(queue)
        return response

    def close(self) -> None:
        for queue in list(self._queues):
            self._queues.discard(queue)
            if not queue.full():
                queue.put_nowait(None)
