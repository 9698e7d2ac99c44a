from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from agentcore_rl_toolkit.engine import Engine, twin
from agentcore_rl_toolkit.errors import ConfigError, ContractError
from agentcore_rl_toolkit.trainer import DisagreementError, Trainer, TrainSetting, advantages
from agentcore_rl_toolkit.trainer.optimiser import NotFiniteError, share
from agentcore_rl_toolkit.trainer.setting import LoraSetting
from agentcore_rl_toolkit.trajectory.row import Row, TurnSpan

from .conftest import aged, make_model, sample_rows

LR = 1e-3


def gradients(trainer: Trainer, rows: list[Row]) -> dict[str, torch.Tensor]:
    """Of one step, taken before the optimiser would use them."""
    found: dict[str, torch.Tensor] = {}

    def keep(_: int) -> tuple[float, float]:
        for name, parameter in trainer.model.named_parameters():
            if parameter.grad is not None:
                found[name] = parameter.grad.clone()
        trainer.optimiser.zero_grad()
        return 0.0, 0.0

    trainer.optimiser.step = keep  # type: ignore[method-assign]
    trainer.step(rows)
    return found


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 0.0) -> bool:
    return a.keys() == b.keys() and all(
        torch.allclose(a[n], b[n], rtol=tolerance, atol=tolerance) for n in a
    )


def reference_loss(
    model: Any, rows: list[Row], setting: TrainSetting, old_model: Any, reference: Any = None
) -> torch.Tensor:
    """One token at a time, one row at a time, as the formula is written."""
    judged = advantages(rows, scale_by_std=setting.scale_by_std)
    per_rollout: dict[str, list[torch.Tensor]] = {}
    for row, advantage in zip(judged.rows, judged.tokens, strict=True):
        ids = torch.tensor([row.token_ids.tolist()])
        new = torch.log_softmax(model(ids).logits[0] / setting.temperature, -1)
        with torch.no_grad():
            old = torch.log_softmax(old_model(ids).logits[0] / setting.temperature, -1)
        for t in range(1, row.n_tokens):
            if not row.loss_mask[t]:
                continue
            token = int(row.token_ids[t])
            log_new, log_old = new[t - 1, token], old[t - 1, token]
            ratio = torch.exp(log_new - log_old)
            a = float(advantage[t])
            low, high = 1 - setting.clip_low, 1 + setting.clip_high
            gain = min(ratio * a, torch.clamp(ratio, low, high) * a)
            correction = min(
                math.exp(float(log_old) - float(row.logprobs[t])), setting.max_importance
            )
            loss = -correction * gain
            if setting.kl:
                log_reference = torch.log_softmax(reference(ids).logits[0], -1)[t - 1, token]
                gap = log_reference.detach() - log_new
                loss = loss + setting.kl * (torch.exp(gap) - gap - 1)
            per_rollout.setdefault(row.rollout_id, []).append(loss)
    if setting.normalise == "token":
        every = [loss for losses in per_rollout.values() for loss in losses]
        return torch.stack(every).mean()
    if setting.normalise == "constant":
        sums = [torch.stack(losses).sum() for losses in per_rollout.values()]
        return torch.stack(sums).mean() / setting.constant_tokens
    return torch.stack([torch.stack(losses).mean() for losses in per_rollout.values()]).mean()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="per rollout"),
        pytest.param({"normalise": "token", "scale_by_std": False}, id="per token, no std"),
        pytest.param({"normalise": "constant", "constant_tokens": 50}, id="over a constant"),
        pytest.param({"kl": 0.3}, id="with a reference"),
        pytest.param({"max_importance": 1.05}, id="tight truncation"),
        pytest.param({"batch_tokens": 64}, id="in many micro-batches"),
    ],
)
def test_loss_and_gradients_equal_a_plain_slow_reference(
    changes: dict[str, Any], sampled: list[Row]
) -> None:
    setting = TrainSetting(lr=LR, **changes)
    model, other = make_model(), make_model()
    # rows from older weights, so that the importance weights are not all one
    rows = aged(sampled)
    with torch.no_grad():
        for parameter in (*model.parameters(), *other.parameters()):
            parameter.add_(0.02 * torch.sin(torch.arange(parameter.numel())).view_as(parameter))
    reference = make_model(5)
    trainer = Trainer(model, setting, reference=reference)
    slow = reference_loss(other, rows, setting, other, reference)
    slow.backward()
    found = gradients(trainer, rows)
    for name, parameter in other.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(found[name], parameter.grad, rtol=1e-3, atol=1e-6), name
    assert trainer.steps == 1


