"""The gateway's one timer: disconnects, keep-alives, health checks, lingering sessions, loop lag.

One sweep over what is in flight costs less than a timer for each call. How late a sweep begins is
the loop's lag.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from ..run.retention import prune

if TYPE_CHECKING:
    from .server import Gateway
    from .session import Session

logger = logging.getLogger(__name__)

Work: TypeAlias = asyncio.Task[None]

PERIOD_S = 0.1
PRUNE_S = 60.0
LAG_WARNING_S = 0.25
TEND_AT_ONCE = 50


class Ticker:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._health: Work | None = None
        self._pruning: Work | None = None
        self._round: list[Session] = []
        self._task = asyncio.create_task(self._run(), name="gateway-ticker")

    async def _run(self) -> None:
        due = time.monotonic() + PERIOD_S
        next_health, next_prune = 0.0, due + PRUNE_S
        while True:
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            now = time.monotonic()
            self._gateway.metrics.lagged(now - due)
            if now - due > LAG_WARNING_S:
                logger.warning("lag=<%.3f> | the gateway's loop is saturated", now - due)
            due = now + PERIOD_S
            try:
                await self._sweep(now)
            except Exception:
                logger.exception("| sweep failed")
            if now >= next_health:
                next_health = now + self._gateway.settings.health_s
                self._health = self._again(self._health, self._check)
            if now >= next_prune:
                next_prune = now + PRUNE_S
                self._pruning = self._again(self._pruning, self._prune)

    async def _sweep(self, now: float) -> None:
        gateway, settings = self._gateway, self._gateway.settings
        silent = now - settings.keep_alive_s
        for call in list(gateway.relay.calls):
            call.tick(now, settings.retry_grace_s)
            if call.wrote < silent and not call.gone:
                await call.beat()
        gateway.shelf.tidy()
        gateway.sessions.let_go(now - settings.linger_s)
        await self._tend(now)

    async def _tend(self, now: float) -> None:
        """Folds idle sessions and closes forgotten ones, a bounded number at a time."""
        gateway, settings = self._gateway, self._gateway.settings
        if not self._round:
            self._round = list(gateway.sessions)
        batch = self._round[-TEND_AT_ONCE:]
        del self._round[-TEND_AT_ONCE:]
        for session in batch:
            idle = now - session.touched
            if idle > settings.session_ttl_s and not session.calls and not session.closed_at:
                await gateway.expire(session)
            elif idle > settings.park_s * (1 + session.turns / 10):
                session.park()

    @staticmethod
    def _again(task: Work | None, work: Callable[[], Coroutine[Any, Any, None]]) -> Work:
        """Starts it anew unless it still runs."""
        return task if task is not None and not task.done() else asyncio.create_task(work())

    async def _prune(self) -> None:
        settings, peers = self._gateway.settings, self._gateway.peers
        if peers is not None and peers.place.index:
            return  # the journals of all workers are looked after by the first
        await asyncio.to_thread(
            prune,
            self._gateway.run_dir / "turns",
            max_bytes=settings.journal_bytes,
            max_age_s=settings.journal_age_s,
        )

    async def _check(self) -> None:
        for pool in list(self._gateway.models.pools.values()):
            await pool.check()
            for slot in list(pool.slots.values()):
                if slot.healthy and not slot.engine.capabilities.models:
                    await pool.probe_slot(slot)

    async def stop(self) -> None:
        for task in (self._task, self._health, self._pruning):
            if task is not None:
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
