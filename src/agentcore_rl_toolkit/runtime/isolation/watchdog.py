"""Bounds the memory of sessions that no control group bounds: looks twice a second, and ends them.

A substitute, not a wall: what a session takes between two looks, it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from . import usage
from .compute import SessionCompute
from .inside import tree

logger = logging.getLogger(__name__)

LOOK_S = 0.5


async def watch(sessions: Callable[[], Collection[SessionCompute]], limit_mb: int) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        table = tree.parents()
        for compute in list(sessions()):
            if (used := excess(compute.pid, table, limit_mb * 1024 * 1024)) is not None:
                used_mb = used // 1024 // 1024
                logger.warning("pid=<%d> memory_mb=<%d> | over its limit", compute.pid, used_mb)
                await compute.end(f"out of memory ({used_mb} MB of {limit_mb} MB)")


def excess(pid: int, table: dict[int, int], limit: int) -> int | None:
    """The private memory of the tree when it is over the limit. Asks for the costly figure only
    when the cheap one, which counts shared pages too, leaves room for doubt."""
    if sum(usage.resident_bytes(one) for one in (pid, *tree.descendants(pid, table))) <= limit:
        return None
    used = usage.measure(pid, table).memory_bytes
    return used if used > limit else None
