"""What is said while something lasts, where there is no terminal."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agentcore_rl_toolkit.cli import show, train_view


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (show, train_view):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_line_is_said_at_once_and_then_now_and_again(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    line = show.Line(None)
    for n in range(5):
        line.say(f"{n} of 5\nand details")
        clock.now += show.QUIET_S / 2
    assert capsys.readouterr().err.split("\n") == ["0 of 5", "2 of 5", "4 of 5", ""]


def test_a_long_step_of_training_says_how_far_it_is(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    view, rollout = train_view.PlainView(), cast("Any", None)
    view.rollout("eval", 0, rollout)
    clock.now += show.QUIET_S
    view.rollout("train", 0, rollout)
    view.rollout("train", 0, rollout)
    clock.now += show.QUIET_S
    view.rollout("train", 0, rollout)
    said = capsys.readouterr().out.splitlines()
    assert said == ["step 1: 1 rollouts done", "step 1: 3 rollouts done"]
