"""AWS's interactive shells: ``/runtimes/{arn}/ws/shells``, as ``open_shell`` of its SDK speaks it.

A shell has a terminal and a name, and outlives its connection: whoever comes with the same session
and name gets the end of what it showed, and goes on where it was; a connection that was still there
is closed with 4000. It ends with its program, with a CLOSE frame, or with its session. Frames are
one byte for the channel and then the payload. ``shell.py`` is our own, simpler one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

from . import wire
from .awsquota import Bucket
from .data import DataPlane, session_id_of
from .isolation.base import Running
from .session import Session, SessionKey
from .shell import HEARTBEAT_S, PROGRAM, READ_BYTES, Terminal, until_readable, write_all

logger = logging.getLogger(__name__)

SHELL_HEADER = "X-Amzn-Bedrock-AgentCore-Shell-Id"
SHELL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
STDIN, STDOUT, STATUS, RESIZE, HEARTBEAT, CLOSE = 0x00, 0x01, 0x03, 0x04, 0x05, 0xFF
MAX_FRAME_BYTES = 64 * 1024
MAX_TEXT_FRAMES = 5
MAX_SHELLS = 10
"""Of one runtime."""
REPLAY_BYTES = 256 * 1024
LIFE_S = 3600.0
"""Of one connection."""
ROWS, COLS = 24, 80
REPLACED, TOO_LONG, NOT_BINARY, NOT_UNDERSTOOD = 4000, 1008, 1003, 1007


class Shells:
    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane
        self._open: dict[tuple[SessionKey, str], Shell] = {}

    async def handle(self, request: web.Request, runtime_id: str) -> web.StreamResponse:
        session_id = session_id_of(request)
        try:
            if not web.WebSocketResponse().can_prepare(request):
                raise wire.invalid("This path takes WebSocket upgrades only")
            name = check_shell_id(request.query.get("shellId") or str(uuid.uuid4()))
            key = self.plane.admit(request, runtime_id, session_id)
            self._check_ready(key)
            async with self.plane.working(key, request) as session:
                shell = self._open.get((key, name))
                known = shell is not None
                if shell is None:
                    shell = await self._start(session, name)
                return await shell.serve(request, known, self.plane.meter.quotas.frames)
        except wire.WireError as error:
            return error.response(session_id)

    def _check_ready(self, key: SessionKey) -> None:
        _, endpoint = self.plane.deployments.find(key.runtime_id, key.qualifier)
        if not endpoint.live:
            raise wire.invalid(f"The agent runtime {key.runtime_id} is not READY")

    async def _start(self, session: Session, name: str) -> Shell:
        assert session.compute is not None
        same = [key for key, _ in self._open if key.runtime_id == session.key.runtime_id]
        if len(same) >= MAX_SHELLS:
            raise wire.runtime_error(f"There are {MAX_SHELLS} shells of this runtime already")
        terminal = Terminal(ROWS, COLS)
        try:
            leash = await session.compute.run(["/bin/sh", "-c", PROGRAM], *terminal.theirs)
        except OSError as error:
            terminal.close()
            raise wire.runtime_error(f"The shell could not be started: {error}") from error
        terminal.give()
        place = (session.key, name)
        shell = Shell(session.session_id, name, terminal, leash, lambda: self._forget(place, shell))
        self._open[place] = shell
        return shell

    def _forget(self, place: tuple[SessionKey, str], shell: Shell) -> None:
        if self._open.get(place) is shell:
            del self._open[place]

    async def close(self) -> None:
        tasks = [shell.showing for shell in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Shell:
    def __init__(
        self,
        session_id: str,
        name: str,
        terminal: Terminal,
        leash: Running,
        forget: Callable[[], None],
    ) -> None:
        self.session_id, self.name = session_id, name
        self.terminal, self.leash = terminal, leash
        self._shown = bytearray()
        self._caller: web.WebSocketResponse | None = None
        self._sending = asyncio.Lock()
        self._forget = forget
        self.showing = asyncio.create_task(self._show(), name=f"shell {name}")
        logger.info("session=<%s> shell=<%s> | started", session_id, name)

    # --- towards the caller -------------------------------------------------------------------

    async def _show(self) -> None:
        try:
            while data := await self._read():
                self._shown += data
                del self._shown[:-REPLAY_BYTES]
                await self._send(STDOUT, data)
            await self._send(STATUS, json.dumps(ended(await exit_of(self.leash))).encode())
        finally:
            self._forget()
            self.leash.let_go()
            self.terminal.close()
            caller, self._caller = self._caller, None
            if caller is not None:
                await caller.close()

    async def _read(self) -> bytes:
        """Empty when the shell has ended and all that it wrote was read."""
        source = self.terminal.input
        while True:
            over = self.leash.done  # looked at first: what it wrote is there then
            try:
                if data := os.read(source, READ_BYTES):
                    return data
            except BlockingIOError:
                if over:
                    return b""
                await until_readable([source], self.leash)
            except OSError:  # nobody has the other side any more
                return b""

    async def _send(self, channel: int, payload: bytes) -> None:
        async with self._sending:
            if self._caller is not None:
                try:
                    await self._caller.send_bytes(bytes([channel]) + payload)
                except ConnectionError:
                    self._caller = None

    # --- from the caller ----------------------------------------------------------------------

    async def serve(
        self, request: web.Request, known: bool, frames: float | None
    ) -> web.WebSocketResponse:
        caller = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MAX_FRAME_BYTES + 1)
        caller.headers[wire.SESSION_HEADER] = self.session_id
        caller.headers[SHELL_HEADER] = self.name
        await caller.prepare(request)
        await self._attach(caller, known)
        try:
            async with asyncio.timeout(LIFE_S):
                await self._listen(caller, frames)
        except TimeoutError:
            self.leash.let_go()
            await self._send(CLOSE, b"")
            await caller.close(code=TOO_LONG, message=b"time is up")
        finally:
            if self._caller is caller:
                self._caller = None
        return caller

    async def _attach(self, caller: web.WebSocketResponse, known: bool) -> None:
        before, self._caller = self._caller, None
        if before is not None:
            await before.close(code=REPLACED, message=b"another client has this shell now")
        async with self._sending:
            with contextlib.suppress(ConnectionError):
                await caller.send_bytes(bytes([STATUS]) + json.dumps(self._confirm(known)).encode())
                for start in range(0, len(self._shown), READ_BYTES):
                    piece = bytes(self._shown[start : start + READ_BYTES])
                    await caller.send_bytes(bytes([STDOUT]) + piece)
            if self.showing.done():
                await caller.close()
            else:
                self._caller = caller

    def _confirm(self, known: bool) -> dict[str, Any]:
        return status(metadata={"shellId": self.name, "reconnected": known})

    async def _listen(self, caller: web.WebSocketResponse, frames: float | None) -> None:
        now = asyncio.get_running_loop().time
        bucket = Bucket(frames, now()) if frames else None
        texts = 0
        async for message in caller:
            texts += message.type is WSMsgType.TEXT
            if bucket is not None and not bucket.take(now()):
                await caller.close(code=TOO_LONG, message=b"too many frames")
            elif texts >= MAX_TEXT_FRAMES:
                await caller.close(code=NOT_BINARY, message=b"frames are binary")
            elif message.type is WSMsgType.BINARY and message.data:
                try:
                    await self._take(message.data[0], message.data[1:])
                except OSError:
                    pass  # the shell closed its input; its end is told by ``_show``
                except (ValueError, TypeError, KeyError, struct.error):
                    await caller.close(code=NOT_UNDERSTOOD, message=b"not a resize")

    async def _take(self, channel: int, payload: bytes) -> None:
        if channel == STDIN:
            await write_all(self.terminal.input, payload)
        elif channel == RESIZE:
            size = json.loads(payload)
            self.terminal.resize(size["height"], size["width"])
        elif channel == HEARTBEAT:
            await self._send(HEARTBEAT, b"")
        elif channel == CLOSE:
            await self.leash.end()


def check_shell_id(name: str) -> str:
    if not SHELL_ID.fullmatch(name):
        raise wire.invalid(
            "shellId must be a letter or digit and then up to 127 of a-z, A-Z, 0-9, '-' and '_'",
            "shellId",
        )
    return name


# --- what is told -----------------------------------------------------------------------------


def status(**members: Any) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **members}


def ended(code: int | None) -> dict[str, Any]:
    """``code``: negative for a signal, None when nobody knows."""
    if code == 0:
        return status()
    if code is None:
        message = "the session ended"
        return status(status="Failure", reason="InternalError", message=message, code=500)
    told = 128 - code if code < 0 else code
    causes = [{"reason": "ExitCode", "message": str(told)}]
    if code < 0:
        causes.append({"reason": "Signal", "message": str(-code)})
    return status(
        status="Failure",
        reason="NonZeroExitCode",
        message=f"command terminated with exit code {told}",
        details={"causes": causes},
    )


async def exit_of(leash: Running) -> int | None:
    try:
        return await leash.wait()
    except OSError:
        return None
