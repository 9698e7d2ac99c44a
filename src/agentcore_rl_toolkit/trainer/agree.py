"""The check that catches silent wrongness: served and trained log-probabilities must be the same.

On tokens that the current weights sampled, engine and trainer compute the same number in two ways.
When they differ by more than arithmetic allows, something is wrong that no loss curve would show:
stale weights in the engine, another tokenisation, another temperature, ids that were not served.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from ..errors import ToolkitError
from ..trajectory.row import Row
from ..trajectory.turn import Logprobs


class DisagreementError(ToolkitError):
    """Captured and trainer log-probabilities differ; training on them would be wrong."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    max: float | None = None
    mean: float | None = None
    p99: float | None = None


FLOAT32 = Bounds(max=1e-4)
HALF = Bounds(mean=5e-3, p99=5e-2)


def bounds_of(dtype: torch.dtype) -> Bounds:
    return FLOAT32 if dtype == torch.float32 else HALF


@dataclasses.dataclass(frozen=True)
class Agreement:
    tokens: int
    """Of the current version."""
    max: float = 0.0
    mean: float = 0.0
    p99: float = 0.0
    worst: str = ""
    """Where the largest difference is."""


def compare(rows: Sequence[Row], computed: Sequence[Logprobs], version: str) -> Agreement:
    differences, places = [], []
    for row, own in zip(rows, computed, strict=True):
        for name, start, end in row.weight_versions:
            if name == version:
                differences.append(np.abs(row.logprobs[start:end] - own[start:end]))
                places.append((row, start))
    if not differences:
        return Agreement(tokens=0)
    flat = np.concatenate(differences)
    span = int(np.argmax([d.max() for d in differences]))
    row, start = places[span]
    worst = f"rollout {row.rollout_id}, token {start + int(differences[span].argmax())}"
    return Agreement(
        tokens=int(flat.size),
        max=float(flat.max()),
        mean=float(flat.mean()),
        p99=float(np.quantile(flat, 0.99)),
        worst=worst,
    )


def ensure(agreement: Agreement, bounds: Bounds, version: str) -> None:
    for name in ("max", "mean", "p99"):
        bound, seen = getattr(bounds, name), getattr(agreement, name)
        # written so that NaN fails too
        if bound is not None and not seen <= bound:
            raise DisagreementError(
                f"captured and trainer log-probabilities disagree on tokens of weight version "
                f"{version!r}: {name} {seen:.3g}, allowed {bound:g}, over {agreement.tokens} "
                f"tokens, worst at {agreement.worst}. Training on them would be wrong. Look at, in "
                "this order: does the engine serve the weights it says (tied embeddings after a "
                "reload), is train.temperature that of the rollouts, are top_p 1 and top_k off, "
                "is the engine's precision the trainer's, are the ids those that were served"
            )
