"""The weights at Tinker's service: one LoRA training client, and its steps.

A step is one ``forward_backward`` and one ``optim_step``, sent together so that they share a clock
cycle of the service, then a sampling client of the new weights. Captured log-probabilities are
compared with those that the service computed before the step counts as made: when they disagree
the run ends, and the last checkpoint is from before.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, MissingExtraError
from ...trainer.advantage import Advantages, advantages
from ...trainer.agree import HALF, Agreement, Bounds, compare, ensure
from ...trainer.loss import token_weights
from ...trainer.optimiser import share
from ...trainer.setting import TrainSetting
from ...trainer.step import StepReport
from ...trajectory.row import Row
from .datum import columns, datum, trainer_logprobs
from .setting import TinkerSetting

LOSSES = "elementwise_loss"


@dataclasses.dataclass
class Saved:
    """Where a run can go on."""

    state: str
    steps: int
    version: str


class Weights:
    def __init__(self, client: Any, types: Any, tinker: TinkerSetting, train: TrainSetting) -> None:
        self.client, self._types = client, types
        self._tinker, self._train = tinker, train
        self.steps, self.version = 0, "0"
        self._saved: Saved | None = None

    @classmethod
    async def open(
        cls, base_model: str, tinker: TinkerSetting, train: TrainSetting, saved: Saved | None
    ) -> Weights:
        sdk = import_sdk()
        where = {"base_url": tinker.base_url} if tinker.base_url else {}
        try:
            service = sdk.ServiceClient(**where)
            if saved is None:
                client = await service.create_lora_training_client_async(
                    base_model=base_model, rank=tinker.rank, seed=train.seed
                )
            else:
                resume = service.create_training_client_from_state_with_optimizer_async
                client = await resume(saved.state)
        except sdk.TinkerError as error:
            raise ConfigError(
                f"Tinker's service gave no training client ({error}): look at tinker.base_url "
                f"({tinker.base_url or 'that of the SDK'}), TINKER_API_KEY and tinker.base_model"
            ) from error
        weights = cls(client, sdk.types, tinker, train)
        if saved is not None:
            weights.steps, weights.version = saved.steps, saved.version
        return weights

    async def sampler(self) -> Any:
        return await self.client.save_weights_and_get_sampling_client_async()

    async def save(self, name: str) -> Saved:
        """Once a step: servers that do not know ``overwrite`` never answer a name's second save."""
        if self._saved is None or self._saved.steps != self.steps:
            future = await self.client.save_state_async(name, overwrite=True)
            answer = await future.result_async()
            self._saved = Saved(answer.path, self.steps, self.version)
        return self._saved

    async def step(self, rows: Sequence[Row]) -> StepReport:
        """Groups of equal rewards are left out; with nothing to learn the weights stay."""
        started = time.perf_counter()
        judged = advantages(rows, scale_by_std=self._train.scale_by_std)
        agreement, loss, rate = Agreement(tokens=0), 0.0, self._rate()
        if judged.rows:
            agreement, loss = await self._update(judged, rate)
        self.steps += 1
        if judged.rows:
            self.version = str(self.steps)
        return self._report(judged, agreement, loss, rate, time.perf_counter() - started)

    def _rate(self) -> float:
        return self._train.lr * share(self.steps, self._train)

    async def _update(self, judged: Advantages, rate: float) -> tuple[Agreement, float]:
        data = self._data(judged)
        config = self._tinker.loss_config or None
        forward = await self.client.forward_backward_async(data, self._tinker.loss, config)
        betas = self._train.betas
        adam = self._types.AdamParams(
            learning_rate=rate,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=self._train.weight_decay,
            grad_clip_norm=self._train.max_grad_norm,
        )
        optimised = await self.client.optim_step_async(adam)
        answer = await forward.result_async()
        await optimised.result_async()
        computed = trainer_logprobs(answer.loss_fn_outputs, judged.rows)
        agreement = compare(judged.rows, computed, self.version)
        ensure(agreement, self._bounds(), self.version)
        return agreement, _loss(answer)

    def _data(self, judged: Advantages) -> list[Any]:
        weights = token_weights(judged.rows, self._train)
        return [
            datum(self._types, columns(row, own * np.float32(weight)))
            for row, own, weight in zip(judged.rows, judged.tokens, weights, strict=True)
        ]

    def _bounds(self) -> Bounds:
        most = self._tinker.max_difference
        return HALF if most is None else Bounds(max=most)

    def _report(
        self, judged: Advantages, agreement: Agreement, loss: float, rate: float, seconds: float
    ) -> StepReport:
        tokens = sum(row.n_trained for row in judged.rows)
        return StepReport(
            step=self.steps,
            version=self.version,
            reward=judged.reward,
            rollouts=len({row.rollout_id for row in judged.rows}),
            rows=len(judged.rows),
            tokens=tokens,
            groups=judged.groups,
            skipped_groups=judged.skipped_groups,
            skipped_rollouts=judged.skipped_rollouts,
            stale_tokens=tokens - agreement.tokens,
            padding=0.0,
            loss=loss,
            grad_norm=0.0,
            lr=rate,
            agreement=agreement,
            measures={},
            seconds=seconds,
        )


def _loss(answer: Any) -> float:
    """The service's sum, or that of its parts: servers tell the one or the other."""
    if "loss:sum" in answer.metrics:
        return float(answer.metrics["loss:sum"])
    parts = [output[LOSSES] for output in answer.loss_fn_outputs if LOSSES in output]
    return float(sum(part.to_numpy().sum() for part in parts))


def import_sdk() -> Any:
    try:
        import tinker  # type: ignore[import-not-found]
    except ImportError:
        raise MissingExtraError("tinker", "backend tinker") from None
    return tinker
