"""Rows into tensors: micro-batches that stay within a budget of tokens.

Rows of similar length are put together, so that little is padding. Padding is on the right, where
causal attention keeps it out of sight. Every trained token keeps its own weight in the loss, so
how rows are packed changes nothing but the order of a sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from ..errors import ConfigError
from ..trajectory.row import Row
from ..trajectory.turn import Logprobs

FILL = 0.75
"""A row joins others only if it fills at least this share of their width."""


@dataclasses.dataclass
class Item:
    """A row as the loss needs it. Arrays are per token of the row."""

    row: Row
    advantage: Logprobs
    weight: float = 0.0
    """Of each trained token in the loss."""
    old: Logprobs | None = None
    """Log-probabilities under the weights at the start of the step."""
    reference: Logprobs | None = None


@dataclasses.dataclass
class MicroBatch:
    items: list[Item]
    token_ids: torch.Tensor
    attention_mask: torch.Tensor
    trained: torch.Tensor
    """Bool, same shape as ``token_ids``."""

    def flat(self, values: Sequence[Logprobs]) -> torch.Tensor:
        """Per-row arrays as one vector over the trained tokens, in the order of the loss."""
        parts = [v[i.row.loss_mask > 0] for v, i in zip(values, self.items, strict=True)]
        return torch.from_numpy(np.concatenate(parts)).to(self.token_ids.device)

    def weights(self) -> torch.Tensor:
        return self.flat([np.full(i.row.n_tokens, i.weight, np.float32) for i in self.items])

    def split(self, flat: torch.Tensor) -> list[Logprobs]:
        """The inverse of ``flat``; 0 where a row is not trained."""
        values = flat.detach().float().cpu().numpy()
        found, start = [], 0
        for item in self.items:
            own = np.zeros(item.row.n_tokens, np.float32)
            n = item.row.n_trained
            own[item.row.loss_mask > 0] = values[start : start + n]
            start += n
            found.append(own)
        return found


def pack(items: Sequence[Item], batch_tokens: int, device: torch.device) -> list[MicroBatch]:
    groups: list[list[Item]] = []
    for item in sorted(items, key=lambda i: -i.row.n_tokens):
        length = item.row.n_tokens
        if length > batch_tokens:
            raise ConfigError(
                f"a row of {length} tokens does not fit into train.batch_tokens={batch_tokens}: "
                "raise it, or limit the length of rollouts"
            )
        # the longest row of a group comes first, so it decides the width
        width = groups[-1][0].row.n_tokens if groups else 0
        if length >= FILL * width > 0 and width * (len(groups[-1]) + 1) <= batch_tokens:
            groups[-1].append(item)
        else:
            groups.append([item])
    return [_tensors(group, device) for group in groups]


def _tensors(items: list[Item], device: torch.device) -> MicroBatch:
    shape = (len(items), items[0].row.n_tokens)
    ids = np.zeros(shape, np.int64)
    attention = np.zeros(shape, np.int64)
    trained = np.zeros(shape, bool)
    for i, item in enumerate(items):
        n = item.row.n_tokens
        ids[i, :n] = item.row.token_ids
        attention[i, :n] = 1
        trained[i, :n] = item.row.loss_mask > 0
    return MicroBatch(
        items=items,
        token_ids=torch.from_numpy(ids).to(device),
        attention_mask=torch.from_numpy(attention).to(device),
        trained=torch.from_numpy(trained).to(device),
    )
