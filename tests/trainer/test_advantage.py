from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentcore_rl_toolkit.errors import ContractError
from agentcore_rl_toolkit.trainer import advantages
from agentcore_rl_toolkit.trajectory.row import Row, TurnSpan


def row(rollout: str, group: str | None, reward: Any, turns: int = 1, first: int = 0) -> Row:
    """Two prompt ids before every turn of three sampled ids."""
    n = 5 * turns
    mask = np.tile(np.array([0, 0, 1, 1, 1], np.uint8), turns)
    index = np.where(mask > 0, np.repeat(np.arange(turns), 5) + first, -1).astype(np.int32)
    spans = [TurnSpan(first + i, f"t{i}", 5 * i + 2, 5 * i + 5, "stop") for i in range(turns)]
    per_turn = reward if isinstance(reward, list) else None
    return Row(
        token_ids=np.arange(n, dtype=np.int32),
        loss_mask=mask,
        logprobs=np.zeros(n, np.float32),
        turn_index=index,
        turns=spans,
        rollout_id=rollout,
        session_id=rollout,
        group_id=group,
        reward=sum(per_turn) if per_turn is not None else reward,
        turn_rewards=per_turn,
    )


def test_rewards_are_compared_within_the_group() -> None:
    rows = [row("a", "g", 1.0), row("b", "g", 0.0), row("c", "h", 5.0), row("d", "h", 3.0)]
    found = advantages(rows, scale_by_std=False)
    assert [t.max() if t.max() > 0 else t.min() for t in found.tokens] == [0.5, -0.5, 1.0, -1.0]
    assert found.tokens[0].tolist() == [0, 0, 0.5, 0.5, 0.5]
    assert found.reward == pytest.approx(2.25)


def test_dividing_by_the_deviation_gives_unit_spread() -> None:
    rows = [row(str(i), "g", r) for i, r in enumerate([0.0, 0.0, 0.0, 8.0])]
    values = np.array([t[-1] for t in advantages(rows).tokens])
    assert values.mean() == pytest.approx(0, abs=1e-6)
    assert values.std() == pytest.approx(1, abs=1e-5)


def test_groups_without_variance_are_skipped_and_counted() -> None:
    rows = [row("a", "same", 1.0), row("b", "same", 1.0), row("c", "alone", 0.3)]
    rows += [row("d", "differs", 0.0), row("e", "differs", 1.0)]
    found = advantages(rows)
    assert [r.rollout_id for r in found.rows] == ["d", "e"]
    assert (found.groups, found.skipped_groups, found.skipped_rollouts) == (3, 2, 3)


def test_a_rollout_of_two_rows_counts_once_in_its_group() -> None:
    whole = [row("a", "g", 1.0), row("b", "g", 0.0), row("c", "g", 0.0)]
    split = [row("a", "g", 1.0), row("a", "g", 1.0, first=1), *whole[1:]]
    once, twice = advantages(whole), advantages(split)
    assert twice.tokens[0][-1] == twice.tokens[1][-1] == once.tokens[0][-1]
    assert twice.reward == once.reward


def test_rewards_per_turn_are_credited_to_what_came_before() -> None:
    rows = [row("a", "g", [0.0, 1.0], turns=2), row("b", "g", [0.0, -1.0], turns=2)]
    found = advantages(rows, scale_by_std=False)
    assert found.tokens[0].tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    assert found.tokens[1].tolist() == [0, 0, -1, -1, -1, 0, 0, -1, -1, -1]
    late = [row("a", "g", [1.0, 0.0], turns=2), row("b", "g", [-1.0, 0.0], turns=2)]
    assert advantages(late, scale_by_std=False).tokens[0][-1] == 0


def test_rewards_per_turn_do_not_depend_on_the_cut_into_rows() -> None:
    other = row("b", "g", [0.5, -1.0], turns=2)
    whole = advantages([row("a", "g", [0.0, 1.0], turns=2), other])
    parts = [row("a", "g", [0.0]), row("a", "g", [1.0], first=1)]
    for part in parts:
        part.reward = 1.0
    cut = advantages([*parts, other])
    assert cut.tokens[0][-1] == whole.tokens[0][4]
    assert cut.tokens[1][-1] == whole.tokens[0][-1]


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf"), "1", True])
def test_a_reward_that_is_no_number_stops(reward: Any) -> None:
    with pytest.raises(ContractError, match="finite number"):
        advantages([row("a", "g", 1.0), row("b", "g", reward)])


def test_a_row_without_a_group_stops() -> None:
    with pytest.raises(ContractError, match="group_id"):
        advantages([row("a", None, 1.0)])


def test_mixing_rewards_per_turn_and_per_rollout_stops() -> None:
    with pytest.raises(ContractError, match="same kind"):
        advantages([row("a", "g", [0.0, 1.0], turns=2), row("b", "g", 1.0, turns=2)])
