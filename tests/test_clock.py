"""The time of rewards inside a rollout: counted once, for rewards of every kind."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import Any

import pytest

from agentcore_rl_toolkit import ExactMatch, RewardFunction, WeightedSum, clock

LONG_S = 0.05


class Slow(RewardFunction):
    def __call__(self, *, response: str = "", **kwargs: Any) -> float:
        time.sleep(LONG_S)
        return float(response == "yes")


class Judge(RewardFunction):
    async def __call__(self, **kwargs: Any) -> float:  # type: ignore[override]
        await asyncio.sleep(LONG_S)
        return 1.0


def test_a_reward_is_told_apart_from_the_rest_of_the_handler() -> None:
    with clock.running() as clocked:
        time.sleep(LONG_S)
        assert Slow()(response="yes") == 1.0
    told = clocked.read()
    assert told["reward_s"] >= LONG_S
    assert told["handler_s"] >= told["reward_s"] + LONG_S


def test_a_reward_inside_another_counts_once() -> None:
    with clock.running() as clocked:
        assert WeightedSum([(Slow(), 0.5), (Slow(), 0.5)])(response="yes") == 1.0
    told = clocked.read()
    assert 2 * LONG_S <= told["reward_s"] <= told["handler_s"]


async def test_rewards_beside_each_other_count_once() -> None:
    with clock.running() as clocked:
        both = asyncio.gather(Judge()(), asyncio.to_thread(Slow()))  # type: ignore[arg-type]
        assert await both == [1.0, 0.0]
    told = clocked.read()
    assert LONG_S <= told["reward_s"] <= told["handler_s"]


def test_plain_functions_and_threads_without_the_context_are_not_seen() -> None:
    with clock.running() as clocked:
        (lambda **_: time.sleep(LONG_S))()
        thread = threading.Thread(target=Slow())
        thread.start()
        thread.join()
    assert clocked.read()["reward_s"] == 0.0


def test_a_reward_that_raises_was_a_reward_too() -> None:
    class Broken(RewardFunction):
        def __call__(self, **kwargs: Any) -> float:
            time.sleep(LONG_S)
            raise ValueError("no")

    with clock.running() as clocked, pytest.raises(ValueError, match="no"):
        Broken()()
    assert clocked.read()["reward_s"] >= LONG_S


def test_a_timed_reward_is_what_it_was() -> None:
    assert "response" in inspect.signature(ExactMatch.__call__).parameters
    assert inspect.iscoroutinefunction(Judge.__call__)
    assert ExactMatch()(response="a", answer="a") == 1.0

    class Unfinished(RewardFunction):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]
