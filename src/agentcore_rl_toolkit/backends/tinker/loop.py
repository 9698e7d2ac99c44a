"""The embedded trainer's loop over weights that are at Tinker's service.

    service: training client ── sampling client ── gateway ◄── agents' sessions
                ▲                                     │
                └─────── Datum ── rows ── collector ──┘

Order, data, evaluation, staleness and the run folder are ``trainer.loop``'s. A checkpoint is a
small file that names the state which the service keeps, so it is worth as much as that state.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ...collect import Collector, Rollout
from ...errors import ConfigError
from ...gateway import Gateway, GatewaySettings, ModelSpec
from ...gateway.engines.tinker import TinkerEngine
from ...gateway.text.render import Renderer, load_renderer
from ...trainer.checkpoint import PREFIX, STATE
from ...trainer.config import Deployed, TrainConfig
from ...trainer.loop import Opener, Outcome, drive
from ...trainer.rig import make_client
from ...trainer.step import StepReport
from ...trainer.view import View
from ...trajectory.row import Row
from .service import Saved, Weights, import_sdk
from .setting import TinkerSetting, check

T = TypeVar("T")

FORMAT = 1


async def train(
    config: TrainConfig, run_dir: Path, where: Deployed, *, view: View | None = None
) -> Outcome:
    """Runs ``config`` in ``run_dir``, or goes on with the run that is there."""
    setting = check(config)
    import_sdk()

    def prepare(last: Path | None) -> tuple[Opener, dict[str, Any]]:
        saved, extra = _read(last) if last is not None else (None, {})
        renderer = load_renderer(config.model.path)
        return lambda on: stand(config, setting, renderer, run_dir, where, saved, on), extra

    return await drive(config, run_dir, where, prepare, view=view)


class TinkerStand:
    """What the loop drives."""

    def __init__(self, weights: Weights, engine: TinkerEngine, collector: Collector) -> None:
        self._weights, self._engine = weights, engine
        self.collector = collector

    @property
    def steps(self) -> int:
        return self._weights.steps

    @property
    def version(self) -> str:
        return self._weights.version

    async def step(self, rows: Sequence[Row]) -> StepReport:
        return await _to_the_end(self._step(rows))

    async def _step(self, rows: Sequence[Row]) -> StepReport:
        before = self.version
        report = await self._weights.step(rows)
        if self.version != before:
            await self.serve()
        return report

    async def serve(self) -> None:
        """Samples with the weights as they are; calls under way end with those they began with."""
        self._engine.use(await self._weights.sampler(), self.version)

    async def save(self, folder: Path, extra: dict[str, Any], keep: int) -> None:
        await _to_the_end(self._save(folder, extra, keep))

    async def _save(self, folder: Path, extra: dict[str, Any], keep: int) -> None:
        name = f"{PREFIX}{self.steps:06d}"
        saved = await self._weights.save(name)
        final, partial = folder / name / STATE, folder / name / f".partial-{STATE}"
        partial.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, "tinker": dataclasses.asdict(saved), "extra": extra})
        with partial.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(final)
        for old in sorted(folder.glob(f"{PREFIX}*"))[: -max(1, keep)]:
            shutil.rmtree(old, ignore_errors=True)


@asynccontextmanager
async def stand(
    config: TrainConfig,
    setting: TinkerSetting,
    renderer: Renderer,
    run_dir: Path,
    where: Deployed,
    saved: Saved | None,
    on_rollout: Callable[[Rollout], None],
) -> AsyncIterator[TinkerStand]:
    name, base = config.model.served_name, setting.base_model or config.model.path
    weights = await Weights.open(base, setting, config.train, saved)
    url = setting.base_url or "https://tinker"
    pool = ModelSpec(name, (f"tinker:{url}#{base}",), tokenizer=renderer).pool()
    (slot,) = pool.slots.values()
    engine = slot.engine
    assert isinstance(engine, TinkerEngine)
    engine.use(await weights.sampler(), weights.version)
    settings = GatewaySettings(run_dir=run_dir, fsync=False)
    client = make_client(config, where, run_dir.name)
    async with client, Gateway([pool], settings) as gateway:
        collector = Collector(client, gateway, config.rollout.collect(name), on_rollout=on_rollout)
        yield TinkerStand(weights, engine, collector)


def _read(folder: Path) -> tuple[Saved, dict[str, Any]]:
    state = json.loads((folder / STATE).read_text())
    if state.get("format") != FORMAT or "tinker" not in state:
        raise ConfigError(f"{folder} is no checkpoint of a run at Tinker: start anew")
    return Saved(**state["tinker"]), state["extra"]


async def _to_the_end(work: Awaitable[T]) -> T:
    """Weights half changed are worse than a late goodbye."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
