"""Keys and values of many sequences, each in a row of its own, written at a position of its own.

A transformers ``Cache`` of dense tensors ``[rows, heads, length, head_dim]`` per layer. The owner
says with ``aim`` which rows a forward pass is about and where its tokens go; attention then reads
the first ``length`` positions of those rows and the mask hides what is not theirs. Rows and length
grow by doubling, so a short run stays small.

Positions past a row's end hold leftovers: the mask hides them, and they are finite, because a
masked NaN would still spoil a sum.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from transformers.cache_utils import Cache

MIN_ROWS = 8
MIN_LENGTH = 64


@dataclasses.dataclass
class Aim:
    """One forward pass: the rows ``first`` up to ``last``, and the cell of each real token."""

    first: int
    last: int
    length: int
    """Positions that attention reads."""
    cell: tuple[torch.Tensor, torch.Tensor]
    """(row, position) in the cache of each token."""
    token: tuple[torch.Tensor, torch.Tensor] | None
    """(row, column) in the input of each token; None when every row has just one."""


class RowCache(Cache):
    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._rows, self._length = MIN_ROWS, MIN_LENGTH
        self._aim: Aim | None = None

    @property
    def n_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self._keys, *self._values))

    def clear(self) -> None:
        """Gives the memory back."""
        self._keys, self._values = [], []
        self._rows, self._length = MIN_ROWS, MIN_LENGTH

    def aim(self, aim: Aim) -> None:
        self._reserve(aim.last, aim.length)
        self._aim = aim

    def copy_rows(self, sources: list[int], targets: list[int], length: int) -> None:
        """The first ``length`` positions of each source; no row is both source and target."""
        self._reserve(max(targets) + 1, self._length)
        for tensor in (*self._keys, *self._values):
            tensor[targets, :, :length] = tensor[sources, :, :length]

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        aim = self._aim
        assert aim is not None
        if layer_idx == len(self._keys):
            self._keys.append(self._empty(key_states))
            self._values.append(self._empty(value_states))
        return (
            _write(self._keys[layer_idx], key_states, aim),
            _write(self._values[layer_idx], value_states, aim),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if self._aim is None else self._aim.length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.get_seq_length(), 0

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        _, heads, _, head_dim = like.shape
        return like.new_zeros(self._rows, heads, self._length, head_dim)

    def _reserve(self, rows: int, length: int) -> None:
        if rows <= self._rows and length <= self._length:
            return
        old_rows, old_length = self._rows, self._length
        while self._rows < rows:
            self._rows *= 2
        while self._length < length:
            self._length *= 2
        for tensors in (self._keys, self._values):
            for i, old in enumerate(tensors):
                grown = self._empty(old)
                grown[:old_rows, :, :old_length] = old
                tensors[i] = grown


def _write(tensor: torch.Tensor, states: torch.Tensor, aim: Aim) -> torch.Tensor:
    rows, positions = aim.cell
    if aim.token is None:
        tensor[rows, :, positions] = states[:, :, 0]
    else:
        of_row, of_column = aim.token
        tensor[rows, :, positions] = states[of_row, :, of_column]
    return tensor[aim.first : aim.last, :, : aim.length]
