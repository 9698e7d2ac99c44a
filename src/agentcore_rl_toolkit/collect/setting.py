"""How rollouts are collected, each setting with its unit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError


@dataclasses.dataclass(frozen=True)
class CollectSetting:
    model_id: str = "policy"
    """Name under which the gateway serves the model that is trained."""
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Wins over what the agent sets: captured log-probabilities must be those of this policy."""
    max_concurrent: int = 64
    """Sessions at a time."""
    timeout_s: float = 300.0
    """Of one attempt, from its acceptance to its result."""
    retries: int = 2
    """How often a rollout that infrastructure failed runs again, in a session of its own."""
    failed_reward: float = 0.0
    """Of a rollout whose agent raised."""
    drain_s: float = 10.0
    """How long model calls that outlive their agent may take before they are cut off."""

    def __post_init__(self) -> None:
        for name in ("max_concurrent", "timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"rollout.{name} must be greater than 0")
        for name in ("retries", "drain_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"rollout.{name} must be at least 0")
        if not math.isfinite(self.failed_reward):
            raise ConfigError("rollout.failed_reward must be a finite number")
