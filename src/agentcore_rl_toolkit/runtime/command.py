"""InvokeAgentRuntimeCommand: a command in a live session, its output streamed as it comes.

The answer is an event stream: ``contentStart`` once the command runs, ``contentDelta`` for every
piece of output, ``contentStop`` with the exit code. What goes wrong before it begins is an ordinary
error; after that it is an exception in the stream. A caller who leaves ends the command with all
that it started, and so does its timeout. What a command leaves running when it ends by itself lives
on with the session.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from . import eventstream, wire
from .argv import split
from .check import read_json
from .data import DataPlane, session_id_of
from .isolation.base import Running
from .session import Session

logger = logging.getLogger(__name__)

MAX_COMMAND_CHARS = 65_536
DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 300, 3600
CHUNK_BYTES = 32 * 1024
"""Of output in one event; AWS's bound is 64 KB."""
MAX_OUTPUT_BYTES = 100_000_000
LEFT_BYTES = 1024 * 1024
"""Read of each pipe after the command's end: what it left running may write for ever."""
LOOK_S = 0.25
"""How often a silent command's caller is looked for."""
TRACE = ("X-Amzn-Trace-Id", "traceparent", "tracestate", "baggage")


class Command(NamedTuple):
    argv: list[str]
    timeout_s: int


def parse(body: dict[str, Any]) -> Command:
    text, timeout = body.get("command"), body.get("timeout")
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_COMMAND_CHARS:
        raise wire.invalid(
            f"command must be text of 1 to {MAX_COMMAND_CHARS} characters", "command"
        )
    if timeout is None:
        timeout = DEFAULT_TIMEOUT_S
    if type(timeout) is not int or not 1 <= timeout <= MAX_TIMEOUT_S:
        raise wire.invalid(f"timeout must be 1 to {MAX_TIMEOUT_S} whole seconds", "timeout")
    try:
        argv = split(text)
    except ValueError as error:
        raise wire.invalid(str(error), "command") from error
    if not argv or "\0" in text:
        raise wire.invalid("command holds no program to run, or a NUL character", "command")
    return Command(argv, timeout)


class Commands:
    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane

    async def handle(self, request: web.Request, runtime_id: str) -> web.StreamResponse:
        session_id = session_id_of(request)
        try:
            key = self.plane.admit(request, runtime_id, session_id)
            command = parse(await read_json(request))
            async with self.plane.working(key, request) as session:
                with contextlib.closing(await start(session, command)) as run:
                    return await answer(request, run)
        except wire.WireError as error:
            return error.response(session_id)


@dataclass(eq=False)
class Run:
    """A command that runs, and the read ends of its output."""

    session: Session
    command: Command
    leash: Running
    pipes: dict[str, int]
    deadline: float
    timed_out: bool = False
    _decoders: dict[str, codecs.IncrementalDecoder] = field(default_factory=dict)

    def close(self) -> None:
        self.leash.let_go()
        for descriptor in self.pipes.values():
            os.close(descriptor)
        self.pipes.clear()

    async def output(self, wanted: Callable[[], bool]) -> AsyncIterator[tuple[str, str]]:
        """``("stdout", text)``, ``("stderr", text)``, until it has ended or is not ``wanted``."""
        left = dict.fromkeys(self.pipes, LEFT_BYTES)
        while wanted():
            ended = self.leash.done  # looked at first: all that it wrote is in the pipes then
            progress = False
            for name, data in self._read():
                if ended:
                    left[name] -= len(data)
                progress = progress or left[name] > 0
                if text := self._decode(name, data):
                    yield name, text
            if ended and not progress:
                break
            if not progress:
                await self._wait()
        for name in list(self._decoders):
            if text := self._decode(name, b"", final=True):
                yield name, text

    def _read(self) -> Iterator[tuple[str, bytes]]:
        for name, descriptor in list(self.pipes.items()):
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                continue
            if data:
                yield name, data
            else:
                os.close(self.pipes.pop(name))

    def _decode(self, name: str, data: bytes, final: bool = False) -> str:
        """A character may come in two pieces; what is not UTF-8 cannot be told in this stream."""
        if name not in self._decoders:
            self._decoders[name] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[name].decode(data, final)

    async def _wait(self) -> None:
        """For output, the end, the deadline, or a moment."""
        if not self.timed_out and time.monotonic() >= self.deadline:
            self.timed_out = True
            await self.leash.end()
            return
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        ended = asyncio.ensure_future(self.leash.wait())
        for descriptor in self.pipes.values():
            loop.add_reader(descriptor, _set, readable)
        try:
            pause = min(LOOK_S, max(self.deadline - time.monotonic(), 0.001))
            either: set[asyncio.Future[Any]] = {readable, ended}
            await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for descriptor in self.pipes.values():
                loop.remove_reader(descriptor)
            if ended.done():
                ended.exception()
            ended.cancel()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def start(session: Session, command: Command) -> Run:
    assert session.compute is not None
    out, errors = os.pipe(), os.pipe()
    pipes = {"stdout": out[0], "stderr": errors[0]}
    for descriptor in pipes.values():
        os.set_blocking(descriptor, False)
    try:
        leash = await session.compute.run(command.argv, out[1], errors[1])
    except OSError as error:
        for descriptor in pipes.values():
            os.close(descriptor)
        raise wire.runtime_error(f"The command could not be started: {error}") from error
    finally:
        os.close(out[1])
        os.close(errors[1])
    logger.info("session=<%s> program=<%s> | command started", session.session_id, command.argv[0])
    return Run(session, command, leash, pipes, time.monotonic() + command.timeout_s)


async def answer(request: web.Request, run: Run) -> web.StreamResponse:
    headers = {name: request.headers[name] for name in TRACE if name in request.headers}
    headers["Content-Type"] = eventstream.CONTENT_TYPE
    headers[wire.SESSION_HEADER] = run.session.session_id
    response = web.StreamResponse(headers=headers)

    def listening() -> bool:
        return request.transport is not None and not request.transport.is_closing()

    try:
        await response.prepare(request)
        await response.write(chunk("contentStart", {}))
        size = 0
        async for name, text in run.output(listening):
            await response.write(chunk("contentDelta", {name: text}))
            size += len(text)
            if size > MAX_OUTPUT_BYTES:
                await run.leash.end()
                limit = wire.quota_exceeded(f"The output is over {MAX_OUTPUT_BYTES} bytes")
                await response.write(eventstream.exception(limit))
                return response
        if listening():
            await response.write(await last_event(run))
    except ConnectionError:
        logger.info("session=<%s> | caller of a command left", run.session.session_id)
    return response


async def last_event(run: Run) -> bytes:
    try:
        code = await run.leash.wait()
    except OSError as error:
        return eventstream.exception(wire.runtime_error(f"The command was lost: {error}"))
    if run.timed_out:
        return chunk("contentStop", {"exitCode": -1, "status": "TIMED_OUT"})
    # As a shell tells of a signal: the service knows no negative code but its own -1.
    code = 128 - code if code < 0 else code
    return chunk("contentStop", {"exitCode": code, "status": "COMPLETED"})


def chunk(kind: str, content: dict[str, Any]) -> bytes:
    return eventstream.event("chunk", {kind: content})
