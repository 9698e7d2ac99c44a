"""Figures on their way to TensorBoard and Weights & Biases, rollouts to OpenTelemetry."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.collect.record import Rollout, Timings
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.rollout import Failure, FailureKind
from agentcore_rl_toolkit.trainer import config as configs
from agentcore_rl_toolkit.trainer.span import Spans
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


def rolled(failure: Failure | None = None) -> Rollout:
    return Rollout(
        task=0,
        sample=1,
        group_id="train-3-0",
        rollout_id="train-3-0-1",
        session_id="s",
        rows=(),
        reward=None if failure else 1.0,
        result=None,
        failure=failure,
        attempts=2,
        turns=2,
        timings=Timings(
            queue_s=1.0, start_s=0.5, agent_s=2.0, model_s=3.0, reward_s=0.5, finish_s=0.25
        ),
        metrics={},
    )


def test_a_rollout_becomes_a_span_with_its_stages_end_to_end() -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    spans = Spans("run", kept)
    spans.rollout("train", 3, rolled())
    spans.rollout("train", 3, rolled(Failure(FailureKind.TIMEOUT, "too slow")))
    spans._provider.force_flush()
    stages, whole = kept.get_finished_spans()[:6], kept.get_finished_spans()[6]
    assert [s.name for s in stages] == ["queue", "start", "agent", "model", "reward", "store"]
    assert {s.parent.span_id for s in stages if s.parent} == {whole.context.span_id}
    assert whole.parent is None
    took = [round(((s.end_time or 0) - (s.start_time or 0)) / 1e9, 3) for s in (*stages, whole)]
    assert took == [1.0, 0.5, 2.0, 3.0, 0.5, 0.25, 7.25]
    assert dict(whole.attributes or {})["art.reward"] == 1.0
    failed = kept.get_finished_spans()[-1]
    assert not failed.status.is_ok
    assert failed.status.description == "too slow"
    assert dict(failed.attributes or {})["art.failure"] == "timeout"
    spans.close()


def test_missing_exporter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(ConfigError, match="opentelemetry-exporter-otlp-proto-http"):
        Trackers(make(opentelemetry=True), tmp_path)
