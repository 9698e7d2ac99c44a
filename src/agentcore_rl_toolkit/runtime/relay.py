"""Bytes between two connections, each direction closed when its sender closes it.

Nothing is buffered beyond what one read gives: what an engine streams, the agent sees at once,
and a slow reader slows its sender.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable

from .rest import Traffic

logger = logging.getLogger(__name__)

CHUNK = 64 * 1024
MAX_CONNECTIONS = 512
"""At one door at a time: whoever sits in the session must not use up the runtime's descriptors."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def join(one: Streams, two: Streams, traffic: Traffic | None = None) -> None:
    """Relays both ways until both ends have closed, or one has failed; then neither is open.

    ``one`` is the session's end where its traffic is told."""
    line, told = object(), traffic or Traffic()

    def asked() -> None:
        told.spoke(line, time.monotonic())

    def answered() -> None:
        told.hears(line, time.monotonic())

    ways = [
        asyncio.create_task(_pump(one[0], two[1], asked)),
        asyncio.create_task(_pump(two[0], one[1], answered)),
    ]
    try:
        await asyncio.gather(*ways)
    except OSError:
        for _, writer in (one, two):
            writer.transport.abort()
    finally:
        for way in ways:
            way.cancel()
        answered()
        one[1].close()  # both, before anything is awaited: a second cancellation may come
        two[1].close()
        await shut(one[1])
        await shut(two[1])


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Callable[[], None]
) -> None:
    while data := await reader.read(CHUNK):
        passed()
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


class Door:
    """A listener and the connections that came through it; closing it ends them all."""

    def __init__(self, listener: socket.socket, handler: Handler) -> None:
        self._listener, self._handler = listener, handler
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=self._listener)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        # A task that is cancelled before it has begun runs no line of its own.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handler(reader, writer)
        except OSError as error:
            logger.debug("error=<%s> | relayed connection failed", error)
            writer.transport.abort()
        finally:
            await shut(writer)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _hang_up(dialled: asyncio.Future[Streams]) -> None:
    if not dialled.cancelled() and dialled.exception() is None:
        dialled.result()[1].close()


async def relay(
    listener: socket.socket, dial: Callable[[], Awaitable[Streams]], traffic: Traffic | None = None
) -> Door:
    """Every connection to ``listener`` is joined with a new one that ``dial`` makes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled = asyncio.ensure_future(dial())
        try:
            with (traffic or Traffic()).dialling():
                other = await asyncio.shield(dialled)
        except asyncio.CancelledError:
            dialled.add_done_callback(_hang_up)  # it may have got through in the same moment
            raise
        await join((reader, writer), other, traffic)

    door = Door(listener, handle)
    await door.start()
    return door
