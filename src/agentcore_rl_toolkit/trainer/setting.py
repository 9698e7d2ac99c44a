"""Settings of the trainer, each with what it does; bad values are refused when they are set."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..errors import ConfigError

Normalise = Literal["rollout", "token", "constant"]
Schedule = Literal["constant", "linear", "cosine"]


@dataclasses.dataclass(frozen=True)
class LoraSetting:
    rank: int = 16
    alpha: int = 32
    targets: tuple[str, ...] | str = "all-linear"


@dataclasses.dataclass(frozen=True)
class TrainSetting:
    steps: int = 40
    """Optimiser schedule ends here; one step is one call of ``Trainer.step``."""
    lr: float = 1e-5
    schedule: Schedule = "constant"
    warmup_steps: int = 0
    final_lr: float = 0.1
    """Share of ``lr`` at the last step of a linear or cosine schedule."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    minibatches: int = 1
    """Optimiser steps made of one batch of rows; rollouts are split among them."""
    epochs: int = 1

    clip_low: float = 0.2
    clip_high: float = 0.28
    """The ratio is kept within 1 - clip_low and 1 + clip_high; a higher upper bound explores."""
    max_importance: float = 2.0
    """Bound of the weight that corrects for rows sampled by older weights."""
    kl: float = 0.0
    """Weight of the divergence from the reference model; 0 needs no reference."""
    normalise: Normalise = "rollout"
    """What a rollout weighs: the same for each, by its tokens, or its tokens over a constant."""
    constant_tokens: int = 1024
    """Divisor of ``normalise: constant``."""
    scale_by_std: bool = True
    """Divide a group's advantages by its standard deviation."""
    temperature: float = 1.0
    """Of the rollouts: log-probabilities are those of the distribution that was sampled from."""

    batch_tokens: int = 8192
    """Tokens, padding included, in one forward and backward pass."""
    gradient_checkpointing: bool = False
    lora: LoraSetting | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _positive(self, "steps", "lr", "minibatches", "epochs", "batch_tokens", "temperature")
        _positive(self, "max_grad_norm", "max_importance", "constant_tokens")
        for name in ("warmup_steps", "kl", "weight_decay", "clip_high", "final_lr"):
            _check(getattr(self, name) >= 0, name, "at least 0")
        _check(0 <= self.clip_low < 1, "clip_low", "in [0, 1)")
        _check(self.schedule in ("constant", "linear", "cosine"), "schedule", "a known schedule")
        _check(self.normalise in ("rollout", "token", "constant"), "normalise", "a known kind")


def _positive(setting: TrainSetting, *names: str) -> None:
    for name in names:
        _check(getattr(setting, name) > 0, name, "greater than 0")


def _check(holds: bool, name: str, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"train.{name} must be {wanted}")
