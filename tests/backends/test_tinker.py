"""The Tinker backend: what is sent to the service, against a stand-in with the SDK's signatures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentcore_rl_toolkit.backends.tinker import TinkerSetting, columns, service
from agentcore_rl_toolkit.backends.tinker.loop import TinkerStand, _read
from agentcore_rl_toolkit.backends.tinker.service import Weights
from agentcore_rl_toolkit.backends.tinker.setting import check
from agentcore_rl_toolkit.errors import ConfigError, ContractError
from agentcore_rl_toolkit.trainer import DisagreementError, TrainSetting
from agentcore_rl_toolkit.trainer.config import build
from agentcore_rl_toolkit.trajectory.row import Row, TurnSpan

NEEDED: dict[str, Any] = {
    "agent": {"arn": "arn"},
    "data": {"train": "t.jsonl"},
    "model": {"path": "m"},
    "backend": "tinker",
}


def make_row(rollout: str, reward: float, *, turns: int = 1, version: str = "0") -> Row:
    """Three ids of prompt, then turns of two sampled ids, with one id of a tool between them."""
    ids, mask, index, spans = [1, 2, 3], [0, 0, 0], [-1, -1, -1], []
    for turn in range(turns):
        if turn:
            ids, mask, index = [*ids, 9], [*mask, 0], [*index, -1]
        spans.append(TurnSpan(turn, f"{rollout}/{turn}", len(ids), len(ids) + 2, "stop"))
        ids, mask, index = [*ids, 5, 6], [*mask, 1, 1], [*index, turn, turn]
    return Row(
        token_ids=np.array(ids, np.int32),
        loss_mask=np.array(mask, np.uint8),
        logprobs=np.array(mask, np.float32) * np.float32(-0.5),
        turn_index=np.array(index, np.int32),
        turns=spans,
        rollout_id=rollout,
        session_id=rollout,
        group_id="g",
        reward=reward,
        weight_versions=[(version, span.start, span.end) for span in spans],
    ).check()


@dataclasses.dataclass
class Future:
    value: Any

    async def result_async(self) -> Any:
        return self.value


class Tensor:
    """``tinker.TensorData``."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    from_numpy = classmethod(lambda cls, values: cls(values))

    def to_numpy(self) -> Any:
        return self.values


class Service:
    """``tinker.TrainingClient``; its trainer says the log-probabilities that ``says`` gives."""

    def __init__(self, says: float = -0.5) -> None:
        self.says = says
        self.calls: list[Any] = []
        self.names: list[str] = []

    async def forward_backward_async(
        self, data: list[Any], loss_fn: str, loss_fn_config: dict[str, float] | None = None
    ) -> Future:
        self.calls.append(("forward_backward", data, loss_fn, loss_fn_config))
        outputs = [
            {"logprobs": Tensor(np.full(len(one.model_input), self.says, np.float32))}
            for one in data
        ]
        return Future(SimpleNamespace(loss_fn_outputs=outputs, metrics={"loss:sum": 0.25}))

    async def optim_step_async(self, adam_params: Any) -> Future:
        self.calls.append(("optim_step", adam_params))
        return Future(None)

    async def save_weights_and_get_sampling_client_async(self) -> Any:
        return SimpleNamespace(of=len(self.calls))

    async def save_state_async(
        self, name: str, ttl_seconds: int | None = None, overwrite: bool = False
    ) -> Future:
        self.names.append(name)
        return Future(SimpleNamespace(path=f"tinker://run/weights/{name}"))


TYPES = SimpleNamespace(
    Datum=lambda model_input, loss_fn_inputs: SimpleNamespace(
        model_input=model_input, loss_fn_inputs=loss_fn_inputs
    ),
    ModelInput=SimpleNamespace(from_ints=list),
    TensorData=Tensor,
    AdamParams=lambda **params: params,
)


def make_weights(service: Service, train: TrainSetting | None = None, **setting: Any) -> Weights:
    return Weights(service, TYPES, TinkerSetting(**setting), train or TrainSetting(lr=0.5))


def test_everything_is_shifted_by_one_and_zero_where_nothing_is_trained() -> None:
    row = make_row("r", 1.0, turns=2)
    one = columns(row, np.full(row.n_tokens, 2.0, np.float32))
    assert one.inputs.tolist() == [1, 2, 3, 5, 6, 9, 5]
    assert one.targets.tolist() == [2, 3, 5, 6, 9, 5, 6]
    assert one.mask.tolist() == [0, 0, 1, 1, 0, 1, 1]
    assert one.advantages.tolist() == [0, 0, 2, 2, 0, 2, 2]
    assert one.logprobs.tolist() == [0, 0, -0.5, -0.5, 0, -0.5, -0.5]


def test_advantages_of_another_length_are_refused() -> None:
    with pytest.raises(ContractError, match="3 advantages for 5 tokens"):
        columns(make_row("r", 1.0), np.zeros(3, np.float32))


