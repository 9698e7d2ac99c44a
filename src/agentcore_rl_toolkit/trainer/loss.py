"""The clipped surrogate of GRPO, on vectors over the trained tokens of a micro-batch.

Three policies are told apart. ``captured``: the weights that sampled the token, whatever their
age. ``old``: the weights at the start of this step. ``new``: the weights being changed now, the
only ones with a gradient. The clipped ratio is new over old and bounds how far one step goes; the
truncated weight old over captured corrects for what was sampled by older weights.

Every token brings its ``weight`` in the final sum, and the loss is that sum: so it can be
accumulated over micro-batches, and a rollout that became two rows weighs what it weighed as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from ..trajectory.row import Row
from .setting import TrainSetting


@dataclasses.dataclass
class Terms:
    """All vectors over the trained tokens."""

    new: torch.Tensor
    old: torch.Tensor
    captured: torch.Tensor
    advantage: torch.Tensor
    weight: torch.Tensor
    reference: torch.Tensor | None = None


@dataclasses.dataclass
class Measures:
    """Sums over tokens, to be divided by ``tokens``."""

    tokens: int = 0
    clipped: float = 0.0
    truncated: float = 0.0
    kl_old: float = 0.0
    """Divergence of new from old, estimated."""
    kl_reference: float = 0.0
    entropy: float = 0.0
    """Minus the log-probability of what was sampled."""

    def add(self, other: Measures) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def means(self) -> dict[str, float]:
        n = max(1, self.tokens)
        names = ("clipped", "truncated", "kl_old", "kl_reference", "entropy")
        return {name: getattr(self, name) / n for name in names}


def surrogate(terms: Terms, setting: TrainSetting) -> tuple[torch.Tensor, Measures]:
    """The loss to minimise, summed, and what happened in it."""
    ratio = torch.exp(terms.new - terms.old)
    bounded = ratio.clamp(1 - setting.clip_low, 1 + setting.clip_high)
    gain = torch.minimum(ratio * terms.advantage, bounded * terms.advantage)
    importance = torch.exp(terms.old - terms.captured).detach()
    correction = importance.clamp(max=setting.max_importance)
    per_token = -correction * gain
    drift = torch.zeros_like(per_token)
    if setting.kl and terms.reference is not None:
        drift = divergence(terms.new, terms.reference)
        per_token = per_token + setting.kl * drift
    loss = (per_token * terms.weight).sum()
    with torch.no_grad():
        measures = Measures(
            tokens=terms.new.numel(),
            clipped=float((ratio * terms.advantage > bounded * terms.advantage).sum()),
            truncated=float((importance > setting.max_importance).sum()),
            kl_old=float(divergence(terms.new, terms.old).sum()),
            kl_reference=float(drift.sum()),
            entropy=-float(terms.new.sum()),
        )
    return loss, measures


def divergence(new: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Per token, an unbiased estimate of KL(new || other) that is never negative."""
    difference = other - new
    return torch.exp(difference) - difference - 1


def token_weights(rows: Sequence[Row], setting: TrainSetting) -> list[float]:
    """For each row, the weight of each of its trained tokens; one optimiser step's rows.

    Weights depend on rollouts and token counts alone, never on how a rollout is cut into rows.
    """
    of_rollout: dict[str, int] = {}
    for row in rows:
        of_rollout[row.rollout_id] = of_rollout.get(row.rollout_id, 0) + row.n_trained
    rollouts = len(of_rollout)
    if setting.normalise == "rollout":
        return [1.0 / (rollouts * max(1, of_rollout[row.rollout_id])) for row in rows]
    if setting.normalise == "token":
        return [1.0 / max(1, sum(of_rollout.values()))] * len(rows)
    return [1.0 / (rollouts * setting.constant_tokens)] * len(rows)
