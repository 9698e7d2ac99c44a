"""A collected rollout in the words that trainers share.

``samples`` is the one place where rows become training data for somebody else. Its invariants:
every delivered sampled id of a rollout is trained in exactly one sample, with the log-probability
it was sampled with; every other position has mask 0 and log-probability 0.0; all samples of a
rollout carry its ``rollout_id`` and its reward, so that a rollout which splits into more samples
does not weigh more.

What went wrong decides what a trainer gets: a rollout that infrastructure failed, after all its
retries, gives no samples and has no reward, never 0, because it says nothing about the policy. A
broken contract never comes here: the collector raises ContractError, which ends the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from ..collect import Rollout
from ..errors import ContractError
from ..trajectory.row import Mask, Row, RowStatus
from ..trajectory.turn import Ids, Logprobs, Span


@dataclasses.dataclass(frozen=True)
class Sample:
    """One token sequence: a prompt, then a response that is trained where its mask is 1.

    The response begins with the first id that is trained; tools' and users' words that come after
    it are part of it, with mask 0. All arrays but ``prompt_ids`` are as long as the response.
    """

    rollout_id: str
    group_id: str
    index: int
    """Place among the samples of its rollout."""
    count: int
    """Samples of its rollout."""
    prompt_ids: Ids
    response_ids: Ids
    mask: Mask
    logprobs: Logprobs
    rewards: Logprobs
    """Reward of each trained id's turn: the rollout's own, unless the agent gave one per turn."""
    reward: float
    """Of the rollout, the same on all its samples."""
    versions: tuple[Span, ...]
    """(weight version, start, end) over the response."""
    routed_experts: tuple[tuple[int, int, bytes], ...]
    """(start, end, the engine's bytes) over prompt and response, for mixtures of experts."""
    status: RowStatus
    turns: int
    """Model turns that it trains."""
    per_turn: bool
    """Whether ``rewards`` differ by turn because the agent said so."""
    metadata: dict[str, Any]

    @property
    def token_ids(self) -> list[int]:
        return [*self.prompt_ids.tolist(), *self.response_ids.tolist()]

    @property
    def is_truncated(self) -> bool:
        return self.status is RowStatus.TRUNCATED

    def steps(self) -> tuple[int, int] | None:
        """Lowest and highest weight version, where all of them are numbers."""
        try:
            found = [int(version) for version, _, _ in self.versions]
        except ValueError:
            return None
        return (min(found), max(found)) if found else None


def samples(rollout: Rollout) -> list[Sample]:
    """Empty when nothing of the rollout can be trained; ContractError for a row that is broken."""
    if rollout.reward is None:
        return []
    rows = [row.check() for row in rollout.rows if row.n_trained]
    return [_sample(rollout, rollout.reward, row, at, len(rows)) for at, row in enumerate(rows)]


def all_samples(rollouts: Iterable[Rollout]) -> list[Sample]:
    return [sample for rollout in rollouts for sample in samples(rollout)]


def _sample(rollout: Rollout, reward: float, row: Row, index: int, count: int) -> Sample:
    cut = row.prompt_length
    if cut == 0:
        raise ContractError(
            f"rollout {rollout.rollout_id}: a row begins with a sampled id, so its first "
            "log-probability has nothing to be conditioned on"
        )
    return Sample(
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        index=index,
        count=count,
        prompt_ids=row.token_ids[:cut],
        response_ids=row.token_ids[cut:],
        mask=row.loss_mask[cut:],
        logprobs=row.logprobs[cut:],
        rewards=row.token_rewards()[cut:],
        reward=reward,
        versions=tuple((v, start - cut, end - cut) for v, start, end in row.weight_versions),
        routed_experts=tuple(row.routed_experts),
        status=row.status,
        turns=len(row.turns),
        per_turn=row.turn_rewards is not None,
        metadata=dict(row.metadata),
    )
