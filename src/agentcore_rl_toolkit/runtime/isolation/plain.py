"""Level ``process`` where the system is not Linux: sessions are processes, and nothing more.

Each is a fresh interpreter with its own home, temporary folder, working copy of the agent's folder,
process group and file limits. No wall, no bound on memory, no standing still; what it starts in a
process group of its own outlives it. When the runtime is gone, however it went, a session ends
itself: it holds the end of a pipe. Only what every Unix has is used here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import socket
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ...errors import IsolationError
from . import ps
from .base import Agent, Compute, SessionSpec, Stats
from .inside import command, fresh
from .inside import plain as given
from .pool import Pool
from .scratch import Scratch
from .template import allow_many_files, binds_itself, check_network, environment

MADE_OF = (
    "plain processes of the same user in process groups of their own; no wall, and memory is not "
    "bounded: the rest needs Linux"
)
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_INSIDE = Path(given.__file__).parent


class PlainRunning:
    """A command beside an agent, in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process | None, code: int = 0) -> None:
        self._process, self._code = process, code
        self._exit = asyncio.ensure_future(self._wait())

    def then(self, call: Callable[[PlainRunning], None]) -> None:
        self._exit.add_done_callback(lambda _: call(self))

    async def _wait(self) -> int:
        return await self._process.wait() if self._process is not None else self._code

    @property
    def done(self) -> bool:
        return self._exit.done()

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def end(self) -> None:
        self.let_go()
        await self.wait()

    def let_go(self) -> None:
        if self._process is not None and not self.done:
            _kill_group(self._process.pid)


class PlainCompute:
    way = "exec"
    answered = False

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        address: tuple[str, int],
        env: dict[str, str],
        work: str,
        clean_up: Callable[[PlainCompute], None],
    ) -> None:
        self.pid = process.pid
        self._process, self._address, self._env, self._work = process, address, env, work
        self._reason = ""
        self._commands: set[PlainRunning] = set()
        self._clean_up = clean_up
        self._gone = asyncio.ensure_future(self._finish())

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def _finish(self) -> str:
        code = await self._process.wait()
        _kill_group(self.pid)  # what it started, should it have ended by itself
        for running in list(self._commands):
            running.let_go()
        await asyncio.to_thread(self._clean_up, self)
        return self._reason or (f"exit code {code}" if code >= 0 else f"signal {-code}")

    async def wait(self) -> str:
        return await asyncio.shield(self._gone)

    async def kill(self) -> None:
        if not self.ended:
            self._reason = self._reason or "stopped"
            _kill_group(self.pid)
        await self.wait()

    async def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self._address)
        except BaseException:
            sock.close()
            raise
        return sock

    async def run(self, argv: Sequence[str], out: int, errors: int) -> PlainRunning:
        if self.ended:
            raise OSError("the session has ended")
        taken = command.readable(out)

        def control() -> None:
            if taken and os.isatty(0):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=out if taken else asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                cwd=self._work,
                env=self._env,
                start_new_session=True,
                preexec_fn=control,
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            said = "not found" if missing else error.strerror
            os.write(errors, f"{argv[0]}: {said}\n".encode())
            return PlainRunning(None, command.NOT_FOUND if missing else command.NOT_RUN)
        running = PlainRunning(process)
        self._commands.add(running)
        running.then(self._commands.discard)
        return running

    async def listen_inside(self, port: int) -> socket.socket | None:
        return None

    def freeze(self) -> bool:
        return False

    def thaw(self) -> None:
        pass

    def at_rest(self) -> bool:
        return False

    def cpu_s(self) -> float:
        return 0.0  # only asked for to see whether it may be frozen

    def stats(self) -> Stats:
        return ps.groups().get(self.pid, Stats(0, 0, 0.0))


class PlainTemplate:
    level = "process, plain"
    mode: Literal["zygote", "exec"] = "exec"
    note = "every session starts a fresh interpreter: only Linux forks a warmed one"

    def __init__(self, agent: Agent) -> None:
        allow_many_files()
        self.agent = agent
        self.scratch = Scratch()
        self._count = 0
        self._running: set[PlainCompute] = set()
        self._pool = Pool(agent, self._start)
        # Nobody writes to it: sessions see its end when this process is gone.
        self._line, self._held = os.pipe()

    async def spawn(self, spec: SessionSpec) -> Compute:
        return await self._pool.spawn(spec)

    async def _start(self, spec: SessionSpec) -> PlainCompute:
        self._count += 1
        scratch, folder = str(self.scratch.path / str(self._count)), str(self.agent.folder)
        places, work = await asyncio.to_thread(given.furnish, folder, scratch)
        env = {**environment(self.agent), **self._packages(), **places, **spec.env}
        start = {"folder": folder, "entry": self.agent.entry, "line": self._line}
        start["limits"] = dataclasses.asdict(self.agent.limits)
        with (
            socket.create_server(("127.0.0.1", 0), backlog=1024) as listener,
            os.fdopen(os.open(spec.log_path, LOG_FLAGS, 0o600), "wb") as log,
        ):
            try:
                process = await asyncio.create_subprocess_exec(
                    *(self.agent.python, str(_INSIDE), "agent", str(listener.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=work,
                    env={**env, fresh.SPEC: json.dumps(start)},
                    start_new_session=True,
                    pass_fds=[listener.fileno(), self._line],
                )
            except OSError as error:
                shutil.rmtree(scratch, ignore_errors=True)
                raise IsolationError(f"cannot start {self.agent.python}: {error}") from error
            address = listener.getsockname()

        def clean_up(compute: PlainCompute) -> None:
            self._running.discard(compute)
            shutil.rmtree(scratch, ignore_errors=True)

        compute = PlainCompute(process, address, env, work, clean_up)
        self._running.add(compute)
        return compute

    def _packages(self) -> dict[str, str]:
        """As ``inside.packages`` does it, which needs a process of the agent's."""
        if not (folder := self.agent.packages):
            return {}
        paths = (folder, self.agent.env.get("PYTHONPATH", ""))
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PATH": os.pathsep.join((f"{folder}/bin", self.agent.env.get("PATH", os.defpath))),
        }

    async def close(self) -> None:
        await self._pool.close()
        await asyncio.gather(*(compute.kill() for compute in list(self._running)))
        for descriptor in (self._line, self._held):
            os.close(descriptor)
        await asyncio.to_thread(self.scratch.remove)


async def prepare(agent: Agent) -> PlainTemplate:
    check_network(agent)
    if not agent.entry.endswith(".py"):
        raise binds_itself(agent)
    return PlainTemplate(agent)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
