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
KILL_S = 15.0
"""For all sessions together; what is still there ends with the zygote."""

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


class Killed(IsolationError):
    """The session, or its zygote, ended while it was being started."""


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
        self._pool = Pool(agent, self._start)
        self._groups = cgroup.find()
        self._watchdog: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self.level == "process":
            check_network(self.agent)
        program = not self.agent.entry.endswith(".py")
        if program or not self.agent.zygote:
            self.mode, self._binds = "exec", program
            self.note = f"{self.agent.entry} is not Python" if program else "zygote is switched off"
        await self._ensure_zygote()
        if not self._groups.memory:
            watch = watchdog.watch(lambda: self._running, self.agent.limits.memory_mb)
            self._watchdog = asyncio.create_task(watch, name="memory watchdog")

    async def _ensure_zygote(self) -> Zygote:
        async with self._starting:
            if self._zygote is not None and self._zygote.alive:
                return self._zygote
            if self._zygote is not None:
                await self._zygote.close()
            try:
                self._zygote = await self._make_zygote()
            except CannotFork as error:  # perhaps not at the first start: imports may differ
                self.mode, self._binds = "exec", error.binds
                self.note = f"every session starts a fresh interpreter: {error}"
                logger.info("runtime=<%s> | cannot fork | %s", self.agent.runtime_id, error)
                self._zygote = await self._make_zygote()
            return self._zygote

    async def _make_zygote(self) -> Zygote:
        if self._binds and not self.own_network:
            raise binds_itself(self.agent)
        return await Zygote.start(self.agent, self.config(), self.environment())

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
        return await self._pool.spawn(spec)

    async def _start(self, spec: SessionSpec) -> SessionCompute:
        try:
            return await self._try_start(spec)
        except Killed as error:
            logger.warning("session=<%s> error=<%s> | starting again", spec.session_id, error)
            return await self._try_start(spec)

    async def _try_start(self, spec: SessionSpec) -> SessionCompute:
        self._count += 1
        request = self.request(spec)
        group: cgroup.Group | None = None
        try:
            group = self._groups.make(self.agent.limits, processes=not self.own_processes)
            handle, channel, ingress = await self._begin(spec, request)
        except BaseException as error:
            if group is not None:
                group.remove_later()
            if isinstance(error, (Closed, OSError, ValueError)):
                why = f"cannot start session {spec.session_id}: {error}"
                raise IsolationError(why) from error
            raise
        return await self._await_session(handle, channel, ingress, group, request)

    async def _begin(
        self, spec: SessionSpec, request: wire.Message
    ) -> tuple[int, Channel, tuple[str, int]]:
        """A handle on the session's first process, the way to it, and where its agent listens."""
        ours, theirs = wire.pair()
        try:
            with contextlib.ExitStack() as given:
                given.enter_context(theirs)
                log = os.open(spec.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                given.callback(os.close, log)
                descriptors = [log, theirs.fileno()]
                ingress = ("127.0.0.1" if self._binds else INGRESS, CONTRACT_PORT)
                if not self.own_network:
                    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
                    given.enter_context(listener)
                    descriptors.append(listener.fileno())
                    ingress = listener.getsockname()
                handle = await self._fork(request, descriptors)
        except BaseException:
            ours.close()
            raise
        return handle, Channel(ours), ingress

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
            if "ready" not in message:
                kind = Killed if message.get("again") else IsolationError
                raise kind(f"cannot isolate the session: {message.get('error')}")
        except BaseException as error:
            await compute.kill()
            if isinstance(error, Closed):
                raise Killed(
                    "the session's first process was killed while it was being started. Did the "
                    "machine run out of memory?"
                ) from error
            if isinstance(error, TimeoutError):
                raise IsolationError(
                    f"the session's surroundings were not made within {START_S:g} s: the machine "
                    "is overloaded. Start fewer sessions at a time"
                ) from error
            raise
        compute.bound()
        return compute

    async def close(self) -> None:
        """Ends every session of the template, too."""
        await self._pool.close()
        kills = [asyncio.ensure_future(compute.kill()) for compute in self._running]
        if kills:
            await asyncio.wait(kills, timeout=KILL_S)
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._zygote is not None:
            await self._zygote.close()
            self._zygote = None
        await asyncio.gather(*kills)
        await cgroup.remove_left()
        await asyncio.to_thread(self.scratch.remove)
