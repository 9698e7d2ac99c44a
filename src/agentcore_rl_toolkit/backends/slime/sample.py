"""A collected rollout as slime's samples.

slime's ``Sample`` is one token sequence with a mask over its response. All samples of a rollout
get its number as ``rollout_id``, so that slime's loss counts the rollout once. A rollout that
infrastructure failed keeps its place in the group, because slime counts places, as a sample that
is removed: nothing of it is trained, and ``reward.post_process`` leaves it out of the comparison.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...collect import Rollout
from ...errors import ContractError
from ...gateway.engines.experts import load_experts
from ...trajectory.row import RowStatus
from .. import base

FAILURE = "agentcore_failure"
"""Metadata key: why a rollout has no samples of its own."""
PLACEHOLDER_ID = 0

STATUS = {
    RowStatus.COMPLETED: "COMPLETED",
    RowStatus.TRUNCATED: "TRUNCATED",
    RowStatus.ABORTED: "COMPLETED",  # its tokens were delivered and used; ABORTED means: run again
    RowStatus.FAILED: "FAILED",
}


def fill(args: Any, blank: Any, rollout: Rollout) -> list[Any]:
    """Copies of ``blank``, slime's sample of this place in the group; at least one."""
    found = base.samples(rollout)
    if not found:
        return [empty(blank, rollout)]
    samples = [_filled(blank, one, rollout) for one in found]
    if getattr(args, "use_rollout_routing_replay", False):
        for sample, one in zip(samples, found, strict=True):
            sample.rollout_routed_experts = _experts(args, one)
    return samples


def _filled(blank: Any, one: base.Sample, rollout: Rollout) -> Any:
    sample = _new(blank, rollout)
    sample.tokens = one.token_ids
    sample.response_length = int(one.response_ids.size)
    sample.loss_mask = one.mask.tolist()
    sample.rollout_log_probs = one.logprobs.tolist()
    sample.reward = one.reward
    sample.status = getattr(blank.Status, STATUS[one.status])
    sample.weight_versions = list(dict.fromkeys(version for version, _, _ in one.versions))
    sample.metadata["agentcore_sample"] = [one.index, one.count]
    if one.per_turn:
        sample.metadata["agentcore_rewards"] = one.rewards.tolist()
    return sample


def _experts(args: Any, one: base.Sample) -> Any:
    """(tokens - 1, layers, experts a token): of every id that another follows."""
    shape = {"layers": args.num_layers, "top_k": args.moe_router_topk}
    parts = [load_experts(data, **shape) for _, _, data in one.routed_experts]
    found = np.concatenate(parts) if parts else np.zeros((0, *shape.values()), np.int32)
    wanted = len(one.token_ids) - 1
    if len(found) != wanted:
        raise ContractError(
            f"rollout {one.rollout_id}: experts of {len(found)} tokens for {wanted}: start SGLang "
            "with --enable-return-routed-experts, or leave --use-rollout-routing-replay out"
        )
    return found


def empty(blank: Any, rollout: Rollout) -> Any:
    """Two ids, of which none is trained: slime's arrays cannot be empty."""
    sample = _new(blank, rollout)
    sample.tokens, sample.response_length = [PLACEHOLDER_ID, PLACEHOLDER_ID], 1
    sample.loss_mask, sample.rollout_log_probs = [0], [0.0]
    sample.reward = 0.0 if rollout.reward is None else rollout.reward
    sample.status = blank.Status.FAILED
    sample.remove_sample = True
    if rollout.reward is None:
        sample.metadata[FAILURE] = str(rollout.failure)
    return sample


def aborted(blank: Any) -> Any:
    """slime runs it again later."""
    blank.status = blank.Status.ABORTED
    return blank


def _new(blank: Any, rollout: Rollout) -> Any:
    sample = copy.deepcopy(blank)
    if sample.index is None:
        raise ContractError("slime's sample has no index: its data source must number its samples")
    sample.rollout_id = sample.index
    sample.session_id = rollout.session_id
    sample.metadata = dict(sample.metadata)
    sample.metadata["agentcore_turns"] = rollout.turns
    return sample


def one_of(samples: Sequence[Any]) -> Any:
    """For an evaluation, in which a rollout counts once: the last, which has the answer."""
    return samples[-1]
