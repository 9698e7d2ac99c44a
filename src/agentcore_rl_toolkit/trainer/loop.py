"""The training run: collect, step, evaluate, save, until the last step.

Rollouts of step ``s`` are asked for when the weights are at least at step ``s - max_staleness``;
that bounds their age whatever they wait for. With 0 collecting and training take turns; with more
they overlap, and the engine holds running sequences only while the optimiser writes.

Everything is in the run folder before it is shown. A run that is interrupted finishes the step
under way, saves, and takes everything down; resumed, it goes on with the step after.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from ..collect import Collector, CollectReport, Rollout, Timings
from ..errors import ConfigError, ContractError
from ..rollout import FailureKind
from ..run import RunFolder, RunWriter
from ..run.folder import result_name
from ..trajectory.row import Row
from . import checkpoint
from .config import Deployed, TrainConfig
from .rig import make_trainer, rig
from .step import StepReport
from .tasks import eval_tasks, phase_of, read_rows, train_tasks
from .tracker import Trackers
from .view import EvalLine, Silent, StepLine, View

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
STAGES = [field.name for field in dataclasses.fields(Timings)]


@dataclasses.dataclass(frozen=True)
class Outcome:
    run_dir: Path
    steps: int
    before: float | None
    """Sampled success on held-out tasks, before training and at the end."""
    after: float | None
    report: CollectReport


class Stand(Protocol):
    """What a loop drives: weights that take steps, here or at a service, and rollouts of them."""

    @property
    def collector(self) -> Collector: ...
    @property
    def steps(self) -> int: ...
    @property
    def version(self) -> str: ...
    async def step(self, rows: Sequence[Row]) -> StepReport:
        """To its end, also when it is cancelled: half a step is worse than a late goodbye."""
        ...

    async def save(self, folder: Path, extra: dict[str, Any], keep: int) -> None: ...


OnRollout: TypeAlias = Callable[[Rollout], None]
Opener: TypeAlias = Callable[[OnRollout], AbstractAsyncContextManager[Stand]]
Prepare: TypeAlias = Callable[[Path | None], tuple[Opener, dict[str, Any]]]
"""From the checkpoint to go on with, if there is one: how to open, and what was saved besides."""


async def train(
    config: TrainConfig, run_dir: Path, where: Deployed, *, view: View | None = None
) -> Outcome:
    """Runs ``config`` in ``run_dir``, or goes on with the run that is there."""

    def prepare(last: Path | None) -> tuple[Opener, dict[str, Any]]:
        trainer, tokenizer = make_trainer(config)
        extra = checkpoint.load(trainer, last) if last is not None else {}
        return lambda on: rig(config, trainer, tokenizer, run_dir, where, on), extra

    return await drive(config, run_dir, where, prepare, view=view)


async def drive(
    config: TrainConfig,
    run_dir: Path,
    where: Deployed,
    prepare: Prepare,
    *,
    view: View | None = None,
) -> Outcome:
    """A run, whatever it trains on; nothing is written before ``prepare`` has succeeded."""
    folder = RunFolder(run_dir)
    resumed = folder.exists()
    if resumed:
        check_same(config, folder)
    rows = read_rows(config.data.train)
    held_out = read_rows(config.data.eval, config.loop.eval_tasks) if config.data.eval else []
    opener, extra = prepare(checkpoint.latest(folder.path / CHECKPOINTS) if resumed else None)
    history: list[list[float]] = extra.get("history", [])
    written = None if resumed else config.resolved()
    with (
        RunWriter(run_dir, config=written, resume=resumed) as out,
        Trackers(config, Path(run_dir)) as trackers,
    ):
        loop = Loop(config, rows, held_out, history, out, trackers, view or Silent())
        began = {"at": time.time(), "event": "resumed" if resumed else "started"}
        out.event({**began, "agent": where.arn, "endpoint_url": where.endpoint_url})
        async with opener(loop.on_rollout) as stand:
            return await loop.run(stand)


def check_same(config: TrainConfig, folder: RunFolder) -> None:
    """ConfigError, naming the keys, when the folder holds a run of another configuration."""
    from .config import load

    try:
        old = _flat(dataclasses.asdict(load(folder.config)))
    except ConfigError as error:
        raise ConfigError(f"{folder.path} cannot be resumed: {error}") from None
    new = _flat(dataclasses.asdict(config))
    differ = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
    differ = [key for key in differ if key not in FREE]
    if differ:
        shown = ", ".join(f"{k} ({old.get(k)!r}, now {new.get(k)!r})" for k in differ[:5])
        raise ConfigError(
            f"{folder.path} holds a run of another configuration: {shown}. Resume it with its "
            "own, or train into a new folder"
        )


FREE = frozenset(
    {"run_dir", "agent.endpoint_url", "agent.tps_limit", "rollout.max_concurrent", "model.threads"}
    | {"track", "track.tensorboard", "track.wandb", "track.opentelemetry"}
    | {"model.device", "loop.eval_every", "loop.save_every", "loop.keep_checkpoints"}
)
"""What may differ: it changes how fast a run is, not what it computes."""


def _flat(value: dict[str, Any], head: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict) and item:
            out |= _flat(item, f"{head}{key}.")
        else:
            out[f"{head}{key}"] = item
    return out


class Loop:
    def __init__(
        self,
        config: TrainConfig,
        rows: list[dict[str, Any]],
        held_out: list[dict[str, Any]],
        history: list[list[float]],
        out: RunWriter,
        trackers: Trackers,
        view: View,
    ) -> None:
        self.config, self.rows, self.held_out = config, rows, held_out
        self.history = history
        """(step, success) of every evaluation."""
        self.out, self.trackers, self.view = out, trackers, view
        self._stand: Stand
        self._saved = -1

    def on_rollout(self, rollout: Rollout) -> None:
        phase, step = phase_of(rollout.group_id)
        if rollout.result is not None:
            body = msgspec.json.encode(rollout.result)
            self.out.result(result_name(rollout.session_id), body)
        self.out.rollout({"at": time.time(), "phase": phase, "step": step, **rollout.record()})
        self.trackers.rollout(phase, step, rollout)
        self.view.rollout(phase, step, rollout)

    async def run(self, stand: Stand) -> Outcome:
        self._stand = stand
        self._saved = stand.steps
        ahead: dict[int, asyncio.Task[list[list[Rollout]]]] = {}
        try:
            if not self.history:
                await self._evaluate()
            while stand.steps < self.config.train.steps:
                self._ask(ahead)
                await self._step(ahead)
        except asyncio.CancelledError:
            self.view.note("stopping: the state is saved, sessions are ended")
            await self._save()
            raise
        finally:
            for task in ahead.values():
                task.cancel()
            await asyncio.gather(*ahead.values(), return_exceptions=True)
        await self._save()
        first = self.history[0][1] if self.history else None
        final = self.history[-1][1] if self.history else None
        report = stand.collector.report()
        self.out.event({"at": time.time(), "event": "ended", "report": str(report)})
        return Outcome(self.out.folder.path, stand.steps, first, final, report)

    # --- one step -----------------------------------------------------------------------------

    def _ask(self, ahead: dict[int, asyncio.Task[list[list[Rollout]]]]) -> None:
        """Starts collecting what may be collected with the weights as they are."""
        now, config = self._stand.steps, self.config
        for step in range(now, min(now + config.loop.max_staleness + 1, config.train.steps)):
            if step not in ahead:
                tasks = train_tasks(
                    self.rows,
                    step,
                    config.rollout.tasks_per_step,
                    seed=config.train.seed,
                    shuffle=config.data.shuffle,
                )
                ahead[step] = asyncio.create_task(
                    self._stand.collector.collect(tasks, config.rollout.group_size)
                )

    async def _step(self, ahead: dict[int, asyncio.Task[list[list[Rollout]]]]) -> None:
        stand, clock = self._stand, Clock()
        groups = await ahead[stand.steps]
        del ahead[stand.steps]
        clock.lap("collect")
        rollouts = [rollout for group in groups for rollout in group]
        check_alive(rollouts)
        ages = [_age(rollout, stand.version) for rollout in rollouts if rollout.rows]
        rows = [row for rollout in rollouts for row in self._trainable(rollout)]
        report = await stand.step(rows)
        clock.lap("train")
        line = self._line(rollouts, ages, clock, report)
        self._metric("step", line)
        self.view.step(line)
        loop, step = self.config.loop, stand.steps
        if loop.save_every and step % loop.save_every == 0:
            await self._save()
        last = step == self.config.train.steps
        if last or (loop.eval_every and step % loop.eval_every == 0):
            await self._evaluate()

    def _trainable(self, rollout: Rollout) -> Sequence[Row]:
        too_old = _age(rollout, self._stand.version) > self.config.loop.max_staleness
        if too_old:
            logger.warning("rollout=<%s> | left out: its weights are too old", rollout.rollout_id)
        return () if too_old else rollout.rows

    def _line(
        self, rollouts: list[Rollout], ages: list[int], clock: Clock, report: Any
    ) -> StepLine:
        counted = [r for r in rollouts if r.reward is not None]
        tokens = sum(r.tokens for r in rollouts)
        return StepLine(
            step=report.step,
            steps=self.config.train.steps,
            reward=_mean([r.reward or 0.0 for r in counted]),
            success=self._success(counted),
            rollouts=len(rollouts),
            tokens=tokens,
            tokens_per_s=tokens / max(1e-9, sum(clock.laps.values())),
            staleness=_mean(ages),
            max_staleness=max(ages, default=0),
            failures=_failures(rollouts),
            seconds=dict(clock.laps),
            stages={n: _mean([getattr(r.timings, n) for r in rollouts]) for n in STAGES},
            report=report,
        )

    def _metric(self, kind: str, line: StepLine | EvalLine) -> None:
        record = {"at": time.time(), "kind": kind, **dataclasses.asdict(line)}
        self.out.metric(record)
        self.trackers.put(record)

    def _success(self, counted: Sequence[Rollout]) -> float:
        least = self.config.loop.success_at
        return _mean([float((r.reward or 0.0) >= least) for r in counted])

    # --- evaluation and state -----------------------------------------------------------------

    async def _evaluate(self) -> None:
        if not self.held_out:
            return
        step, started = self._stand.steps, time.monotonic()
        groups = await self._stand.collector.collect(eval_tasks(self.held_out, step))
        rollouts = [rollout for group in groups for rollout in group]
        check_alive(rollouts)
        counted = [r for r in rollouts if r.reward is not None]
        line = EvalLine(
            step=step,
            success=self._success(counted),
            reward=_mean([r.reward or 0.0 for r in counted]),
            rollouts=len(counted),
            failures=_failures(rollouts),
            seconds=time.monotonic() - started,
        )
        self.history.append([step, line.success])
        self._metric("eval", line)
        self.view.evaluated(line)

    async def _save(self) -> None:
        if self._saved == self._stand.steps:
            return
        await self._stand.save(
            self.out.folder.path / CHECKPOINTS,
            {"history": self.history},
            self.config.loop.keep_checkpoints,
        )
        self._saved = self._stand.steps


def check_alive(rollouts: Sequence[Rollout]) -> None:
    """ContractError when nothing can be learnt because nothing works."""
    if all(rollout.reward is None for rollout in rollouts):
        raise ContractError(
            f"all {len(rollouts)} rollouts were lost to infrastructure, for instance: "
            f"{rollouts[0].failure}"
        )
    failed = [r for r in rollouts if r.failure is not None and r.failure.kind is FailureKind.AGENT]
    if len(failed) == len(rollouts):
        raise ContractError(
            f"the agent failed on every task, for instance on row {failed[0].task} of the data: "
            f"{failed[0].failure}. Do the rows have the fields that the agent reads?"
        )
    if not any(rollout.rows for rollout in rollouts):
        raise ContractError(
            "no rollout used the model: the agent must call it at payload['_rollout']['base_url']"
        )


class Clock:
    """Wall clock, lap by lap."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = now - self._at
        self._at = now


def _age(rollout: Rollout, now: str) -> int:
    """How many changes of the weights ago the oldest that sampled it were current."""
    versions = {v for row in rollout.rows for v, _, _ in row.weight_versions}
    return max((_number(now) - _number(version) for version in versions), default=0)


def _number(version: str) -> int:
    """Of ``7``, and of ``7+1/2``, which is between two minibatches of a step."""
    return int(version.partition("+")[0])


def _failures(rollouts: Sequence[Rollout]) -> dict[str, int]:
    return dict(collections.Counter(r.failure.kind.value for r in rollouts if r.failure))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
