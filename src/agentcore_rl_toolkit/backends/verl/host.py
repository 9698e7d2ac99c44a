"""The bridge inside one agent-loop worker, made at its first rollout.

verl builds an agent loop object for every rollout, so what is shared lives here, one for the
process and its event loop. It ends with the worker, which verl kills: captured turns are on disk
by then, and the client stops each session as its rollout settles.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ...gateway.route import Pool
from ...gateway.text.family import choose_renderer
from ..bridge import Bridge, BridgeSetting, open_bridge
from .engine import ServerClient, VerlEngine

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Policy:
    """The model that verl trains, as the gateway needs it."""

    tokenizer: Any
    model_type: str | None
    max_tokens: int
    """Of one sequence, prompt included."""
    experts: bool = False

    def pool(self, name: str, client: ServerClient) -> Pool:
        engine = VerlEngine(client, max_tokens=self.max_tokens)
        renderer = choose_renderer(self.tokenizer, model_type=self.model_type)
        return Pool(name, [engine], train=True, renderer=renderer, experts=self.experts)


_stack = AsyncExitStack()
_bridge: Bridge | None = None
_making: asyncio.Lock | None = None


async def shared(setting: BridgeSetting, policy: Policy, server: ServerClient) -> Bridge:
    """The bridge of this worker."""
    global _bridge, _making
    _making = _making or asyncio.Lock()
    async with _making:
        if _bridge is None:
            _bridge = await _start(setting, policy, server)
        return _bridge


async def _start(setting: BridgeSetting, policy: Policy, server: ServerClient) -> Bridge:
    if setting.run_dir:
        # one writer a journal: workers may share a file system
        name = f"worker-{socket.gethostname()}-{os.getpid()}"
        setting = dataclasses.replace(setting, run_dir=str(Path(setting.run_dir) / name))
    model = policy.pool(setting.served_name, server)
    opened = await _stack.enter_async_context(open_bridge(setting, model))
    url = opened.gateway.url
    logger.info("url=<%s> pid=<%d> | gateway of an agent-loop worker", url, os.getpid())
    return opened


async def close() -> None:
    """Ends what ``shared`` made; for those who run a loop without a worker."""
    global _bridge, _making, _stack
    _bridge = _making = None
    stack, _stack = _stack, AsyncExitStack()
    await stack.aclose()
