"""Rows: what check refuses, and how rewards are handed out."""

from typing import Any

import numpy as np
import pytest

from agentcore_rl_toolkit.errors import ContractError
from agentcore_rl_toolkit.trajectory import Row, SessionGraph, assign_rewards, trained_turns
from agentcore_rl_toolkit.trajectory.row import TurnSpan


def row(**changes: Any) -> Row:
    base: dict[str, Any] = {
        "token_ids": np.array([1, 2, 3, 4], np.int32),
        "loss_mask": np.array([0, 1, 0, 1], np.uint8),
        "logprobs": np.array([0, -1, 0, -2], np.float32),
        "turn_index": np.array([-1, 0, -1, 1], np.int32),
        "turns": [TurnSpan(0, "s/0", 1, 2, "stop"), TurnSpan(1, "s/1", 3, 4, "stop")],
        "rollout_id": "r",
        "session_id": "s",
    }
    return Row(**(base | changes))


def test_a_sound_row_passes() -> None:
    assert row().check().n_trained == 2


BROKEN = {
    "a logprob at a masked position": {"logprobs": np.array([-1, -1, 0, -2], np.float32)},
    "arrays of different lengths": {"loss_mask": np.array([0, 1, 0], np.uint8)},
    "a mask without a turn": {"loss_mask": np.array([1, 1, 0, 1], np.uint8)},
    "a turn without a mask": {
        "loss_mask": np.array([0, 0, 0, 1], np.uint8),
        "logprobs": np.array([0, 0, 0, -2], np.float32),
    },
    "a logprob that is not finite": {"logprobs": np.array([0, np.nan, 0, -2], np.float32)},
    "a version over context": {"weight_versions": [("1", 0, 2)]},
    "a turn index elsewhere": {"turn_index": np.array([-1, 1, -1, 1], np.int32)},
    "turns that overlap": {"turns": [TurnSpan(0, "a", 1, 2, ""), TurnSpan(1, "b", 1, 4, "")]},
    "rewards for other turns": {"turn_rewards": [1.0]},
    "no tokens": {
        "token_ids": np.zeros(0, np.int32),
        "loss_mask": np.zeros(0, np.uint8),
        "logprobs": np.zeros(0, np.float32),
        "turn_index": np.zeros(0, np.int32),
        "turns": [],
    },
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_row_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="row of session s"):
        row(**changes).check()


def rollout(turns: int = 3) -> list[Row]:
    """Rows of one session: a linear one, and one of a sub-agent between its first two turns."""
    graph = SessionGraph("s")
    ids = [1]
    for i in range(turns):
        prompt = [77] if i == 1 else ids
        turn = graph.make_turn(graph.place(prompt_ids=prompt), sampled=[10 + i], logprobs=[-1.0])
        graph.commit(turn)
        if i != 1:
            ids = [*ids, 10 + i, 5]
    return graph.rows()


@pytest.mark.parametrize(
    "value",
    [0.5, [0.5], np.float32(0.5), np.array([0.5])],
    ids=["number", "list of one", "numpy scalar", "numpy array of one"],
)
def test_a_scalar_is_the_reward_of_the_rollout_on_each_row(value: object) -> None:
    rows = assign_rewards(rollout(), value)
    assert [r.reward for r in rows] == [0.5, 0.5]
    assert all(r.turn_rewards is None for r in rows)
    assert rows[0].token_rewards().tolist() == [0.0, 0.5]


@pytest.mark.parametrize(("value", "reward"), [(1, 1.0), (True, 1.0), (0, 0.0), (False, 0.0)])
def test_whole_numbers_and_truth_values_are_rewards(value: object, reward: float) -> None:
    assert [r.reward for r in assign_rewards(rollout(), value)] == [reward, reward]


def test_a_list_as_long_as_the_trained_turns_is_one_reward_a_turn() -> None:
    rows = assign_rewards(rollout(), [0.1, 0.2, 0.3])
    assert trained_turns(rows) == 3
    assert [r.turn_rewards for r in rows] == [[0.2], [0.1, 0.3]]
    assert [r.reward for r in rows] == pytest.approx([0.6, 0.6])
    assert rows[1].token_rewards().tolist() == pytest.approx([0, 0.1, 0, 0.3])


@pytest.mark.parametrize(
    "value",
    [[1.0, 2.0], [], [0.0] * 4, None, "1", float("nan"), [1.0, None, 2.0], {"r": 1}],
    ids=repr,
)
def test_any_other_reward_is_a_contract_error(value: object) -> None:
    with pytest.raises(ContractError):
        assign_rewards(rollout(), value)


def test_a_rollout_that_splits_shares_one_rollout_id() -> None:
    assert {r.rollout_id for r in rollout()} == {"s"}
    assert len(rollout()) == 2
