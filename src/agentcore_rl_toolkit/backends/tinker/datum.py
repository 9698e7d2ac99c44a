"""One row as Tinker's ``Datum``: everything shifted by one, zeros where nothing is trained.

Position ``i`` predicts id ``i + 1``. Tinker sums its losses over all positions, so a position's
weight in the batch is part of its advantage; all three losses are proportional to it. A position
with advantage 0 adds nothing, whatever its log-probability.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ContractError
from ...trajectory.row import Mask, Row
from ...trajectory.turn import Ids, Logprobs


@dataclasses.dataclass(frozen=True)
class Columns:
    """All as long as the row less one."""

    inputs: Ids
    targets: Ids
    logprobs: Logprobs
    advantages: Logprobs
    mask: Mask


def columns(row: Row, advantages: Logprobs) -> Columns:
    """``advantages`` are per token of the row, weights included."""
    if advantages.size != row.n_tokens:
        raise ContractError(
            f"rollout {row.rollout_id}: {advantages.size} advantages for {row.n_tokens} tokens"
        )
    if row.loss_mask[0]:
        raise ContractError(f"rollout {row.rollout_id} trains a row's first token")
    return Columns(
        inputs=row.token_ids[:-1],
        targets=row.token_ids[1:],
        logprobs=row.logprobs[1:],
        advantages=(advantages * row.loss_mask)[1:].astype(np.float32),
        mask=row.loss_mask[1:],
    )


def datum(types: Any, one: Columns) -> Any:
    """``types`` is ``tinker.types``."""
    return types.Datum(
        model_input=types.ModelInput.from_ints(one.inputs.tolist()),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(one.targets.astype(np.int64)),
            "logprobs": types.TensorData.from_numpy(one.logprobs),
            "advantages": types.TensorData.from_numpy(one.advantages),
        },
    )


def trainer_logprobs(outputs: Sequence[Any], rows: Sequence[Row]) -> list[Logprobs]:
    """What the service computed, per token of each row; a row's first has none and is 0."""
    found = []
    for output, row in zip(outputs, rows, strict=True):
        given = output.get("logprobs")
        if given is None:
            raise ContractError(
                "the service returned no log-probabilities of the trained tokens, so sampler and "
                "trainer cannot be compared: use a server that returns 'logprobs'"
            )
        values = np.asarray(given.to_numpy(), np.float32).reshape(-1)[: row.n_tokens - 1]
        found.append(np.concatenate([np.zeros(1, np.float32), values]))
    return found
