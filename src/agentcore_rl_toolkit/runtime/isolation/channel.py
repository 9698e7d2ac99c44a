"""The runtime's end of a packet socket: messages with descriptors, on the event loop.

What comes from the other end is written by code that shares a process with the agent: a packet
that is not understood closes the channel, and descriptors that nobody asked for are closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from .inside import wire

Received = tuple[wire.Message, list[int]]


class Closed(Exception):
    """The other end is gone."""


class Channel:
    def __init__(self, sock: socket.socket, on_close: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._sock: socket.socket | None = sock
        self._arrived: deque[Received] = deque()
        self._waiting: deque[asyncio.Future[Received]] = deque()
        self._on_close = on_close
        self._loop.add_reader(sock.fileno(), self._read)

    @property
    def open(self) -> bool:
        return self._sock is not None

    async def send(self, message: wire.Message, descriptors: list[int] | None = None) -> None:
        while self._sock is not None:
            try:
                return wire.send(self._sock, message, descriptors)
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except OSError as error:
                self.close()
                raise Closed(str(error)) from error
        raise Closed("the other end has gone")

    async def receive(self) -> Received:
        """Packets come in order; one caller at a time gets each."""
        if self._arrived:
            return self._arrived.popleft()
        if self._sock is None:
            raise Closed("the other end has gone")
        future: asyncio.Future[Received] = self._loop.create_future()
        self._waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._arrived.appendleft(future.result())
            raise

    def _read(self) -> None:
        while self._sock is not None:
            try:
                received = wire.receive(self._sock)
            except BlockingIOError:
                return
            except (OSError, ValueError):
                received = None
            if received is None:
                self.close()
            else:
                self._deliver(received)

    def _deliver(self, received: Received) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(received)
                return
        self._arrived.append(received)

    def drain(self) -> list[wire.Message]:
        """What has arrived and nobody waits for; its descriptors are closed."""
        if self._sock is not None:
            self._read()
        messages = []
        while self._arrived:
            message, descriptors = self._arrived.popleft()
            messages.append(message)
            for descriptor in descriptors:
                os.close(descriptor)
        return messages

    def close(self) -> None:
        """May be called twice. What has arrived can still be received."""
        if self._sock is None:
            return
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        self._sock = None
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(Closed("the other end has gone"))
        if self._on_close is not None:
            self._on_close()
