"""The reward of the service agent: the right actions and no others, and what had to be said."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from world import Airline

from agentcore_rl_toolkit import RewardFunction

MAX_NUMBERS = 12
"""A message with more of them is a list to pick from, not an answer."""


class ServiceReward(RewardFunction):
    """1.0 when exactly the right actions were tried, left their database, and all was said.

    The actions count as a set: trying several amounts, flights or numbers of bags spoils it, also
    where the last one is right or the airline refused the others.
    """

    def __call__(
        self,
        *,
        airline: Airline | None = None,
        said: Sequence[str] = (),
        actions: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        **_: Any,
    ) -> float:
        if airline is None or not said or same_set(airline.actions) != same_set(actions):
            return 0.0
        if airline.data != expected(actions):
            return 0.0
        numbers: set[str] = set()
        for message in said:
            found = re.findall(r"\b\d+\b", message.replace(",", ""))
            numbers |= set(found if len(found) <= MAX_NUMBERS else ())
        return float(numbers.issuperset(outputs))


def same_set(actions: Sequence[Any]) -> list[str]:
    return sorted(json.dumps([name, arguments], sort_keys=True) for name, arguments in actions)


def expected(actions: Sequence[Any]) -> dict[str, Any]:
    airline = Airline()
    for name, arguments in actions:
        getattr(airline, name)(**arguments)
    return airline.data
