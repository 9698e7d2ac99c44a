"""Figures on their way to TensorBoard and Weights & Biases."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.trainer import config as configs
from agentcore_rl_toolkit.trainer.tracker import Trackers

RECORD = {"at": 1.0, "kind": "step", "step": 3, "reward": 0.5, "seconds": {"train": 2.0}, "x": "y"}


def make(**track: Any) -> configs.TrainConfig:
    return configs.build(
        {
            "agent": {"arn": "arn"},
            "data": {"train": "rows"},
            "model": {"path": "model"},
            "track": track,
        }
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_the_numbers_of_a_line(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Trackers(make(tensorboard=True), tmp_path) as trackers:
        trackers.put(RECORD)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"step/reward", "step/seconds/train"}
    assert [(e.step, e.value) for e in events.Scalars("step/reward")] == [(3, 0.5)]


class Recorder(types.ModuleType):
    """The two calls of ``wandb`` that are used; the service cannot be reached from a test."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__("wandb")
        self.given: dict[str, Any] = {}
        self.logged: list[dict[str, Any]] = []
        self.finished = 0
        self._broken = broken

    def init(self, **options: Any) -> Recorder:
        self.given = options
        return self

    def log(self, figures: dict[str, Any]) -> None:
        if self._broken:
            raise ConnectionError("no network")
        self.logged.append(figures)

    def finish(self) -> None:
        self.finished += 1


def test_wandb_gets_the_configuration_and_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with Trackers(make(wandb={"project": "math"}), tmp_path) as trackers:
        trackers.put(RECORD)
    assert wandb.given["project"] == "math"
    assert wandb.given["config"]["model"]["path"] == "model"
    assert wandb.logged == [{"step/reward": 0.5, "step/seconds/train": 2.0, "step": 3}]
    assert wandb.finished == 1


def test_a_tracker_that_fails_is_dropped_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", Recorder(broken=True))
    with Trackers(make(wandb={}), tmp_path) as trackers:
        trackers.put(RECORD)
        trackers.put(RECORD)
    assert [r.message for r in caplog.records] == ["tracker=<WandB> | dropped"]


def test_a_package_that_is_missing_stops_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        Trackers(make(wandb={}), tmp_path)
