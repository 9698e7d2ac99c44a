"""Rewards again, from what was stored: which would another reward function have given?

A reward gets the task's payload and the agent's result by name, as it would in the session, and
``response`` from the last answer in the journal where the result holds none. No agent runs.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..reward import RewardFunction
from .rollout import RolloutView
from .run import Run

Reward = Callable[..., Any]
_ENVELOPE = ("payload", "rewards", "s3_bucket", "result_key", "input_id", "status_code", "timing")


class Rescored(NamedTuple):
    rollout_id: str
    old: float | None
    new: float | None
    problem: str = ""


def _is_reward(value: object, module: str) -> bool:
    """A reward that the module makes itself, not one that it imports."""
    return (
        isinstance(value, type)
        and issubclass(value, RewardFunction)
        and (value.__module__ == module)
    )


def load_reward(name: str) -> Reward:
    """``module:Class``, made without arguments, or ``module:function``."""
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigError(f"{name!r} names no reward: give it as module:Class")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        if not hasattr(module, attribute):
            known = [n for n, one in vars(module).items() if _is_reward(one, module_name)]
            there = f": it has {', '.join(known)}" if known else ""
            raise ConfigError(f"{module_name} has no {attribute!r}{there}")
        found = getattr(module, attribute)
        made = found() if isinstance(found, type) else found
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"the reward {name} cannot be made: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(made):
        raise ConfigError(f"{name} is a {type(made).__name__}, which cannot be called")
    return made  # type: ignore[no-any-return]


def rescored(run: Run, reward: Reward, phase: str = "") -> Iterator[Rescored]:
    run.poll()
    for n, head in enumerate(run.index.heads):
        if (phase and head.phase != phase) or head.failure is not None:
            continue
        view = RolloutView(run, n)
        if not isinstance(view.result, dict):
            yield Rescored(head.rollout_id, head.reward, None, "no result was kept")
            continue
        try:
            value = reward(**arguments_of(view))
            total = math.fsum(value) if isinstance(value, list | tuple) else float(value)
        except Exception as error:  # noqa: BLE001  (a reward is the user's own code)
            problem = f"the reward raised {type(error).__name__}: {error}"
            yield Rescored(head.rollout_id, head.reward, None, problem)
            continue
        yield Rescored(head.rollout_id, head.reward, total)


def arguments_of(view: RolloutView) -> dict[str, Any]:
    result = view.result if isinstance(view.result, dict) else {}
    said = {key: value for key, value in result.items() if key not in _ENVELOPE}
    arguments = {**(view.payload() or {}), **said}
    if "response" not in arguments:
        turns = view.answer()["turn_list"]
        answers = [turn["answer"]["text"] for turn in turns if turn["answer"]]
        arguments["response"] = answers[-1] if answers else ""
    return arguments
