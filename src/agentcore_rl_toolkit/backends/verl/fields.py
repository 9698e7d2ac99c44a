"""A sample in the words of verl's ``AgentLoopOutput``.

The rollout's reward is on its last output, from where verl copies it to the others; verl knows one
reward for a rollout, so rewards per turn travel beside it in ``extra_fields``.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect import Rollout
from ..base import Sample, samples


def output_fields(sample: Sample, *, step: int | None = None) -> dict[str, Any]:
    """Arguments of an AgentLoopOutput, less ``metrics``; ``step``: version where none is known."""
    first, last = sample.steps() or (step, step)
    extra: dict[str, Any] = {
        "rollout_id": sample.rollout_id,
        "min_global_steps": first,
        "max_global_steps": last,
        "weight_versions": [list(span) for span in sample.versions],
        "status": sample.status.value,
        "turn_rewards": sample.rewards.tolist() if sample.per_turn else None,
        "reward_extra_info": {},
    }
    fields: dict[str, Any] = {
        "prompt_ids": sample.prompt_ids.tolist(),
        "response_ids": sample.response_ids.tolist(),
        "response_mask": sample.mask.tolist(),
        "response_logprobs": sample.logprobs.tolist(),
        "reward_score": sample.reward if sample.index == sample.count - 1 else None,
        "num_turns": 2 * sample.turns,
        "extra_fields": extra,
    }
    if sample.routed_experts:
        fields["routed_experts"] = experts(sample)
    return fields


def rollout_fields(rollout: Rollout, *, step: int | None = None) -> list[dict[str, Any]]:
    """All outputs of a rollout; empty when nothing of it can be trained."""
    found = [output_fields(sample, step=step) for sample in samples(rollout)]
    for fields in found:
        fields["extra_fields"]["reward_extra_info"] = dict(rollout.metrics)
    return found


def experts(sample: Sample) -> NDArray[np.int16]:
    """Per token of prompt and response; what no engine reported stays zero, as verl expects."""
    parts = [
        (start, end, np.load(io.BytesIO(data), allow_pickle=False))
        for start, end, data in sample.routed_experts
    ]
    total = sample.prompt_ids.size + sample.response_ids.size
    whole = np.zeros((total, *parts[0][2].shape[1:]), np.int16)
    for start, end, found in parts:
        n = min(len(found), end - start)
        whole[start : start + n] = found[:n]
    return whole
