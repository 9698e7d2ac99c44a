"""Log-probabilities of the trained tokens of a micro-batch, with gradients.

Logits are computed only for columns in which some row is trained: prompts cost no vocabulary.
The softmax is in float32 whatever the model's own precision, as in the engine.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .pack import MicroBatch


def trained_logprobs(model: Any, batch: MicroBatch, temperature: float = 1.0) -> torch.Tensor:
    """One value per trained token, row by row. The first token of a row cannot be trained."""
    target = batch.trained[:, 1:]
    columns = target.any(dim=0).nonzero().squeeze(1)
    logits = _logits(model, batch, columns)
    keep = target[:, columns]
    logprobs = torch.log_softmax(logits[keep].float() / temperature, dim=-1)
    ids = batch.token_ids[:, 1:][:, columns][keep]
    return logprobs.gather(1, ids.unsqueeze(1)).squeeze(1)


def _logits(model: Any, batch: MicroBatch, columns: torch.Tensor) -> torch.Tensor:
    inputs = {"input_ids": batch.token_ids, "attention_mask": batch.attention_mask}
    if keeps_logits(model):
        logits: torch.Tensor = model(**inputs, logits_to_keep=columns, use_cache=False).logits
        return logits
    logits = model(**inputs, use_cache=False).logits
    return logits[:, columns]


def keeps_logits(model: Any) -> bool:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(base.forward).parameters
