"""How much better a rollout did than its siblings: the advantage of every trained token.

A group is the rollouts of one task. A rollout counts once, however many rows it became. Groups in
which all did equally well teach nothing: they are left out and counted, never trained as zeros.

With one reward a rollout the advantage is the reward less the group's mean, divided by its
standard deviation if so set. With a reward for every turn, each turn's reward is normalised by all
turn rewards of the group, and a turn's advantage is the sum from it to the end: what it led to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ContractError
from ..trajectory.row import Row, TurnSpan
from ..trajectory.turn import Logprobs

Floats: TypeAlias = npt.NDArray[np.float64]

EPSILON = 1e-6


@dataclasses.dataclass
class Advantages:
    rows: list[Row]
    """Those of groups that differ, in the order given."""
    tokens: list[Logprobs]
    """For each row, per token: the advantage where trained, else 0."""
    groups: int
    skipped_groups: int
    """Groups of equal rewards."""
    skipped_rollouts: int
    reward: float
    """Mean over all rollouts, skipped ones included."""


def advantages(rows: Sequence[Row], *, scale_by_std: bool = True) -> Advantages:
    by_group: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row.group_id is None:
            raise ContractError(
                f"rollout {row.rollout_id} has no group_id: group advantages need to know which "
                "rollouts attempted the same task"
            )
        _number(row.rollout_id, row.reward)
        by_group.setdefault(row.group_id, {}).setdefault(row.rollout_id, []).append(row)
    of_row: dict[int, Logprobs] = {}
    skipped_groups = skipped_rollouts = 0
    for group in by_group.values():
        found = _group(list(group.values()), scale_by_std)
        if found is None:
            skipped_groups += 1
            skipped_rollouts += len(group)
        else:
            of_row.update(found)
    kept = [row for row in rows if id(row) in of_row]
    totals = [rows_[0].reward or 0.0 for group in by_group.values() for rows_ in group.values()]
    return Advantages(
        rows=kept,
        tokens=[of_row[id(row)] for row in kept],
        groups=len(by_group),
        skipped_groups=skipped_groups,
        skipped_rollouts=skipped_rollouts,
        reward=float(np.mean(totals)) if totals else 0.0,
    )


def _group(rollouts: list[list[Row]], scale_by_std: bool) -> dict[int, Logprobs] | None:
    """Advantages by ``id(row)``, or None when the group's rewards do not differ."""
    per_turn = {row.turn_rewards is not None for rows in rollouts for row in rows if row.turns}
    if len(per_turn) > 1:
        raise ContractError(
            f"group {rollouts[0][0].group_id} mixes rewards per turn with rewards per rollout: "
            "the agent must return the same kind every time"
        )
    if per_turn == {True}:
        return _turn_group([_turn_rewards(rows) for rows in rollouts], rollouts, scale_by_std)
    values = [_number(rows[0].rollout_id, rows[0].reward) for rows in rollouts]
    centred = _normalised(np.array(values), scale_by_std)
    if centred is None:
        return None
    return {
        id(row): (row.loss_mask * np.float32(advantage)).astype(np.float32)
        for rows, advantage in zip(rollouts, centred, strict=True)
        for row in rows
    }


def _turn_group(
    rewards: list[dict[int, float]], rollouts: list[list[Row]], scale_by_std: bool
) -> dict[int, Logprobs] | None:
    flat = np.array([value for turns in rewards for _, value in sorted(turns.items())])
    centred = _normalised(flat, scale_by_std)
    if centred is None:
        return None
    found: dict[int, Logprobs] = {}
    start = 0
    for turns, rows in zip(rewards, rollouts, strict=True):
        own = centred[start : start + len(turns)]
        start += len(turns)
        to_end = dict(zip(sorted(turns), np.cumsum(own[::-1])[::-1], strict=True))
        for row in rows:
            tokens = np.zeros(row.n_tokens, np.float32)
            for span in row.turns:
                tokens[span.start : span.end] = to_end[_turn(row, span)]
            found[id(row)] = tokens
    return found


def _turn_rewards(rows: list[Row]) -> dict[int, float]:
    return {
        _turn(row, span): _number(row.rollout_id, value)
        for row in rows
        for span, value in zip(row.turns, row.turn_rewards or [], strict=True)
    }


def _turn(row: Row, span: TurnSpan) -> int:
    return int(row.turn_index[span.start])


def _normalised(values: Floats, scale_by_std: bool) -> Floats | None:
    centred: Floats = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    if spread < EPSILON:
        return None
    return centred / (spread + EPSILON) if scale_by_std else centred


def _number(rollout_id: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ContractError(
            f"rollout {rollout_id} has the reward {value!r}: a finite number is needed. Set it "
            "with assign_rewards from what the agent returned"
        )
    return float(value)
