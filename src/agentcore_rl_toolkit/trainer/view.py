"""What a run tells whoever watches it. Views draw; they never decide."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from ..collect import Rollout
from .step import StepReport


@dataclasses.dataclass(frozen=True)
class StepLine:
    """One training step, for eyes and for ``metrics.jsonl``."""

    step: int
    steps: int
    reward: float
    success: float
    """Share of the step's rollouts that succeeded; failed agents count, infrastructure not."""
    rollouts: int
    tokens: int
    """Sampled in this step's rollouts."""
    tokens_per_s: float
    staleness: float
    """Mean age of the rollouts' oldest weights, in steps."""
    max_staleness: int
    failures: Mapping[str, int]
    """Of this step, by kind."""
    seconds: Mapping[str, float]
    """Where this step's wall clock went: waiting for rollouts, training, saving."""
    stages: Mapping[str, float]
    """Where a rollout's time went, mean by stage."""
    report: StepReport


@dataclasses.dataclass(frozen=True)
class EvalLine:
    step: int
    success: float
    reward: float
    rollouts: int
    failures: Mapping[str, int]
    seconds: float


class View(Protocol):
    def note(self, text: str) -> None: ...
    def rollout(self, phase: str, step: int, rollout: Rollout) -> None: ...
    def step(self, line: StepLine) -> None: ...
    def evaluated(self, line: EvalLine) -> None: ...


class Silent:
    """For programs and tests."""

    def note(self, text: str) -> None:
        pass

    def rollout(self, phase: str, step: int, rollout: Rollout) -> None:
        pass

    def step(self, line: StepLine) -> None:
        pass

    def evaluated(self, line: EvalLine) -> None:
        pass