def test_clipping_holds_in_the_second_minibatch_of_a_step(sampled: list[Row]) -> None:
    setting = TrainSetting(lr=0.05, epochs=6, clip_low=0.1, clip_high=0.1)
    report = Trainer(make_model(), setting).step(sampled)
    assert report.measures["clipped"] > 0


def test_the_surrogate_of_clipped_tokens_has_no_gradient() -> None:
    from agentcore_rl_toolkit.trainer.loss import Terms, surrogate

    ratios = torch.tensor([0.5, 0.9, 1.1, 2.0, 0.5, 0.9, 1.1, 2.0])
    advantage = torch.tensor([1.0] * 4 + [-1.0] * 4)
    new = ratios.log().requires_grad_()
    zeros = torch.zeros(8)
    terms = Terms(new, zeros, zeros, advantage, torch.ones(8))
    loss, measures = surrogate(terms, TrainSetting(clip_low=0.2, clip_high=0.5))
    loss.backward()
    assert new.grad is not None
    moved = (new.grad != 0).tolist()
    assert moved == [True, True, True, False, False, True, True, True]
    assert measures.clipped == 2


def test_the_same_rows_and_seed_give_the_same_step(sampled: list[Row]) -> None:
    setting = TrainSetting(lr=LR, minibatches=2, epochs=2, seed=3)
    results = []
    for _ in range(2):
        trainer = Trainer(make_model(), setting)
        trainer.step(sampled)
        results.append(weights(trainer.model))
    assert same(*results)
    other = Trainer(make_model(), TrainSetting(lr=LR, minibatches=2, epochs=2, seed=4))
    other.step(sampled)
    assert not same(results[0], weights(other.model))


def split(row: Row) -> list[Row]:
    """Each turn in a row of its own: the first with its prompt, the second with all before it."""
    parts = []
    for span in row.turns:
        end = span.end
        mask = np.zeros(end, np.uint8)
        mask[span.start : end] = 1
        part = copy.deepcopy(row)
        part.token_ids = row.token_ids[:end].copy()
        part.loss_mask = mask
        part.logprobs = np.where(mask > 0, row.logprobs[:end], 0).astype(np.float32)
        part.turn_index = np.where(mask > 0, row.turn_index[:end], -1).astype(np.int32)
        part.turns = [TurnSpan(*span)]
        part.weight_versions = [v for v in row.weight_versions if span.start <= v[1] < end]
        parts.append(part.check())
    return parts


@pytest.mark.parametrize("normalise", ["rollout", "token", "constant"])
def test_splitting_a_rollout_into_rows_leaves_the_gradient_unchanged(
    normalise: Any, sampled: list[Row]
) -> None:
    setting = TrainSetting(lr=LR, normalise=normalise)
    whole = gradients(Trainer(make_model(), setting), sampled)
    rows = [part for i, row in enumerate(sampled) for part in (split(row) if i % 2 else [row])]
    assert len(rows) > len(sampled)
    cut = gradients(Trainer(make_model(), setting), rows)
    assert all(torch.allclose(whole[n], cut[n], rtol=1e-4, atol=1e-7) for n in whole)
    assert any(g.abs().max() > 1e-4 for g in whole.values())


def test_a_step_raises_the_probability_of_what_was_rewarded(sampled: list[Row]) -> None:
    trainer = Trainer(make_model(), TrainSetting(lr=1e-2))
    rows = copy.deepcopy(sampled)

    def mean_logprob(reward: float) -> float:
        values = []
        for row in rows:
            if row.reward == reward:
                with torch.no_grad():
                    ids = torch.tensor([row.token_ids.tolist()])
                    logprobs = trainer.model(ids).logits[0].log_softmax(-1)
                for t in np.flatnonzero(row.loss_mask):
                    values.append(float(logprobs[t - 1, int(row.token_ids[t])]))
        return float(np.mean(values))

    good, bad = mean_logprob(1.0), mean_logprob(0.0)
    trainer.step(rows)
    assert mean_logprob(1.0) > good
    assert mean_logprob(0.0) < bad


def test_captured_logprobs_agree_before_and_after_an_update_on_shared_tensors() -> None:
    trainer = Trainer(make_model(), TrainSetting(lr=1e-2))
    for number in range(3):
        rows = sample_rows(trainer.model, seed=number, version=trainer.version)
        report = trainer.step(rows)
        assert report.agreement.tokens == report.tokens > 0
        assert report.agreement.max < 1e-5
        assert report.version == str(number + 1)
        assert report.stale_tokens == 0