async def test_a_step_is_one_forward_backward_and_one_optimiser_step() -> None:
    service = Service()
    weights = make_weights(service, loss="ppo", loss_config={"clip_high_threshold": 1.3})
    report = await weights.step([make_row("a", 1.0), make_row("b", 0.0)])
    (_, data, loss, config), (_, adam) = service.calls
    assert (loss, config) == ("ppo", {"clip_high_threshold": 1.3})
    assert adam["learning_rate"] == 0.5
    assert len(data) == 2
    assert (report.step, report.version, report.tokens) == (1, "1", 4)
    assert report.agreement.max == 0.0
    assert report.loss == 0.25


@pytest.mark.parametrize("turns", [1, 3])
async def test_a_rollout_weighs_the_same_however_long_it_is(turns: int) -> None:
    service = Service()
    await make_weights(service).step([make_row("a", 1.0, turns=turns), make_row("b", 0.0)])
    first, second = (d.loss_fn_inputs["advantages"].values.sum() for d in service.calls[0][1])
    assert first == pytest.approx(-second)
    assert first == pytest.approx(0.5, rel=1e-4)


async def test_with_nothing_to_learn_the_weights_stay() -> None:
    service = Service()
    weights = make_weights(service)
    report = await weights.step([make_row("a", 1.0), make_row("b", 1.0)])
    assert service.calls == []
    assert (report.step, report.version, report.skipped_groups) == (1, "0", 1)


async def test_a_trainer_that_disagrees_ends_the_run() -> None:
    weights = make_weights(Service(says=-0.9))
    with pytest.raises(DisagreementError, match="disagree"):
        await weights.step([make_row("a", 1.0), make_row("b", 0.0)])


async def test_tokens_of_older_weights_are_trained_and_not_compared() -> None:
    weights = make_weights(Service(says=-0.9))
    rows = [make_row("a", 1.0, version="older"), make_row("b", 0.0, version="older")]
    report = await weights.step(rows)
    assert report.stale_tokens == 4


class Engine:
    def __init__(self) -> None:
        self.used: list[str | None] = []

    def use(self, sampler: Any, version: str | None = None) -> None:
        self.used.append(version)


async def test_new_weights_are_served_and_a_checkpoint_names_them(tmp_path: Path) -> None:
    engine: Any = Engine()
    collector: Any = None
    stand = TinkerStand(make_weights(Service()), engine, collector)
    for _ in range(3):
        rows = [make_row("a", 1.0, version="x"), make_row("b", 0.0, version="x")]
        await stand.step(rows)
        await stand.save(tmp_path, {"history": [[0, 0.5]]}, 2)
    assert engine.used == ["1", "2", "3"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-000002", "step-000003"]
    saved, extra = _read(tmp_path / "step-000003")
    assert dataclasses.astuple(saved) == ("tinker://run/weights/step-000003", 3, "3")
    assert extra == {"history": [[0, 0.5]]}


async def test_a_state_is_saved_once_at_the_service(tmp_path: Path) -> None:
    service, engine = Service(), Engine()
    any_engine: Any = engine
    any_collector: Any = None
    stand = TinkerStand(make_weights(service), any_engine, any_collector)
    await stand.step([make_row("a", 1.0), make_row("b", 0.0)])
    await stand.save(tmp_path, {}, 2)
    await stand.save(tmp_path, {"history": [[1, 0.5]]}, 2)
    assert service.names == ["step-000001"]
    assert _read(tmp_path / "step-000001")[1] == {"history": [[1, 0.5]]}


def test_a_checkpoint_of_another_backend_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trainer.json").write_text(json.dumps({"format": 1, "steps": 3}))
    with pytest.raises(ConfigError, match="no checkpoint of a run at Tinker"):
        _read(tmp_path)


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"tinker": {"los": "ppo"}}, "did you mean 'loss'"),
        ({"tinker": {"loss": "dpo"}}, "tinker.loss"),
        ({"tinker": {"rank": "wide"}}, r"tinker\.rank: Expected `int`"),
        ({"train": {"minibatches": 2}}, "train.minibatches has no effect"),
        ({"train": {"lora": {"rank": 8}}}, "the rank is tinker.rank"),
        ({"train": {"clip_high": 0.3}}, "bounds of the loss are tinker.loss_config"),
        ({"rollout": {"sampling": {"temperature": 0.7}}}, "temperature must be 1.0"),
        ({"rollout": {"sampling": {"top_k": 20}}}, "top_k must be -1"),
    ],
)
def test_what_the_service_cannot_honour_is_refused(section: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        check(build({**NEEDED, **section}))


def test_defaults_are_accepted() -> None:
    assert check(build(NEEDED)) == TinkerSetting()


class Broken(Exception):
    """What the SDK raises for whatever the service refuses."""


async def test_a_service_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(**_: Any) -> Any:
        raise Broken("Connection error.")

    sdk = SimpleNamespace(ServiceClient=connect, TinkerError=Broken, types=None)
    monkeypatch.setattr(service, "import_sdk", lambda: sdk)
    setting = TinkerSetting(base_url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"Connection error.*127\.0\.0\.1:1.*TINKER_API_KEY"):
        await Weights.open("base", setting, TrainSetting(), None)
