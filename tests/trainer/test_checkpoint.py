from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentcore_rl_toolkit.engine import load_model
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.trainer import CheckpointError, Trainer, TrainSetting, latest, load, save
from agentcore_rl_toolkit.trainer.setting import LoraSetting
from agentcore_rl_toolkit.trajectory.row import Row

from .conftest import aged, make_model

SETTING = TrainSetting(
    steps=6, lr=1e-2, schedule="linear", warmup_steps=1, minibatches=2, weight_decay=0.1
)


def train(trainer: Trainer, rows: list[Row], steps: int) -> None:
    """On half of the rows, another half every step."""
    for _ in range(steps):
        groups = {f"g{(trainer.steps + i) % 3}" for i in range(2)}
        trainer.step([row for row in aged(rows) if row.group_id in groups])


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(SETTING, id="all weights"),
        pytest.param(TrainSetting(lr=1e-2, minibatches=2, lora=LoraSetting(rank=2)), id="lora"),
    ],
)
def test_resumed_training_is_the_same_as_uninterrupted(
    setting: TrainSetting, tmp_path: Path, sampled: list[Row]
) -> None:
    torch.manual_seed(0)
    whole = Trainer(make_model(), setting)
    train(whole, sampled, 2)
    save(whole, tmp_path, extra={"next_task": 16})
    train(whole, sampled, 2)
    resumed = Trainer(make_model(), setting)
    found = latest(tmp_path)
    assert found is not None
    assert load(resumed, found) == {"next_task": 16}
    assert (resumed.steps, resumed.version) == (2, "2")
    train(resumed, sampled, 2)
    expected = weights(whole)
    for name, value in weights(resumed).items():
        assert torch.equal(value, expected[name]), name


def test_a_checkpoint_is_a_model_folder(tmp_path: Path, sampled: list[Row]) -> None:
    trainer = Trainer(make_model(), SETTING)
    train(trainer, sampled, 1)
    loaded = load_model(save(trainer, tmp_path), device="cpu")
    expected = weights(trainer)
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, expected[name])


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    trainer = Trainer(make_model(), SETTING)
    for step in (1, 2, 3):
        trainer.steps = step
        save(trainer, tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000002", "step-000003"]


@pytest.fixture
def small_disk() -> Iterator[Any]:
    """Calls the function it gives to limit how large a file may get, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("room", [0, 4096, 100_000], ids=["none", "a little", "for the model"])
def test_a_full_disk_leaves_the_last_good_checkpoint_whole(
    room: int, tmp_path: Path, small_disk: Any, sampled: list[Row]
) -> None:
    trainer = Trainer(make_model(), SETTING)
    train(trainer, sampled, 1)
    good = save(trainer, tmp_path)
    expected = weights(trainer)
    train(trainer, sampled, 1)
    small_disk(room)
    try:
        with pytest.raises(CheckpointError, match="Make room"):
            save(trainer, tmp_path)
    finally:
        small_disk(resource.RLIM_INFINITY)
    assert [p.name for p in tmp_path.iterdir()] == [good.name]
    again = Trainer(make_model(), SETTING)
    load(again, good)
    assert all(torch.equal(v, expected[n]) for n, v in weights(again).items())
    save(trainer, tmp_path)
    assert latest(tmp_path) != good


def test_a_checkpoint_cut_off_by_a_crash_is_not_taken_for_one(tmp_path: Path) -> None:
    trainer = Trainer(make_model(), SETTING)
    trainer.steps = 1
    good = save(trainer, tmp_path)
    (tmp_path / ".partial-step-000002").mkdir()
    (tmp_path / "step-000003").mkdir()
    assert latest(tmp_path) == good
    trainer.steps = 2
    assert save(trainer, tmp_path).name == "step-000002"


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    folder = save(Trainer(make_model(), SETTING), tmp_path)
    with pytest.raises(ConfigError, match="LoRA"):
        load(Trainer(make_model(), TrainSetting(lora=LoraSetting())), folder)
    with pytest.raises(ConfigError, match="no checkpoint"):
        load(Trainer(make_model(), SETTING), tmp_path)
