"""Every exporter carries the same golden rollouts over without losing or doubling a token.

A format is a function from a rollout to what its trainer would train, read back from the trainer's
own fields. To add one, write that function and put it into ``FORMATS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from agentcore_rl_toolkit.backends import trl
from agentcore_rl_toolkit.backends.base import Sample, samples
from agentcore_rl_toolkit.backends.slime.sample import fill
from agentcore_rl_toolkit.backends.tinker.datum import columns as tinker_columns
from agentcore_rl_toolkit.backends.verl.fields import rollout_fields
from agentcore_rl_toolkit.collect import Rollout
from agentcore_rl_toolkit.errors import ContractError
from agentcore_rl_toolkit.trajectory.export import write_parquet

from .conftest import beside

golden = beside("golden")
CASES = [pytest.param(one, id=one.name) for one in golden.GOLDEN]


class Trained(NamedTuple):
    """What a trainer makes of one sequence."""

    token_ids: Sequence[int]
    mask: Sequence[int]
    """1 where a token is trained; as long as ``token_ids``."""
    logprobs: Sequence[float]
    rollout_id: str | None
    """None where the trainer is told otherwise which rows are one rollout."""
    reward: float | None


def read_samples(rollout: Rollout) -> list[Trained]:
    return [_joined(s.prompt_ids, s.response_ids, s.mask, s.logprobs, s) for s in samples(rollout)]


def _joined(prompt: Any, response: Any, mask: Any, logprobs: Any, sample: Sample) -> Trained:
    """Of formats in which a prompt is followed by a response."""
    before = [0] * len(prompt)
    ids = [*map(int, prompt), *map(int, response)]
    assert len(response) == len(mask) == len(logprobs)
    mask, logprobs = [*before, *map(int, mask)], [*before, *map(float, logprobs)]
    return Trained(ids, mask, logprobs, sample.rollout_id, sample.reward)


def read_verl(rollout: Rollout) -> list[Trained]:
    found = rollout_fields(rollout, step=3)
    scores = [fields["reward_score"] for fields in found]
    assert all(score is None for score in scores[:-1]), "verl copies the last one to the others"
    return [
        _joined(
            f["prompt_ids"], f["response_ids"], f["response_mask"], f["response_logprobs"], sample
        )._replace(rollout_id=f["extra_fields"]["rollout_id"], reward=scores[-1])
        for f, sample in zip(found, samples(rollout), strict=True)
    ]


def read_trl(rollout: Rollout) -> list[Trained]:
    columns = trl.columns(samples(rollout))
    names = ("prompt_ids", "completion_ids", "env_mask", "logprobs")
    rows = zip(*(columns[name] for name in names), samples(rollout), strict=True)
    return [
        _joined(*row)._replace(rollout_id=name, reward=reward)
        for row, name, reward in zip(rows, columns["rollout_id"], columns["reward"], strict=True)
    ]


def read_parquet(rollout: Rollout, path: Path) -> list[Trained]:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet(rollout.rows, path)
    return [
        Trained(r["token_ids"], r["loss_mask"], r["logprobs"], r["rollout_id"], r["reward"])
        for r in parquet.read_table(path).to_pylist()
    ]


def read_tinker(rollout: Rollout) -> list[Trained]:
    found = []
    for row in rollout.rows:
        one = tinker_columns(row, np.ones(row.n_tokens, np.float32))
        ids = [int(one.inputs[0]), *one.targets.tolist()]
        assert one.inputs.tolist() == ids[:-1]
        mask = [0, *(one.advantages != 0).astype(int).tolist()]
        found.append(Trained(ids, mask, [0.0, *one.logprobs.tolist()], None, row.reward))
    return found


class Blank:
    """The part of slime's ``Sample`` that its bridge needs; the real one is in test_slime.py."""

    class Status:
        COMPLETED, TRUNCATED, ABORTED, FAILED = "completed", "truncated", "aborted", "failed"

    def __init__(self) -> None:
        self.index, self.metadata, self.remove_sample = 5, {}, False


def read_slime(rollout: Rollout) -> list[Trained]:
    found = [one for one in fill(SimpleNamespace(), Blank(), rollout) if not one.remove_sample]
    assert {one.rollout_id for one in found} <= {5}, "slime's own number of the rollout"
    return [
        _joined(
            one.tokens[: -one.response_length],
            one.tokens[-one.response_length :],
            one.loss_mask,
            one.rollout_log_probs,
            sample,
        )._replace(rollout_id=None, reward=one.reward)
        for one, sample in zip(found, samples(rollout), strict=True)
    ]


Format = Callable[[Rollout], list[Trained]]
FORMATS: dict[str, Format] = {
    "samples": read_samples,
    "verl": read_verl,
    "slime": read_slime,
    "trl": read_trl,
    "tinker": read_tinker,
}


@pytest.fixture(params=[*FORMATS, "parquet"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Format:
    if request.param == "parquet":
        return lambda rollout: read_parquet(rollout, tmp_path / "rows.parquet")
    return FORMATS[request.param]


@pytest.mark.parametrize("case", CASES)
def test_every_delivered_token_is_trained_once_with_its_logprob(case: Any, read: Format) -> None:
    found = read(golden.rollout_of(case))
    trained = [
        (i, logprob)
        for one in found
        for i, mask, logprob in zip(one.token_ids, one.mask, one.logprobs, strict=True)
        if mask
    ]
    assert sorted(trained) == case.delivered()


@pytest.mark.parametrize("case", CASES)
def test_nothing_else_has_a_logprob(case: Any, read: Format) -> None:
    for one in read(golden.rollout_of(case)):
        rest = [p for mask, p in zip(one.mask, one.logprobs, strict=True) if not mask]
        assert not any(rest)
        assert not one.mask[0]


@pytest.mark.parametrize("case", CASES)
def test_all_rows_of_a_rollout_share_its_identity_and_reward(case: Any, read: Format) -> None:
    rollout = golden.rollout_of(case)
    for one in read(rollout):
        assert one.rollout_id in (None, rollout.rollout_id)
        assert one.reward == rollout.reward


def test_infrastructure_failures_give_no_sample_and_no_reward(read: Format) -> None:
    (lost,) = [r for g, r in golden.rollouts() if g.name == "infrastructure failed"]
    assert lost.reward is None
    assert read(lost) == []


def test_versions_status_and_turn_rewards_pass_through() -> None:
    by_name = {g.name: rollout_fields(r, step=9) for g, r in golden.rollouts()}
    (talk,) = by_name["multi-turn with tools"]
    extra = talk["extra_fields"]
    assert (extra["min_global_steps"], extra["max_global_steps"]) == (4, 5)
    assert extra["weight_versions"] == [["4", 0, 3], ["4", 5, 7], ["5", 8, 9]]
    assert talk["num_turns"] == 6
    (cut,) = by_name["truncated"]
    assert cut["extra_fields"]["status"] == "truncated"
    assert cut["extra_fields"]["min_global_steps"] == 9  # none was known
    first, second = by_name["a reward per turn"]
    assert first["extra_fields"]["turn_rewards"] == [0.25, 0.0, 0.0, 0.0]
    assert second["reward_score"] == 1.25
    assert json.dumps(by_name)  # plain values only


def test_trl_refuses_a_rollout_that_splits() -> None:
    by_name = {g.name: r for g, r in golden.rollouts()}
    whole = by_name["multi-turn with tools"]
    assert trl.rollout_columns([whole])["env_mask"] == [[1, 1, 1, 0, 0, 1, 1, 0, 1]]
    with pytest.raises(ContractError, match="one row for every rollout"):
        trl.rollout_columns([whole, by_name["branches"]])
