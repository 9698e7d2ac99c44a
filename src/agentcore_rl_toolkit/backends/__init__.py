"""Trainers that are not ours: collected rollouts in, the trainer's own samples out.

One file or folder a trainer, each thin; importing one imports no trainer. ``base`` is the shape
that all of them share, ``bridge`` what they stand on. One that ``art train`` starts as a process of
its own has

    run(config: TrainConfig, run_dir: Path, where: Deployed) -> None

which returns when training has ended well; Tinker is driven by our own loop instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..trainer.config import TrainConfig
    from ..trainer.rig import Deployed

RUNNERS = {"verl": ".verl.launch", "slime": ".slime.launch", "rllm": ".rllm.launch"}
"""Where each is, by the name that ``backend:`` gives it."""


def runner(name: str) -> Callable[[TrainConfig, Path, Deployed], None]:
    """What runs a training with that backend; ConfigError when nothing does."""
    if name not in RUNNERS:
        raise ConfigError(f"no backend {name!r}: there are embedded, tinker, {', '.join(RUNNERS)}")
    module = importlib.import_module(RUNNERS[name], __name__)
    run: Callable[[TrainConfig, Path, Deployed], None] = module.run
    return run