def test_weights_that_are_not_those_of_the_engine_stop_the_step(sampled: list[Row]) -> None:
    trainer = Trainer(make_model(seed=1), TrainSetting(lr=LR))
    before = weights(trainer.model)
    with pytest.raises(DisagreementError, match="serve the weights it says"):
        trainer.step(sampled)
    assert same(before, weights(trainer.model))


def test_another_temperature_than_the_rollouts_stops_the_step(sampled: list[Row]) -> None:
    with pytest.raises(DisagreementError, match="temperature"):
        Trainer(make_model(), TrainSetting(lr=LR, temperature=0.9)).step(sampled)


def test_tokens_of_older_versions_are_trained_but_not_compared(sampled: list[Row]) -> None:
    report = Trainer(make_model(seed=1), TrainSetting(lr=LR)).step(aged(sampled))
    assert report.agreement.tokens == 0
    assert report.stale_tokens == report.tokens > 0
    assert report.measures["truncated"] > 0


def test_a_batch_without_variance_changes_nothing_and_is_counted(sampled: list[Row]) -> None:
    rows = copy.deepcopy(sampled)
    for row in rows:
        row.reward = 1.0
    trainer = Trainer(make_model(), TrainSetting(lr=LR))
    before = weights(trainer.model)
    report = trainer.step(rows)
    assert (report.skipped_groups, report.rollouts, report.version) == (3, 0, "0")
    assert same(before, weights(trainer.model))
    assert trainer.steps == 1


def test_the_weights_change_only_inside_the_guard(sampled: list[Row]) -> None:
    trainer = Trainer(make_model(), TrainSetting(lr=LR, minibatches=2))
    seen: list[str] = []
    with Engine(twin(trainer.model)) as engine:

        def changing(version: str) -> Any:
            seen.append(version)
            return engine.updating(version)

        trainer.step(sampled, changing=changing)
        assert engine.version == trainer.version == "1"
    assert seen == ["0+1/2", "1"]


def test_a_row_that_trains_its_first_token_is_refused(sampled: list[Row]) -> None:
    rows = copy.deepcopy(sampled)
    rows[0].loss_mask[0] = 1
    with pytest.raises(ContractError, match="first token"):
        Trainer(make_model(), TrainSetting(lr=LR)).step(rows)


def test_a_row_longer_than_the_budget_says_which_setting(sampled: list[Row]) -> None:
    with pytest.raises(ConfigError, match="batch_tokens"):
        Trainer(make_model(), TrainSetting(lr=LR, batch_tokens=4)).step(sampled)


def test_a_gradient_that_is_not_finite_leaves_the_weights(sampled: list[Row]) -> None:
    trainer = Trainer(make_model(), TrainSetting(lr=LR))
    before = weights(trainer.model)
    next(trainer.model.parameters()).register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(NotFiniteError, match="left as they are"):
        trainer.step(sampled)
    assert same(before, weights(trainer.model))


def test_lora_trains_adapters_only_and_the_engine_serves_them() -> None:
    setting = TrainSetting(lr=1e-2, lora=LoraSetting(rank=4), kl=0.1)
    trainer = Trainer(make_model(), setting)
    before = weights(trainer.model)
    trainer.step(sample_rows(trainer.model, version="0"))
    after = weights(trainer.model)
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed
    assert all("lora_" in name for name in changed)
    report = trainer.step(sample_rows(trainer.model, seed=2, version="1"))
    assert report.agreement.tokens > 0
    assert report.agreement.max < 1e-5


def test_gradient_checkpointing_gives_the_same_gradient(sampled: list[Row]) -> None:
    plain = gradients(Trainer(make_model(), TrainSetting(lr=LR)), sampled)
    saving = TrainSetting(lr=LR, gradient_checkpointing=True)
    assert same(plain, gradients(Trainer(make_model(), saving), sampled), 1e-5)


def test_kl_without_a_reference_is_refused() -> None:
    with pytest.raises(ConfigError, match="reference"):
        Trainer(make_model(), TrainSetting(kl=0.1))


def test_schedules_warm_up_and_fall() -> None:
    linear = TrainSetting(steps=11, schedule="linear", warmup_steps=2, final_lr=0.1)
    shares = [share(step, linear) for step in range(12)]
    assert shares[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert shares[10] == shares[11] == pytest.approx(0.1)
    cosine = TrainSetting(steps=11, schedule="cosine", final_lr=0.0)
    assert share(5, cosine) == pytest.approx(0.5)
    assert share(99, TrainSetting()) == 1.0


@pytest.mark.parametrize(
    "bad", [{"lr": 0}, {"clip_low": 1.5}, {"minibatches": 0}, {"schedule": "later"}, {"kl": -1}]
)
def test_bad_settings_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        TrainSetting(**bad)
