"""Sessions that are started before they are asked for.

A session learns its id from the first request, so one that waits needs no specialising; only its
log has to get its name. Members have answered once, which takes the memory that an answer needs,
and are frozen when nobody comes for them. The pool fills itself again when nothing else is being
started, and not at all while its members end on their own: an agent that does that would be
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
from .base import Compute

logger = logging.getLogger(__name__)

REST_S = 0.05
"""Without any start, before the pool begins to fill."""
_numbers = itertools.count(1)


class Ready(Compute, Protocol):
    @property
    def ended(self) -> bool: ...


C = TypeVar("C", bound=Ready)


class Member(NamedTuple, Generic[C]):
    compute: C
    log: Path


class Pool(Generic[C]):
    def __init__(self, size: int, start: Callable[[Path], Awaitable[C]], freeze_s: float) -> None:
        self.size, self._start, self._freeze_s = size, start, freeze_s
        self._ready: deque[Member[C]] = deque()
        self._filling: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._starts = 0

    def __len__(self) -> int:
        return len(self._ready)

    def take(self, log: Path) -> C | None:
        """A member whose log is now ``log``; None when there is none, or the log goes on."""
        self._starts += 1
        while self._ready and not log.exists():
            member = self._ready.popleft()
            if not member.compute.ended:
                os.rename(member.log, log)
                return member.compute
            member.log.unlink(missing_ok=True)
        return None

    def refill(self, folder: Path) -> None:
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
                member = Member(await self._start(log), log)
            except IsolationError as error:
                logger.warning("error=<%s> | pool not filled", error)
                return
            self._ready.append(member)
            if self._ready[0].compute.ended:
                return
        if seen != self._starts:
            asyncio.get_running_loop().call_soon(self._again, folder)
        elif self._freeze_s:
            self._stay_awake()
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._freeze_s, self._freeze)

    def _freeze(self) -> None:
        """What is taken is thawed by its first connection."""
        for member in self._ready:
            member.compute.freeze()

    def _stay_awake(self) -> None:
        if self._resting is not None:
            self._resting.cancel()

    def _again(self, folder: Path) -> None:
        self._filling = None
        self.refill(folder)

    async def close(self) -> None:
        self.size = 0
        self._stay_awake()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        await asyncio.gather(*(member.compute.kill() for member in self._ready))
        for member in self._ready:
            member.log.unlink(missing_ok=True)
        self._ready.clear()
