"""What is told of a training run whose folder does not tell one story."""

from __future__ import annotations

import pytest

from faults.train import complete, one_story


@pytest.mark.parametrize("steps", [[1, 2, 3], [1, 2, 2, 3], [1, 1, 2, 3, 3]])
def test_a_step_may_be_done_again_when_it_was_not_saved(steps: list[int]) -> None:
    assert one_story(steps, 3) == []


@pytest.mark.parametrize(
    ("steps", "word"),
    [([1, 3], "step 3 came after step 1"), ([1, 2], "ended after step 2"), ([1, 2, 1], "after")],
    ids=["a step left out", "an end too early", "an old step again"],
)
def test_a_step_that_is_lost_or_done_twice_is_told(steps: list[int], word: str) -> None:
    assert any(word in text for text in one_story(steps, 3))


def test_rollouts_of_a_step_are_complete_and_each_has_its_own_session() -> None:
    def line(step: int, rollout: str, session: str) -> dict[str, object]:
        return {"step": step, "rollout_id": rollout, "session_id": session}

    whole = [line(0, "a", "1"), line(0, "b", "2")]
    assert complete(whole, 1, 2) == []
    assert complete([*whole, line(0, "b", "3")], 1, 2) == [], "done again after a kill"
    assert complete(whole[:1], 1, 2) == ["art train: step 0 has 1 rollouts of 2"]
    assert "two rollouts" in complete([*whole, line(0, "c", "2")], 1, 3)[0]
