"""Trainers that are not ours: collected rollouts in, the trainer's own samples out.

One file or folder a trainer, each thin; importing one imports no trainer. ``base`` is the shape
that all of them share, ``bridge`` what they stand on. One that ``art train`` starts as a process of
its own has

    run(config: TrainConfig, run_dir: Path, where: Deployed) -> None

which returns when training has ended well; Tinker is driven by our own loop instead. ``check``
refuses what a trainer cannot honour before anything is started: what is ignored is a wrong run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..trainer.config import Deployed, TrainConfig

RUNNERS = {"verl": ".verl.launch", "slime": ".slime.launch", "rllm": ".rllm.launch"}
"""Where each is, by the name that ``backend:`` gives it."""


CHECKS = {**RUNNERS, "tinker": ".tinker.setting"}
TRACKED = ("project",)
"""Of ``track.wandb``, what trainers of others are told."""


def check(config: TrainConfig) -> None:
    """ConfigError for what the chosen backend cannot honour, and for data that is none."""
    if config.backend not in CHECKS:
        return
    importlib.import_module(CHECKS[config.backend], __name__).check(config)
    _check_data(config)
    if config.backend in RUNNERS:
        _check_track(config)


def _check_data(config: TrainConfig) -> None:
    from ..trainer.tasks import read_rows

    rows, wanted = len(read_rows(config.data.train)), config.rollout.tasks_per_step
    if config.data.eval is not None:
        read_rows(config.data.eval)
    if config.backend in ("verl", "rllm") and rows < wanted:
        raise ConfigError(
            f"data.train has {rows} rows, fewer than rollout.tasks_per_step ({wanted}): "
            f"{config.backend} leaves an incomplete batch out, so nothing would be trained"
        )


def _check_track(config: TrainConfig) -> None:
    if config.track.opentelemetry:
        raise ConfigError(f"track.opentelemetry has no effect with backend {config.backend}")
    for key in (config.track.wandb or {}).keys() - set(TRACKED):
        raise ConfigError(
            f"track.wandb.{key} does not reach backend {config.backend}: only 'project' does; "
            f"wandb's own variables (WANDB_MODE …) do"
        )


def runner(name: str) -> Callable[[TrainConfig, Path, Deployed], None]:
    """What runs a training with that backend; ConfigError when nothing does."""
    if name not in RUNNERS:
        raise ConfigError(f"no backend {name!r}: there are embedded, tinker, {', '.join(RUNNERS)}")
    module = importlib.import_module(RUNNERS[name], __name__)
    run: Callable[[TrainConfig, Path, Deployed], None] = module.run
    return run
