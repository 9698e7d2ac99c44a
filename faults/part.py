"""One process of the stack: started, killed, paused, watched."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

START_S = 90.0
STOP_S = 60.0
LOG_TAIL = 2000


class PartError(Exception):
    """A part that did not start, did not end, or ended by itself."""


class Part:
    def __init__(
        self,
        name: str,
        command: list[str],
        env: Mapping[str, str],
        log: Path,
        ready: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.name, self.command, self.env, self.log = name, command, dict(env), log
        self._ready = ready
        self.process: asyncio.subprocess.Process | None = None
        self.wanted = False
        """It should be up: when it is not, it ended by itself."""
        self.pids: list[int] = []
        """All that it has been."""
        self.lock = asyncio.Lock()
        """Held by whoever takes it down and up again."""

    @property
    def pid(self) -> int:
        if self.process is None:
            raise PartError(f"{self.name} was never started")
        return self.process.pid

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                env=self.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pids.append(self.process.pid)
        deadline = time.monotonic() + START_S
        while self._ready is not None and not await self._ready():
            if self.process.returncode is not None:
                raise PartError(f"{self.name} ended while it started: {self.said()}")
            if time.monotonic() > deadline:
                raise PartError(f"{self.name} did not start in {START_S:.0f} s: {self.said()}")
            await asyncio.sleep(0.1)
        self.wanted = True

    async def kill(self) -> None:
        self.wanted = False
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()

    async def stop(self, patience_s: float = STOP_S) -> None:
        """As asked; PartError when it has to be killed."""
        self.wanted = False
        if not self.up or self.process is None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(patience_s):
                await self.process.wait()
        except TimeoutError:
            await self.kill()
            text = f"{self.name} did not end in {patience_s:.0f} s after SIGTERM: {self.said()}"
            raise PartError(text) from None

    async def hold(self, seconds: float) -> None:
        """It stands still, with everything that it started."""
        pids = [self.pid, *children(self.pid)]
        for pid in pids:
            send(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        for pid in pids:
            send(pid, signal.SIGCONT)

    def check(self) -> None:
        if self.wanted and not self.up and self.process is not None:
            code = self.process.returncode
            raise PartError(f"{self.name} ended by itself with {code}: {self.said()}")

    def said(self) -> str:
        try:
            return self.log.read_bytes()[-LOG_TAIL:].decode(errors="replace")
        except OSError:
            return "(no log)"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def children(pid: int) -> list[int]:
    """Direct ones, as far as they are alive."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def parent(pid: int) -> int:
    """0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    return [pid, *(below for child in children(pid) for below in tree(child))]


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def limit_files(pids: list[int], size: int | None) -> None:
    """No file of theirs may grow beyond ``size`` bytes; None lifts it."""
    for pid in pids:
        try:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))
        except (ProcessLookupError, PermissionError):
            continue
