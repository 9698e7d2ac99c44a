"""Which engine serves a call: pools of engines behind model names.

A session stays on the engine that holds its prefix; only when that engine is ill, draining or gone
does the session move, to the least loaded of the others. Adding or removing an engine moves nobody
else. Selection does no I/O; ``Pool.check`` is the health check that the gateway's ticker calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from ..errors import ConfigError
from .engines.base import PROBE_S, Engine
from .engines.generate import GenerateEngine
from .engines.tokens import TokenEngine
from .engines.vllm import VLLMEngine
from .fault import Refusal
from .text.render import Renderer

logger = logging.getLogger(__name__)

FAILS_BEFORE_ILL = 2
"""A single failed check or connection is noise."""


class Slot:
    """One engine in a pool."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.healthy = True
        self.draining = False
        self.in_flight = 0
        self.served = 0
        self.fails = 0

    @property
    def name(self) -> str:
        return self.engine.name

    def failed(self) -> None:
        self.fails += 1
        if self.fails >= FAILS_BEFORE_ILL and self.healthy:
            self.healthy = False
            logger.warning("engine=<%s> | engine is not healthy", self.name)

    def succeeded(self) -> None:
        self.fails = 0
        if not self.healthy:
            self.healthy = True
            logger.info("engine=<%s> | engine is healthy again", self.name)

    def status(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "kind": self.engine.kind,
            "healthy": self.healthy,
            "draining": self.draining,
            "in_flight": self.in_flight,
            "served": self.served,
            "capabilities": msgspec.to_builtins(self.engine.capabilities),
        }


class Pool:
    """One model name and its engines."""

    def __init__(
        self,
        name: str,
        engines: Iterable[Engine],
        *,
        train: bool,
        renderer: Renderer | None = None,
        experts: bool = False,
    ) -> None:
        self.name = name
        self.train = train
        self.renderer = renderer
        self.experts = experts
        self.slots: dict[str, Slot] = {}
        self.version: str | None = None
        self.created = int(time.time())
        self.gate = asyncio.Event()
        """Clear while weights change: new calls wait here."""
        self.gate.set()
        for engine in engines:
            self.add(engine)

    def add(self, engine: Engine) -> Slot:
        if self.train and not engine.exact:
            raise ConfigError(
                f"model {self.name!r} is trained, but a {engine.kind} engine gives no token ids: "
                f"declare the model with train=false ({self.name}! on the command line)"
            )
        if isinstance(engine, TokenEngine):
            if self.renderer is None:
                raise ConfigError(
                    f"model {self.name!r} has a {engine.kind} engine, which takes token ids: "
                    "name its tokenizer (--tokenizer FOLDER)"
                )
            engine.renderer, engine.experts = self.renderer, self.experts
        slot = self.slots.get(engine.name)
        if slot is None:
            slot = self.slots[engine.name] = Slot(engine)
        elif slot.engine is not engine:
            engine.close()
            slot.draining = False
        return slot

    def drain(self, name: str) -> Slot:
        slot = self.slots.get(name)
        if slot is None:
            raise Refusal(404, f"model {self.name!r} has no engine {name!r}", retry=False)
        slot.draining = True
        return slot

    def remove(self, name: str) -> None:
        self.drain(name).engine.close()
        del self.slots[name]

    def pick(self, sticky: str | None, avoid: frozenset[str] = frozenset()) -> Slot:
        slot = self.slots.get(sticky) if sticky else None
        if slot is not None and slot.healthy and not slot.draining and slot.name not in avoid:
            return slot
        usable = [s for s in self.slots.values() if not s.draining]
        best = [s for s in usable if s.healthy and s.name not in avoid]
        # every engine may look ill after one bad moment: then any is better than none
        candidates = best or [s for s in usable if s.name not in avoid] or usable
        if not candidates:
            raise Refusal(
                503,
                f"model {self.name!r} has no engine at the moment",
                code="no_engine",
                headers={"retry-after": "1"},
            )
        return min(candidates, key=lambda s: (s.in_flight, s.served))

    async def check(self) -> None:
        await asyncio.gather(*(self._check(slot) for slot in list(self.slots.values())))

    @staticmethod
    async def _check(slot: Slot) -> None:
        slot.engine.http.prune()
        try:
            ok = await slot.engine.healthy()
        except (OSError, TimeoutError):
            ok = False
        if ok:
            slot.succeeded()
        else:
            slot.failed()

    async def probe(self, timeout: float = 5.0, *, sample: bool = False) -> None:
        """Asks every engine what it is; one that does not answer is asked again later."""
        slots = list(self.slots.values())
        try:
            async with asyncio.timeout(timeout + (PROBE_S if sample else 0.0)):
                await asyncio.gather(*(self.probe_slot(slot) for slot in slots))
                if sample and self.train:
                    await asyncio.gather(*(slot.engine.probe_sampling() for slot in slots))
        except TimeoutError:
            logger.warning("model=<%s> | an engine did not answer the probe in time", self.name)

    @property
    def parse_failures(self) -> int:
        """Answers with tool calls that could not be read."""
        return self.renderer.health.failed if self.renderer is not None else 0

    async def probe_slot(self, slot: Slot) -> None:
        """Asks an engine what it is, and takes its ids where it offers them."""
        engine = slot.engine
        await engine.probe()
        if self.renderer is None or not isinstance(engine, VLLMEngine):
            return
        if await GenerateEngine.is_offered(engine):
            slot.engine = token_engine = GenerateEngine.beside(engine, self.renderer)
            token_engine.experts = self.experts
            logger.info("engine=<%s> | token-in/token-out", slot.name)

    def status(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "train": self.train,
            "renderer": self.renderer.name if self.renderer is not None else None,
            "parse_failures": self.parse_failures,
            "version": self.version,
            "paused": not self.gate.is_set(),
            "engines": [slot.status() for slot in self.slots.values()],
        }


class Models:
    """Every model that the gateway serves."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self.pools = {pool.name: pool for pool in pools}

    def find(self, name: str) -> Pool:
        pool = self.pools.get(name)
        if pool is None and not name and len(self.pools) == 1:
            return next(iter(self.pools.values()))
        if pool is None:
            pool = self.pools.get("*")
        if pool is None:
            served = ", ".join(sorted(self.pools)) or "none"
            raise Refusal(
                404,
                f"the model {name!r} is not served here; served: {served}",
                code="model_not_found",
                param="model",
                retry=False,
            )
        return pool

    def close(self) -> None:
        for pool in self.pools.values():
            for slot in pool.slots.values():
                slot.engine.close()
