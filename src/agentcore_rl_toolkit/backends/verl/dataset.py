"""The data file as verl's dataset: every row is the payload of a rollout, types preserved.

Imported by verl. The payload travels as JSON text: verl would turn nested values into tensors, and
its own loader gives every row the keys of all others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from ...trainer.tasks import read_rows


class Payloads(Dataset[dict[str, Any]]):
    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        files = [data_files] if isinstance(data_files, str) else list(data_files)
        rows = [row for file in files for row in read_rows(file)]
        self.payloads = [
            json.dumps(row) for row in rows[: max_samples if max_samples > 0 else None]
        ]

    def __len__(self) -> int:
        return len(self.payloads)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "payload": self.payloads[index],
            "index": index,
            # what verl reads of every row, whoever rewards it
            "raw_prompt": [],
            "data_source": "agentcore",
            "reward_model": {"style": "agent", "ground_truth": ""},
            "extra_info": {"index": index},
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
        }
