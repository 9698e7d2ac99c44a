"""Sessions that are started before they are asked for, and their handing out.

A session learns its id from the first request, so one that waits needs no specialising; only its
log has to get its name. Members have answered once, which takes the memory that an answer needs,
and are frozen when nobody comes for them. One task at a time fills the pool, when nothing else is
being started, and not at all while its members end on their own: an agent that does that would be
started for ever.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...errors import IsolationError
from .base import Agent, Compute, SessionSpec

logger = logging.getLogger(__name__)

REST_S = 0.05
"""Without any start, before the pool begins to fill."""
CLOSE_S = 5.0
"""For a start that is given up."""
_numbers = itertools.count(1)


class Ready(Compute, Protocol):
    way: str
    """How it came to be: "pool", "fork" or "exec"."""
    answered: bool
    """Whether its agent has answered /ping already."""

    @property
    def ended(self) -> bool: ...


C = TypeVar("C", bound=Ready)


class Member(NamedTuple, Generic[C]):
    compute: C
    log: Path


class Pool(Generic[C]):
    """``start`` makes a session; whoever asks the pool gets one that waits, where one does."""

    def __init__(self, agent: Agent, start: Callable[[SessionSpec], Awaitable[C]]) -> None:
        self.size, self._agent, self._start = agent.pool, agent, start
        self._ready: deque[Member[C]] = deque()
        self._filling: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._starts = 0

    def __len__(self) -> int:
        return len(self._ready)

    async def spawn(self, spec: SessionSpec) -> C:
        self._starts += 1
        # What waits has been started without this session's environment.
        ready = None if spec.env else self._take(spec.log_path)
        self._refill(spec.log_path.parent)
        return await self._start(spec) if ready is None else ready

    def _take(self, log: Path) -> C | None:
        """A member whose log is now ``log``; None when there is none, or the log goes on."""
        while self._ready and not log.exists():
            member = self._ready.popleft()
            if not member.compute.ended:
                os.rename(member.log, log)
                member.compute.way = "pool"
                return member.compute
            member.log.unlink(missing_ok=True)
        return None

    def _refill(self, folder: Path) -> None:
        """In the background; ``folder`` is where logs are kept."""
        if self.size and self._filling is None:
            for left in folder.glob(".ready-*.log"):  # by a runtime that was killed
                if not left.name.startswith(f".ready-{os.getpid()}-"):
                    left.unlink(missing_ok=True)
        if self.size and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill(folder), name="fill pool")

    async def _fill(self, folder: Path) -> None:
        seen = -1
        while seen != self._starts:
            seen = self._starts
            await asyncio.sleep(REST_S)
            while len(self._ready) < self.size and seen == self._starts:
                log = folder / f".ready-{os.getpid()}-{next(_numbers)}.log"
                try:
                    self._ready.append(Member(await self._start_ahead(log), log))
                except BaseException as error:
                    log.unlink(missing_ok=True)
                    if not isinstance(error, IsolationError):
                        raise
                    logger.warning("error=<%s> | pool not filled", error)
                    return
                if self._ready[0].compute.ended:
                    return
        if self._agent.freeze_s:
            self._stay_awake()
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._agent.freeze_s, self._freeze)

    async def _start_ahead(self, log: Path) -> C:
        compute = await self._start(SessionSpec("(ready)", {}, log))
        try:
            async with asyncio.timeout(self._agent.init_timeout_s):
                await _answers(compute)
            compute.answered = True
        except (OSError, TimeoutError) as error:  # whoever takes it will be told
            logger.debug("pid=<%d> error=<%s> | waits unanswered", compute.pid, error)
        return compute

    def _freeze(self) -> None:
        """What is taken is thawed by its first connection."""
        for member in self._ready:
            member.compute.freeze()

    def _stay_awake(self) -> None:
        if self._resting is not None:
            self._resting.cancel()

    async def close(self) -> None:
        """Starts nothing more. What waits is ended by who started it, with everything else."""
        self.size = 0
        self._stay_awake()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling], timeout=CLOSE_S)
        for member in self._ready:
            member.log.unlink(missing_ok=True)
        self._ready.clear()


async def _answers(compute: Compute) -> None:
    reader, writer = await asyncio.open_connection(sock=await compute.connect())
    try:
        writer.write(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        if not (await reader.read()).startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")):
            raise OSError("/ping is not answered with 200")
    finally:
        writer.close()
