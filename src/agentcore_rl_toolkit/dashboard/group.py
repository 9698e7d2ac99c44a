"""A rollout among its siblings: what the trainer made of their rewards.

The same arithmetic as ``trainer.advantage``, which needs torch beside it; a test holds the two
together. None where nothing is learnt: infrastructure failures, and groups of equal rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EPSILON = 1e-6
Rewards = float | list[float] | None
"""Of one rollout: a number, one for each trained turn, or None for an infrastructure failure."""


def turn_advantages(
    rewards: Sequence[Rewards], turns: Sequence[int], *, scale_by_std: bool = True
) -> list[list[float] | None]:
    """For each rollout the advantage of each of its ``turns``; None when it teaches nothing."""
    counted = [i for i, value in enumerate(rewards) if value is not None]
    lists = {i: value for i, value in enumerate(rewards) if isinstance(value, list)}
    per_turn = bool(lists) and all(
        i in lists and len(lists[i]) == turns[i] for i in counted if turns[i]
    )
    out: list[list[float] | None] = [None] * len(rewards)
    if per_turn and any(turns[i] > 1 for i in counted):
        flat = np.array([value for i in counted for value in lists.get(i, [])])
        centred = _normalised(flat, scale_by_std)
        start = 0
        for i in counted if centred is not None else []:
            own = np.asarray(centred)[start : start + turns[i]]
            start += turns[i]
            out[i] = np.cumsum(own[::-1])[::-1].tolist()
        return out
    totals = np.array([_total(rewards[i]) for i in counted])
    centred = _normalised(totals, scale_by_std)
    for i, value in zip(counted, [] if centred is None else centred.tolist(), strict=False):
        out[i] = [value] * turns[i]
    return out


def _normalised(values: np.ndarray, scale_by_std: bool) -> np.ndarray | None:
    if not values.size:
        return None
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    if spread < EPSILON:
        return None
    return np.asarray(centred / (spread + EPSILON) if scale_by_std else centred)


def _total(value: Rewards) -> float:
    return float(sum(value)) if isinstance(value, list) else float(value or 0.0)
