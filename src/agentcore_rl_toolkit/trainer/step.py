"""One step of training: rows with rewards in, changed weights and a report out.

Order of a step: advantages by group, log-probabilities under the weights as they are (``old``),
the check against what was captured, then one or more optimiser steps over shares of the rollouts.
Dropout is off throughout: it would make the trained policy another one than the served.

The same rows in the same order, the same seed and the same weights give the same step.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from ..errors import ConfigError, ContractError
from ..trajectory.row import Row
from .advantage import Advantages, advantages
from .agree import Agreement, bounds_of, compare, ensure
from .logprob import trained_logprobs
from .loss import Measures, Terms, surrogate, token_weights
from .optimiser import Optimiser, with_lora
from .pack import Item, MicroBatch, pack
from .setting import TrainSetting

Changing = Callable[[str], AbstractContextManager[None]]
"""Entered around every change of the weights, with the version they have afterwards."""


@dataclasses.dataclass
class StepReport:
    step: int
    version: str
    """Of the weights after the step; unchanged when nothing could be learnt."""
    reward: float
    rollouts: int
    rows: int
    tokens: int
    """Trained in this step."""
    groups: int
    skipped_groups: int
    skipped_rollouts: int
    stale_tokens: int
    """Trained tokens that other weights than the current ones sampled."""
    padding: float
    """Share of the computed tokens that was padding."""
    loss: float
    grad_norm: float
    lr: float
    agreement: Agreement
    measures: dict[str, float]
    seconds: float


@dataclasses.dataclass
class _Sums:
    loss: float = 0.0
    grad_norm: float = 0.0
    lr: float = 0.0
    updates: int = 0
    cells: int = 0
    filled: int = 0
    measures: Measures = dataclasses.field(default_factory=Measures)


class Trainer:
    def __init__(
        self, model: Any, setting: TrainSetting, *, reference: Any = None, version: str = "0"
    ) -> None:
        self.setting = setting
        self.model = with_lora(model, setting)
        """Build the engine on this one: it may have got adapters."""
        self.reference = reference
        if setting.kl and reference is None and setting.lora is None:
            raise ConfigError("train.kl needs a reference model: give one, or use LoRA")
        if setting.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        # checkpointing works in training mode only; there is no dropout to switch on by it
        self.model.train(setting.gradient_checkpointing)
        self._refuse_dropout()
        self.optimiser = Optimiser(self.model, setting)
        self.rng = np.random.default_rng(setting.seed)
        self.steps = 0
        self.version = version
        parameter = next(self.model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype

    def step(self, rows: Sequence[Row], *, changing: Changing | None = None) -> StepReport:
        """``rows`` are whole groups. DisagreementError when they were not sampled as they say."""
        started = time.perf_counter()
        judged = advantages(rows, scale_by_std=self.setting.scale_by_std)
        items = [Item(row, adv) for row, adv in zip(judged.rows, judged.tokens, strict=True)]
        for item in items:
            if item.row.loss_mask[0]:
                raise ContractError(f"rollout {item.row.rollout_id} trains a row's first token")
        if self.setting.kl:
            self._fill_reference(items)
        sums = _Sums()
        shares = self._shares(items)
        if len(shares) > 1:
            self._fill_old(items)
        agreement = Agreement(tokens=0)
        for number, share in enumerate(shares, 1):
            self._accumulate(share, sums)
            if number == 1:
                # before anything is changed
                agreement = self._check(items)
            last = number == len(shares)
            version = str(self.steps + 1) if last else f"{self.steps}+{number}/{len(shares)}"
            with changing(version) if changing is not None else nullcontext():
                sums.grad_norm, sums.lr = self.optimiser.step(self.steps)
            self.version = version
            sums.updates += 1
        self.steps += 1
        return self._report(judged, items, agreement, sums, time.perf_counter() - started)

    # --- parts --------------------------------------------------------------------------------

    def _shares(self, items: list[Item]) -> list[list[Item]]:
        """The items of each optimiser step: whole rollouts, in a new order every epoch."""
        by_rollout: dict[str, list[Item]] = {}
        for item in items:
            by_rollout.setdefault(item.row.rollout_id, []).append(item)
        rollouts = list(by_rollout.values())
        shares: list[list[Item]] = []
        for _ in range(self.setting.epochs):
            order = self.rng.permutation(len(rollouts))
            for part in np.array_split(order, self.setting.minibatches):
                if len(part):
                    shares.append([item for i in part for item in rollouts[i]])
        return shares

    def _accumulate(self, items: list[Item], sums: _Sums) -> None:
        weights = token_weights([item.row for item in items], self.setting)
        for item, weight in zip(items, weights, strict=True):
            item.weight = weight
        for batch in pack(items, self.setting.batch_tokens, self.device):
            new = trained_logprobs(self.model, batch, self.setting.temperature)
            if batch.items[0].old is None:
                _store(batch, new, "old")
            loss, measures = surrogate(self._terms(batch, new), self.setting)
            loss.backward()  # type: ignore[no-untyped-call]
            sums.loss += float(loss.detach())
            sums.measures.add(measures)
            sums.cells += batch.token_ids.numel()
            sums.filled += int(batch.attention_mask.sum())

    def _terms(self, batch: MicroBatch, new: torch.Tensor) -> Terms:
        references = [item.reference for item in batch.items]
        return Terms(
            new=new,
            old=batch.flat([_given(item.old) for item in batch.items]),
            captured=batch.flat([item.row.logprobs for item in batch.items]),
            advantage=batch.flat([item.advantage for item in batch.items]),
            weight=batch.weights(),
            reference=batch.flat([_given(r) for r in references]) if self.setting.kl else None,
        )

    @torch.no_grad()
    def _fill_old(self, items: list[Item]) -> None:
        for batch in pack(items, self.setting.batch_tokens, self.device):
            values = trained_logprobs(self.model, batch, self.setting.temperature)
            _store(batch, values, "old")

    @torch.no_grad()
    def _fill_reference(self, items: list[Item]) -> None:
        """The given model, or this one with its adapters switched off."""
        own = self.reference is None
        with self.model.disable_adapter() if own else nullcontext():
            model = self.model if own else self.reference
            for batch in pack(items, self.setting.batch_tokens, self.device):
                values = trained_logprobs(model, batch, self.setting.temperature)
                _store(batch, values, "reference")

    def _check(self, items: list[Item]) -> Agreement:
        rows, old = [i.row for i in items], [_given(i.old) for i in items]
        agreement = compare(rows, old, self.version)
        ensure(agreement, bounds_of(self.dtype), self.version)
        return agreement

    def _refuse_dropout(self) -> None:
        used = [m for m in self.model.modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]
        if used and self.model.training:
            raise ConfigError(
                "the model has dropout, which gradient checkpointing would switch on: set its "
                "dropout to 0, or train without gradient checkpointing"
            )

    def _report(
        self,
        judged: Advantages,
        items: list[Item],
        agreement: Agreement,
        sums: _Sums,
        seconds: float,
    ) -> StepReport:
        tokens = sum(item.row.n_trained for item in items)
        return StepReport(
            step=self.steps,
            version=self.version,
            reward=judged.reward,
            rollouts=len({item.row.rollout_id for item in items}),
            rows=len(items),
            tokens=tokens,
            groups=judged.groups,
            skipped_groups=judged.skipped_groups,
            skipped_rollouts=judged.skipped_rollouts,
            stale_tokens=tokens - agreement.tokens,
            padding=1 - sums.filled / sums.cells if sums.cells else 0.0,
            loss=sums.loss / max(1, sums.updates),
            grad_norm=sums.grad_norm,
            lr=sums.lr,
            agreement=agreement,
            measures=sums.measures.means(),
            seconds=seconds,
        )


def _store(batch: MicroBatch, values: torch.Tensor, name: str) -> None:
    for item, own in zip(batch.items, batch.split(values), strict=True):
        setattr(item, name, own)


def _given(values: Any) -> Any:
    assert values is not None
    return values
