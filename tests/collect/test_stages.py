"""What an agent tells of its time, bounded by what was measured from outside."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_rl_toolkit.collect.attempt import stages

TOLD = [
    pytest.param({"handler_s": 6.0, "reward_s": 1.0}, (3.0, 2.0, 1.0, 4.0), id="told"),
    pytest.param(None, (8.0, 2.0, 0.0, 0.0), id="tells nothing"),
    pytest.param("soon", (8.0, 2.0, 0.0, 0.0), id="no times"),
    pytest.param({"reward_s": 1.0}, (7.0, 2.0, 1.0, 0.0), id="reward only"),
    pytest.param({"handler_s": 60.0, "reward_s": 50.0}, (0.0, 2.0, 8.0, 0.0), id="too much"),
    pytest.param({"handler_s": 1.0, "reward_s": 1.0}, (0.0, 2.0, 0.0, 8.0), id="less than model"),
    pytest.param({"handler_s": -1, "reward_s": float("nan")}, (8.0, 2.0, 0.0, 0.0), id="absurd"),
    pytest.param({"handler_s": 10**400, "reward_s": True}, (8.0, 2.0, 0.0, 0.0), id="huge"),
]


@pytest.mark.parametrize(("timing", "expected"), TOLD)
def test_the_stages_of_ten_seconds_sum_to_ten(timing: Any, expected: Any) -> None:
    found = stages({"rewards": 1.0, "timing": timing}, 10.0, 2.0)
    assert (found.agent_s, found.model_s, found.reward_s, found.finish_s) == expected
    assert found.total_s == pytest.approx(10.0)


def test_a_rollout_without_result_has_no_reward_time() -> None:
    assert stages(None, 3.0, 1.0).reward_s == 0.0
