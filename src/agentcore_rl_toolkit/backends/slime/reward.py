"""Advantages of slime's samples: each rollout against its siblings, counted once.

slime's own comparison cuts a flat list into equal pieces, which is wrong as soon as a rollout
becomes two samples; this one goes by ``group_index`` and ``rollout_id``. Rollouts that
infrastructure failed are not compared with, and get 0, which trains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .sample import FAILURE

EPSILON = 1e-6


def post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """``--custom-reward-post-process-path``: raw rewards and advantages, in the order given."""
    raw = [_reward(args, sample) for sample in samples]
    groups: dict[Any, dict[Any, float]] = {}
    for sample, value in zip(samples, raw, strict=True):
        if FAILURE not in sample.metadata:
            groups.setdefault(sample.group_index, {})[sample.rollout_id] = value
    if getattr(args, "rewards_normalization", True):
        scale = getattr(args, "grpo_std_normalization", True)
        groups = {group: _normalised(rewards, scale) for group, rewards in groups.items()}
    return raw, [
        0.0 if FAILURE in sample.metadata else groups[sample.group_index][sample.rollout_id]
        for sample in samples
    ]


def _reward(args: Any, sample: Any) -> float:
    key = getattr(args, "reward_key", None)
    return float(sample.reward[key] if key else sample.reward)


def _normalised(rewards: dict[Any, float], scale: bool) -> dict[Any, float]:
    values = np.array(list(rewards.values()), np.float64)
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    if spread < EPSILON:
        centred = np.zeros_like(centred)
    elif scale:
        centred = centred / (spread + EPSILON)
    return dict(zip(rewards, centred.tolist(), strict=True))
