"""AdamW with a schedule, gradient clipping, and float32 masters for half-precision weights.

A learning rate of 1e-5 is lost in bfloat16's eight bits: weights would never move. Parameters that
are not float32 get a float32 copy that the optimiser changes and that is rounded back after every
step. The tensors of the model are written in place, so an engine on the same tensors sees them.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import ToolkitError
from .setting import TrainSetting


class NotFiniteError(ToolkitError):
    """The gradient holds NaN or infinity; the weights were not changed."""


class Optimiser:
    def __init__(self, model: Any, setting: TrainSetting) -> None:
        self.setting = setting
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self._masters = [
            p if p.dtype == torch.float32 else p.detach().float().requires_grad_()
            for p in self.parameters
        ]
        decayed = [m for m in self._masters if m.ndim >= 2]
        kept = [m for m in self._masters if m.ndim < 2]
        groups = [
            {"params": decayed, "weight_decay": setting.weight_decay},
            {"params": kept, "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            [g for g in groups if g["params"]], lr=setting.lr, betas=setting.betas
        )

    def step(self, at: int) -> tuple[float, float]:
        """Changes the weights by their gradients; ``at`` is the training step. Norm and rate."""
        lr = self.setting.lr * share(at, self.setting)
        for group in self._adam.param_groups:
            group["lr"] = lr
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                master.grad = parameter.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(self._masters, self.setting.max_grad_norm)
        if not torch.isfinite(norm):
            self.zero_grad()
            raise NotFiniteError(
                f"the gradient norm is {float(norm)}: the weights were left as they are. Lower "
                "train.lr, or look for rewards or log-probabilities out of range"
            )
        self._adam.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self._masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)
        self.zero_grad()
        return float(norm), lr

    def zero_grad(self) -> None:
        for tensor in (*self.parameters, *self._masters):
            tensor.grad = None

    def state(self) -> dict[str, Any]:
        masters = [
            None if m is p else m.detach()
            for p, m in zip(self.parameters, self._masters, strict=True)
        ]
        return {"adam": self._adam.state_dict(), "masters": masters}

    def load_state(self, state: dict[str, Any]) -> None:
        self._adam.load_state_dict(state["adam"])
        with torch.no_grad():
            for master, saved in zip(self._masters, state["masters"], strict=True):
                if saved is not None:
                    master.copy_(saved)


def share(step: int, setting: TrainSetting) -> float:
    """Share of the learning rate at a step, counted from 0."""
    if step < setting.warmup_steps:
        return (step + 1) / (setting.warmup_steps + 1)
    if setting.schedule == "constant":
        return 1.0
    span = max(1, setting.steps - 1 - setting.warmup_steps)
    done = min(1.0, (step - setting.warmup_steps) / span)
    if setting.schedule == "cosine":
        done = (1 - math.cos(math.pi * done)) / 2
    return 1.0 - (1.0 - setting.final_lr) * done


def with_lora(model: Any, setting: TrainSetting) -> Any:
    """The model with adapters as its only trained weights, when so set."""
    if setting.lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    targets = setting.lora.targets
    config = LoraConfig(
        r=setting.lora.rank,
        lora_alpha=setting.lora.alpha,
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)
