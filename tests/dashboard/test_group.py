"""The advantages that are shown are those that were trained."""

from __future__ import annotations

import numpy as np
import pytest

from agentcore_rl_toolkit.dashboard.group import turn_advantages
from agentcore_rl_toolkit.trajectory.row import Row, TurnSpan

pytest.importorskip("torch", reason="the trainer needs torch")
from agentcore_rl_toolkit.trainer.advantage import advantages

CASES = [
    pytest.param([1.0, 0.0, 0.0, 0.0], id="one reward a rollout"),
    pytest.param([[0.0, 1.0], [0.5, 0.0, 0.25], [0.0, 0.0]], id="a reward for each turn"),
    pytest.param([1.0, 1.0], id="all equal: nothing to learn"),
]


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("rewards", CASES)
def test_they_are_the_trainers(rewards: list[float | list[float]], scaled: bool) -> None:
    turns = [len(r) if isinstance(r, list) else 2 for r in rewards]
    rows = [row(i, r, n) for i, (r, n) in enumerate(zip(rewards, turns, strict=True))]
    theirs = advantages(rows, scale_by_std=scaled)
    ours = turn_advantages(rewards, turns, scale_by_std=scaled)
    if not theirs.rows:
        assert ours == [None] * len(rewards)
        return
    for tokens, own in zip(theirs.tokens, ours, strict=True):
        assert own == pytest.approx(tokens.tolist(), abs=1e-5)


def test_a_lost_rollout_counts_for_nobody() -> None:
    assert turn_advantages([1.0, None, 0.0], [1, 1, 1])[1] is None
    with_lost = turn_advantages([1.0, None, 0.0], [1, 1, 1])
    assert [with_lost[0], with_lost[2]] == turn_advantages([1.0, 0.0], [1, 1])


def row(number: int, reward: float | list[float], n: int) -> Row:
    """One token a turn."""
    listed = reward if isinstance(reward, list) else None
    return Row(
        token_ids=np.arange(n, dtype=np.int32),
        loss_mask=np.ones(n, np.uint8),
        logprobs=np.zeros(n, np.float32),
        turn_index=np.arange(n, dtype=np.int32),
        turns=[TurnSpan(i, str(i), i, i + 1, "stop") for i in range(n)],
        rollout_id=str(number),
        session_id=str(number),
        group_id="g",
        reward=sum(listed) if listed else reward,  # type: ignore[arg-type]
        turn_rewards=listed,
    )
