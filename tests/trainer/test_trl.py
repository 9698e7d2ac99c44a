"""The same rows give the same loss and gradients as TRL's GRPO. Skipped where TRL is missing."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from agentcore_rl_toolkit.trainer import Trainer, TrainSetting, advantages
from agentcore_rl_toolkit.trajectory.row import Row

from .conftest import aged, make_model
from .test_step import LR, gradients

pytestmark = pytest.mark.filterwarnings("ignore")

CAP = 1.3


def trl_loss(model: Any, rows: list[Row], loss_type: str, constant: int) -> torch.Tensor:
    """TRL's own loss; only its forward pass, which is made for its patched models, is replaced."""
    trl = pytest.importorskip("trl")
    judged = advantages(rows)
    width = max(row.n_tokens for row in judged.rows)
    ids = torch.zeros(len(judged.rows), width, dtype=torch.long)
    present, trained = torch.zeros_like(ids), torch.zeros_like(ids)
    captured = torch.zeros(ids.shape)
    advantage = torch.zeros(len(judged.rows))
    for i, (row, tokens) in enumerate(zip(judged.rows, judged.tokens, strict=True)):
        n = row.n_tokens
        ids[i, :n] = torch.from_numpy(row.token_ids.astype("int64"))
        present[i, :n] = 1
        trained[i, :n] = torch.from_numpy(row.loss_mask.astype("int64"))
        captured[i, :n] = torch.from_numpy(row.logprobs)
        advantage[i] = float(tokens[row.loss_mask > 0][0])
    logits = model(input_ids=ids, attention_mask=present).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    old = logprobs.detach()
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": present[:, :1],
        "completion_ids": ids[:, 1:],
        "completion_mask": present[:, 1:],
        "tool_mask": trained[:, 1:],
        "advantages": advantage,
        "old_per_token_logps": old,
        "importance_sampling_ratio": torch.exp(old - captured[:, 1:]).clamp(max=CAP),
        "num_items_in_batch": trained.sum(),
    }
    stub = MagicMock()
    stub._get_per_token_logps_and_entropies.return_value = (logprobs, torch.zeros_like(old), None)
    settings = {
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "beta": 0.0,
        "loss_type": loss_type,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": constant,
        "_entropy_bonus_enabled": False,
        "aux_loss_enabled": False,
    }
    for name, value in settings.items():
        setattr(stub, name, value)
    stub.args.delta = None
    stub.accelerator.gather.side_effect = lambda value: value
    loss: torch.Tensor = trl.GRPOTrainer._compute_loss(stub, model, inputs)
    return loss


@pytest.mark.parametrize(
    ("loss_type", "normalise"),
    [("grpo", "rollout"), ("bnpo", "token"), ("dr_grpo", "constant")],
    ids=["per rollout", "per token", "over a constant"],
)
def test_loss_gradients_equal_those_of_trl(
    loss_type: str, normalise: Any, sampled: list[Row]
) -> None:
    rows, constant = aged(sampled), 64
    model = make_model()
    other = make_model()
    with torch.no_grad():
        for parameter in (*model.parameters(), *other.parameters()):
            parameter.add_(0.02 * torch.sin(torch.arange(parameter.numel())).view_as(parameter))
    trl_loss(other, rows, loss_type, constant).backward()
    setting = TrainSetting(lr=LR, normalise=normalise, constant_tokens=constant, max_importance=CAP)
    found = gradients(Trainer(model, setting), rows)
    for name, parameter in other.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(found[name], parameter.grad, rtol=1e-3, atol=1e-6), name
