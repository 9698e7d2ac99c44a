"""The reward of the service agent: the database as it should be, and what had to be said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from world import Airline

from agentcore_rl_toolkit import RewardFunction

MAX_NUMBERS = 12
"""A message with more of them is a list to pick from, not an answer."""


class ServiceReward(RewardFunction):
    """1.0 when the database equals the one that the right actions leave, and all was said."""

    def __call__(
        self,
        *,
        data: Any = None,
        said: Sequence[str] = (),
        actions: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        **_: Any,
    ) -> float:
        if data != expected(actions) or not said:
            return 0.0
        numbers: set[str] = set()
        for message in said:
            found = re.findall(r"\b\d+\b", message.replace(",", ""))
            numbers |= set(found if len(found) <= MAX_NUMBERS else ())
        return float(numbers.issuperset(outputs))


def expected(actions: Sequence[Any]) -> dict[str, Any]:
    airline = Airline()
    for name, arguments in actions:
        getattr(airline, name)(**arguments)
    return airline.data
