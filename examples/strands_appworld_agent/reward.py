"""The reward of the app agent: the world's own checks, all of them or nothing."""

from __future__ import annotations

from typing import Any

from agentcore_rl_toolkit import RewardFunction


class AppReward(RewardFunction):
    """1.0 when the task was completed and every check of the world holds, else 0.0."""

    def __call__(self, *, world: Any = None, **_: Any) -> float:
        if world is None or not world.task_completed():
            return 0.0
        evaluation = world.evaluate()
        return float(0 < evaluation.num_tests == evaluation.pass_count)
