"""The run's figures, sent on to TensorBoard, Weights & Biases or OpenTelemetry where asked for.

The run folder always has them; a tracker is a copy for other eyes, so one that fails is reported
once and dropped, and training goes on. What cannot be imported is an error before the run starts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import yaml  # type: ignore[import-untyped]

from ..collect.record import Rollout
from ..errors import ConfigError
from .config import TrainConfig
from .span import Spans

logger = logging.getLogger(__name__)

Figures = dict[str, float]


class Tracker(Protocol):
    def put(self, step: int, figures: Figures) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "track.tensorboard needs the package: pip install tensorboard, or leave it out"
            ) from None
        self._writer = SummaryWriter(str(folder))

    def put(self, step: int, figures: Figures) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    def __init__(self, folder: Path, options: Mapping[str, Any], config: str) -> None:
        try:
            import wandb  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise ConfigError(
                "track.wandb needs the package: pip install wandb, or leave it out"
            ) from None
        given = {"id": folder.name, "name": folder.name, "resume": "allow", **options}
        self._run = wandb.init(dir=str(folder), config=yaml.safe_load(config), **given)

    def put(self, step: int, figures: Figures) -> None:
        self._run.log({**figures, "step": step})

    def close(self) -> None:
        self._run.finish()


class Trackers:
    """All that the configuration names; a context manager."""

    def __init__(self, config: TrainConfig, run_dir: Path) -> None:
        self._all: list[Tracker] = []
        self._spans: Spans | None = None
        if config.track.tensorboard:
            self._all.append(TensorBoard(run_dir / "tensorboard"))
        if config.track.wandb is not None:
            self._all.append(WandB(run_dir, config.track.wandb, config.resolved()))
        if config.track.opentelemetry:
            self._spans = Spans(run_dir.name)

    def rollout(self, phase: str, step: int, rollout: Rollout) -> None:
        if self._spans is None:
            return
        try:
            self._spans.rollout(phase, step, rollout)
        except Exception:
            logger.exception("tracker=<Spans> | dropped")
            self._spans = None

    def put(self, record: Mapping[str, Any]) -> None:
        """A line of ``metrics.jsonl``."""
        kind, step = str(record["kind"]), int(record["step"])
        figures = {f"{kind}/{name}": value for name, value in numbers(record).items()}
        for tracker in list(self._all):
            try:
                tracker.put(step, figures)
            except Exception:
                logger.exception("tracker=<%s> | dropped", type(tracker).__name__)
                self._all.remove(tracker)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        held: list[Tracker | Spans] = [*self._all, *([self._spans] if self._spans else [])]
        for tracker in held:
            try:
                tracker.close()
            except Exception:
                logger.exception("tracker=<%s> | not closed", type(tracker).__name__)


def numbers(record: Mapping[str, Any], head: str = "") -> Figures:
    """Every number of a nested record, by its path."""
    out: Figures = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            out |= numbers(value, f"{head}{key}/")
        elif isinstance(value, int | float) and key not in ("at", "step", "steps"):
            out[f"{head}{key}"] = float(value)
    return out
