"""A prepared agent: its zygote behind a control socket, and the spawning of sessions from it.

Owns the keeper process and all below it. A zygote that has died is started again at the next
spawn. Levels differ in what they tell the zygote and the sessions, not in how they talk to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import resource
import shutil
import socket
from pathlib import Path
from typing import Any, Literal

from ...errors import IsolationError
from . import cgroup, watchdog
from .base import Agent, Compute, SessionSpec
from .channel import Channel, Closed
from .compute import SessionCompute
from .inside import wire
from .inside.session import INGRESS
from .pool import Pool
from .scratch import Scratch
from .zygote import CONTRACT_PORT, CannotFork, Zygote, within

logger = logging.getLogger(__name__)

Mode = Literal["zygote", "exec"]
START_S = 15.0
"""For a session's surroundings; its agent's own start is not in it."""


MANY_FILES = 10_240
"""What macOS permits, where it says that there is no limit."""


@functools.cache
def allow_many_files() -> None:
    """A session costs the runtime half a dozen descriptors; the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, MANY_FILES):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break


def environment(agent: Agent) -> dict[str, str]:
    """What all sessions of an agent share. Never the runtime's own variables."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # numpy's BLAS starts its threads at import, and what has threads cannot be forked.
        "OPENBLAS_NUM_THREADS": "1",
        **agent.env,
    }


def check_network(agent: Agent) -> None:
    """Of a level that has no network of its own."""
    if agent.network in ("none", "allowlist"):
        raise IsolationError(
            f"network level {agent.network!r} needs isolation level 'namespace': at level "
            "'process' sessions share the machine's network"
        )


def binds_itself(agent: Agent) -> IsolationError:
    return IsolationError(
        f"{agent.entry} binds port {CONTRACT_PORT} itself, and at isolation level 'process' all "
        "sessions share the machine's ports. Serve with app.run(), or use level 'namespace'"
    )


class ProcessTemplate:
    """Sessions as plain processes; the namespace level builds on it."""

    level: str = "process"
    own_network = False
    own_processes = False
    """Whether the end of its first process is the end of all of a session."""

    def __init__(self, agent: Agent) -> None:
        allow_many_files()
        self.agent = agent
        self.mode: Mode = "zygote"
        self.note = ""
        self.scratch = Scratch()
        self._zygote: Zygote | None = None
        self._starting = asyncio.Lock()
        self._count = 0
        self._binds = False
        """Whether the agent listens on the contract's port itself."""
        self._running: set[SessionCompute] = set()
        self.readable: list[str] = []
        """What sessions may read, at the level where they see the machine's files."""
        self._pool = Pool(agent.pool, self._start_ahead, agent.freeze_s)
        self._groups = cgroup.find()
        self._watchdog: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self.level == "process":
            check_network(self.agent)
        program = not self.agent.entry.endswith(".py")
        if program or not self.agent.zygote:
            self.mode, self._binds = "exec", program
            self.note = f"{self.agent.entry} is not Python" if program else "zygote is switched off"
        try:
            await self._ensure_zygote()
        except CannotFork as error:
            self.mode, self._binds = "exec", error.binds
            self.note = f"every session starts a fresh interpreter: {error}"
            logger.info("runtime=<%s> | cannot fork | %s", self.agent.runtime_id, error)
            await self._ensure_zygote()
        if not self._groups.memory:
            watch = watchdog.watch(lambda: self._running, self.agent.limits.memory_mb)
            self._watchdog = asyncio.create_task(watch, name="memory watchdog")
        if self._binds and not self.own_network:
            raise binds_itself(self.agent)

    async def _ensure_zygote(self) -> Zygote:
        async with self._starting:
            if self._zygote is None or not self._zygote.alive:
                if self._zygote is not None:
                    await self._zygote.close()
                self._zygote = await Zygote.start(self.agent, self.config(), self.environment())
            return self._zygote

    def environment(self) -> dict[str, str]:
        """Of the zygote."""
        return environment(self.agent)

    def config(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "mode": self.mode,
            "folder": str(self.agent.folder),
            "entry": self.agent.entry,
            "python": self.agent.python,
            "packages": self.agent.packages,
            "port": CONTRACT_PORT,
            "binds": self._binds,
            "scratch": str(self.scratch.path),
            "readable": self.readable,
        }

    def request(self, spec: SessionSpec) -> dict[str, Any]:
        return {
            "env": dict(spec.env),
            "limits": dataclasses.asdict(self.agent.limits),
            "scratch": str(self.scratch.path / str(self._count)),
        }

    async def spawn(self, spec: SessionSpec) -> Compute:
        # What waits has been started without this session's environment.
        ready = None if spec.env else self._pool.take(spec.log_path)
        self._pool.refill(spec.log_path.parent)
        if ready is None:
            return await self._start(spec)
        ready.way = "pool"
        return ready

    async def _start_ahead(self, log: Path) -> SessionCompute:
        compute = await self._start(SessionSpec("(ready)", {}, log))
        try:
            await within(self.agent.init_timeout_s, answers(compute))
            compute.answered = True
        except (OSError, TimeoutError) as error:
            logger.debug("pid=<%d> error=<%s> | waits unanswered", compute.pid, error)
        except BaseException:
            await compute.kill()
            raise
        return compute

    async def _start(self, spec: SessionSpec) -> SessionCompute:
        self._count += 1
        request = self.request(spec)
        group = self._groups.make(self.agent.limits, processes=not self.own_processes)
        ours, theirs = wire.pair()
        opened = [ours, theirs]
        try:
            log = os.open(spec.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                descriptors = [log, theirs.fileno()]
                ingress = ("127.0.0.1" if self._binds else INGRESS, CONTRACT_PORT)
                if not self.own_network:
                    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
                    opened.append(listener)
                    descriptors.append(listener.fileno())
                    ingress = listener.getsockname()
                handle = await self._fork(request, descriptors)
            finally:
                os.close(log)
            opened.remove(ours)
        except (Closed, OSError) as error:
            await asyncio.to_thread(group.remove)
            raise IsolationError(f"cannot start session {spec.session_id}: {error}") from error
        finally:
            for sock in opened:
                sock.close()
        return await self._await_session(handle, Channel(ours), ingress, group, request)

    async def _fork(self, request: wire.Message, descriptors: list[int]) -> int:
        try:
            return await (await self._ensure_zygote()).fork(request, descriptors)
        except Closed:
            logger.warning("runtime=<%s> | zygote has died, starting again", self.agent.runtime_id)
            return await (await self._ensure_zygote()).fork(request, descriptors)

    async def _await_session(
        self,
        handle: int,
        channel: Channel,
        ingress: tuple[str, int],
        group: cgroup.Group,
        request: wire.Message,
    ) -> SessionCompute:
        async def clean_up() -> None:
            self._running.discard(compute)
            scratch = request["scratch"]
            if os.path.exists(scratch):
                await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

        compute = SessionCompute(
            handle,
            channel,
            ingress,
            listens_within_s=self.agent.init_timeout_s if self._binds else 0.0,
            own_network=self.own_network,
            own_processes=self.own_processes,
            group=group,
            clean_up=clean_up,
        )
        compute.way = "fork" if self.mode == "zygote" else "exec"
        self._running.add(compute)
        try:
            message, _ = await within(START_S, channel.receive())
        except (Closed, TimeoutError):
            message = {"error": "its first process ended or hung"}
        except BaseException:
            await compute.kill()
            raise
        if "ready" not in message:
            await compute.kill()
            raise IsolationError(f"cannot isolate the session: {message.get('error')}")
        compute.bound()
        return compute

    async def close(self) -> None:
        """Ends every session of the template, too."""
        await self._pool.close()
        await asyncio.gather(*(compute.kill() for compute in list(self._running)))
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._zygote is not None:
            await self._zygote.close()
            self._zygote = None
        await cgroup.remove_left()
        await asyncio.to_thread(self.scratch.remove)


async def answers(compute: Compute) -> None:
    reader, writer = await asyncio.open_connection(sock=await compute.connect())
    try:
        writer.write(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        if not (await reader.read()).startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")):
            raise OSError("/ping is not answered with 200")
    finally:
        writer.close()
