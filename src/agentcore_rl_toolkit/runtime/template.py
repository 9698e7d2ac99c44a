"""One prepared template per agent version, shared by its sessions.

Preparation runs once however many ask for it, and a failure is not remembered: the next use tries
again. A template is closed when it is retired (its version was deleted or replaced) and no session
uses it any more, because a session may be a child of its template's process. What templates of a
killed runtime left on disk is removed at the start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import IsolationError
from . import environment, wire
from .isolation.base import Agent, Driver, Template
from .isolation.scratch import sweep

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""Runtime id and version."""


@dataclass
class _Entry:
    task: asyncio.Task[Template]
    users: int = 0
    retired: bool = False
    packages: int | None = None
    """Holds the packages of the agent's requirements against their being pruned."""


class Templates:
    def __init__(self, select: Callable[[str], Driver]) -> None:
        sweep()
        self._select = select
        self._drivers: dict[str, Driver] = {}
        self._entries: dict[Key, _Entry] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def driver(self, level: str) -> Driver:
        """IsolationError when this machine cannot give the level."""
        if level not in self._drivers:
            self._drivers[level] = self._select(level)
        return self._drivers[level]

    async def use(self, agent: Agent) -> Template:
        """Counts as a use until ``release``. IsolationError when it cannot be made."""
        if self._closed:
            raise wire.unavailable("the runtime is shutting down")
        key = (agent.runtime_id, agent.version)
        entry = self._entries.get(key)
        if entry is None or (entry.task.done() and not _succeeded(entry.task)):
            task = asyncio.create_task(self._prepare(agent), name=f"prepare {key[0]} {key[1]}")
            packages = environment.hold(agent.packages) if agent.packages else None
            entry = self._entries[key] = _Entry(task, packages=packages)
        entry.users += 1
        try:
            return await asyncio.shield(entry.task)
        except BaseException as error:
            self._release(key, entry)
            if isinstance(error, asyncio.CancelledError) and entry.task.cancelled():
                raise wire.unavailable("the runtime is shutting down") from None
            raise

    def release(self, agent: Agent) -> None:
        key = (agent.runtime_id, agent.version)
        if entry := self._entries.get(key):
            self._release(key, entry)

    def retire(self, key: Key) -> None:
        if entry := self._entries.get(key):
            entry.retired = True
            self._close_unused(key, entry)

    async def close(self) -> None:
        self._closed = True
        entries, self._entries = list(self._entries.values()), {}
        await asyncio.gather(*(_close(entry) for entry in entries), *self._closing)

    async def _prepare(self, agent: Agent) -> Template:
        template = await self.driver(agent.isolation).prepare(agent)
        logger.info(
            "runtime=<%s> version=<%s> level=<%s> mode=<%s> | template ready",
            agent.runtime_id,
            agent.version,
            template.level,
            template.mode,
        )
        return template

    def _release(self, key: Key, entry: _Entry) -> None:
        entry.users -= 1
        self._close_unused(key, entry)

    def _close_unused(self, key: Key, entry: _Entry) -> None:
        failed = entry.task.done() and not _succeeded(entry.task)
        if entry.users > 0 or not (entry.retired or failed):
            return
        if self._entries.get(key) is entry:
            del self._entries[key]
        task = asyncio.create_task(_close(entry))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _succeeded(task: asyncio.Task[Template]) -> bool:
    return not task.cancelled() and task.exception() is None


async def _close(entry: _Entry) -> None:
    try:
        await _close_template(entry.task)
    finally:
        if entry.packages is not None:
            os.close(entry.packages)
            entry.packages = None


async def _close_template(task: asyncio.Task[Template]) -> None:
    if not task.done():
        task.cancel()
    try:
        template = await task
    except asyncio.CancelledError:
        return
    except Exception:  # noqa: BLE001 - whoever used it was told
        return
    try:
        await template.close()
    except (IsolationError, OSError) as error:
        logger.warning("error=<%s> | template did not close cleanly", error)
