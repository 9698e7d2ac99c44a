"""An interactive shell in a live session, over a WebSocket: ``/_art/sessions/{id}/shell``.

With ``rows`` and ``cols`` in the query the shell gets a terminal, without them plain input and
output. Binary messages are bytes: the caller's are input, ours begin with 1 for output and 2 for
errors. Text messages are JSON: ``{"resize": [rows, cols]}`` and ``{"eof": true}`` from the caller,
``{"exit": code}`` from us, as the last one. The shell counts as activity of its session, and ends
with the connection, with all that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import socket
import struct
import termios

from aiohttp import WSMsgType, web

from . import wire
from .data import DataPlane
from .isolation.base import Running
from .session import Session

logger = logging.getLogger(__name__)

PROGRAM = "export TERM=xterm-256color; exec $(command -v bash || echo /bin/sh)"
READ_BYTES = 32 * 1024
HEARTBEAT_S = 30.0
OUT, ERRORS = b"\x01", b"\x02"


async def handle(request: web.Request, session: Session, plane: DataPlane) -> web.StreamResponse:
    if not web.WebSocketResponse().can_prepare(request):
        raise wire.invalid("This path takes WebSocket upgrades only")
    size = window(request)
    async with plane.working(session.key, request) as live:
        assert live.compute is not None
        ends = Terminal(*size) if size else Plain()
        with contextlib.closing(ends):
            try:
                leash = await live.compute.run(["/bin/sh", "-c", PROGRAM], *ends.theirs)
            except OSError as error:
                raise wire.runtime_error(f"The shell could not be started: {error}") from error
            ends.give()
            logger.info("session=<%s> | shell started", session.session_id)
            try:
                return await _converse(request, ends, leash)
            finally:
                leash.let_go()


def window(request: web.Request) -> tuple[int, int] | None:
    rows, cols = request.query.get("rows"), request.query.get("cols")
    if rows is None and cols is None:
        return None
    try:
        size = int(rows or ""), int(cols or "")
    except ValueError:
        size = 0, 0
    if not all(1 <= one <= 10_000 for one in size):
        raise wire.invalid("rows and cols must both be 1 to 10000", "rows")
    return size


class Terminal:
    """Our end of a terminal, and the shell's."""

    def __init__(self, rows: int, cols: int) -> None:
        self._ours, theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.theirs = (theirs, theirs)
        self.sources = {OUT: self._ours}
        self.resize(rows, cols)

    def give(self) -> None:
        """The shell has its ends: while we held them, its output would not end."""
        os.close(self.theirs[0])
        self.theirs = (-1, -1)

    @property
    def input(self) -> int:
        return self._ours

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def eof(self) -> None:
        os.write(self._ours, b"\x04")

    def close(self) -> None:
        for descriptor in {self._ours, *self.theirs} - {-1}:
            os.close(descriptor)


class Plain:
    """A socket for input and output, and one for errors."""

    def __init__(self) -> None:
        self._out, self._errors = socket.socketpair(), socket.socketpair()
        for ours, _ in (self._out, self._errors):
            ours.setblocking(False)
        self.theirs = (self._out[1].fileno(), self._errors[1].fileno())
        self.sources = {OUT: self._out[0].fileno(), ERRORS: self._errors[0].fileno()}

    def give(self) -> None:
        self._out[1].close()
        self._errors[1].close()

    @property
    def input(self) -> int:
        return self._out[0].fileno()

    def resize(self, rows: int, cols: int) -> None:
        pass

    def eof(self) -> None:
        self._out[0].shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for sock in (*self._out, *self._errors):
            sock.close()


Ends = Terminal | Plain


async def _converse(request: web.Request, ends: Ends, leash: Running) -> web.WebSocketResponse:
    caller = web.WebSocketResponse(heartbeat=HEARTBEAT_S)
    await caller.prepare(request)
    typing = asyncio.create_task(_input(caller, ends))
    showing = asyncio.create_task(_output(caller, ends, leash))
    try:
        await asyncio.wait({typing, showing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (typing, showing):
            task.cancel()
        await asyncio.gather(typing, showing, return_exceptions=True)
    await caller.close()
    return caller


async def _input(caller: web.WebSocketResponse, ends: Ends) -> None:
    """Returns when the caller has left."""
    async for message in caller:
        try:
            if message.type is WSMsgType.BINARY:
                await write_all(ends.input, message.data)
            elif message.type is WSMsgType.TEXT:
                _control(message.json(), ends)
        except OSError:
            pass  # the shell closed its input; its end is told by ``_output``
        except (ValueError, TypeError, struct.error):
            await caller.close(code=1007, message=b"not a message of this protocol")


def _control(message: object, ends: Ends) -> None:
    match message:
        case {"resize": [int(rows), int(cols)]}:
            ends.resize(rows, cols)
        case {"eof": True}:
            ends.eof()
        case _:
            raise ValueError(message)


async def _output(caller: web.WebSocketResponse, ends: Ends, leash: Running) -> None:
    """Returns when the shell has ended and all that it wrote was sent."""
    open_ = dict(ends.sources)
    try:
        while True:
            ended = leash.done  # looked at first: what it wrote is there then
            silent = True
            for mark, source in list(open_.items()):
                try:
                    data = os.read(source, READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""  # a terminal whose other side is closed
                if data:
                    silent = False
                    await caller.send_bytes(mark + data)
                else:
                    del open_[mark]
            if ended and silent:
                break
            if silent:
                await until_readable(list(open_.values()), leash)
        await caller.send_str(json.dumps({"exit": await exit_code(leash)}))
    except ConnectionError:
        pass


async def exit_code(leash: Running) -> int:
    try:
        code = await leash.wait()
    except OSError:
        return -1  # the session ended
    return 128 - code if code < 0 else code


async def until_readable(sources: list[int], leash: Running) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[int] = loop.create_future()
    ended: asyncio.Future[int] = asyncio.ensure_future(leash.wait())
    for source in sources:
        loop.add_reader(source, _settle, readable)
    try:
        await asyncio.wait({readable, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for source in sources:
            loop.remove_reader(source)
        if ended.done() and not ended.cancelled():
            ended.exception()
        ended.cancel()


async def write_all(target: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:
            await _once(loop, target)


async def _once(loop: asyncio.AbstractEventLoop, target: int) -> None:
    writable: asyncio.Future[int] = loop.create_future()
    loop.add_writer(target, _settle, writable)
    try:
        await writable
    finally:
        loop.remove_writer(target)


def _settle(future: asyncio.Future[int]) -> None:
    if not future.done():
        future.set_result(0)
