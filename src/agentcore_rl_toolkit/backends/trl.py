"""Samples as the columns that TRL's ``rollout_func`` returns.

TRL takes exactly one sequence a rollout: a rollout that splits is refused rather than trained in
part. It uses captured log-probabilities only with ``use_vllm=True``; without, it assumes that the
weights which sampled are those that are trained. Rows for programs of one's own are written by
``trajectory.export``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..collect import Rollout
from ..errors import ContractError
from .base import Sample, samples

COLUMNS = (
    *("prompt_ids", "completion_ids", "logprobs", "env_mask"),
    *("reward", "token_rewards", "rollout_id", "group_id", "row", "rows"),
    *("versions", "status"),
)


def fields(sample: Sample) -> dict[str, Any]:
    """One value of every column."""
    return {
        "prompt_ids": sample.prompt_ids.tolist(),
        "completion_ids": sample.response_ids.tolist(),
        "logprobs": sample.logprobs.tolist(),
        "env_mask": sample.mask.tolist(),
        "reward": sample.reward,
        "token_rewards": sample.rewards.tolist(),
        "rollout_id": sample.rollout_id,
        "group_id": sample.group_id,
        "row": sample.index,
        "rows": sample.count,
        "versions": [{"version": v, "start": a, "end": b} for v, a, b in sample.versions],
        "status": sample.status.value,
    }


def columns(found: Iterable[Sample]) -> dict[str, list[Any]]:
    """Lists as long as each other, one a column."""
    plain = [fields(sample) for sample in found]
    return {name: [one[name] for one in plain] for name in COLUMNS}


def rollout_columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """What ``rollout_func`` returns for these rollouts, in their order."""
    rows = []
    for rollout in rollouts:
        found = samples(rollout)
        if len(found) != 1:
            why = str(rollout.failure) if rollout.failure else f"it has {len(found)} rows"
            raise ContractError(
                f"TRL needs one row for every rollout, and {rollout.rollout_id} cannot give it: "
                f"{why}. Use the embedded trainer, verl or slime for agents whose rollouts split"
            )
        rows += found
    return columns(rows)
