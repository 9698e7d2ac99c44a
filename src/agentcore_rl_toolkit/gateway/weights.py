"""New weights under way: pause, version and resume of a model's engines, in one call or in three.

While a model is paused new calls wait at its gate; what is in flight is kept, awaited or aborted
by the engine as ``mode`` says. Calls in flight when a version begins to count get a mark with the
tokens that had come, for engines that do not report versions themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from .fault import Refusal, bad_request

if TYPE_CHECKING:
    from .relay import Relay
    from .route import Models, Pool

logger = logging.getLogger(__name__)


class WeightsChange(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /admin/weights``."""

    version: str | None = None
    action: Literal["update", "pause", "resume", "version"] = "update"
    """``update`` is all three: pause, version, resume."""
    model: str | None = None
    """None: every trained model."""
    mode: Literal["keep", "wait", "abort"] = "keep"
    """What becomes of calls in flight at a pause."""
    engines: bool = False
    """Also tell the engines, which need management endpoints for it."""
    timeout_s: float = 600.0


async def change_weights(change: WeightsChange, models: Models, relay: Relay) -> list[Pool]:
    pools = [p for p in models.pools.values() if p.train]
    if change.model is not None:
        pools = [models.find(change.model)]
    if change.version is None and change.action in ("update", "version"):
        raise bad_request(f"action {change.action!r} needs a 'version'", "version")
    for pool in pools:
        if change.action in ("update", "pause"):
            await _pause(change, pool, relay)
        if change.version is not None and change.action != "pause":
            await _set_version(change, pool, relay, change.version)
        if change.action in ("update", "resume"):
            await _resume(change, pool)
    return pools


async def _pause(change: WeightsChange, pool: Pool, relay: Relay) -> None:
    pool.gate.clear()
    try:
        if change.mode == "wait":
            await _drained(pool, relay, change.timeout_s)
        elif change.mode == "abort":
            for call in [c for c in relay.calls if c.pool is pool]:
                call.cancel("the model's weights changed")
        if change.engines:
            await asyncio.gather(*(s.engine.pause(change.mode) for s in pool.slots.values()))
    except BaseException:
        pool.gate.set()
        raise


async def _drained(pool: Pool, relay: Relay, timeout: float) -> None:
    """Until no call of the pool is at an engine; those at the gate do not count."""
    deadline = time.monotonic() + timeout
    while any(slot.in_flight for slot in pool.slots.values()):
        if time.monotonic() > deadline:
            raise Refusal(504, f"calls of {pool.name!r} did not end within {timeout:g} s")
        await asyncio.sleep(0.005)


async def _set_version(change: WeightsChange, pool: Pool, relay: Relay, version: str) -> None:
    if change.engines:
        await asyncio.gather(*(s.engine.set_version(version) for s in pool.slots.values()))
    pool.version = version
    for call in relay.calls:
        if call.pool is pool:
            call.marks.append((version, call.tokens))
    logger.info("model=<%s> version=<%s> | weights changed", pool.name, version)


async def _resume(change: WeightsChange, pool: Pool) -> None:
    if change.engines:
        await asyncio.gather(*(s.engine.resume() for s in pool.slots.values()))
    pool.gate.set()
