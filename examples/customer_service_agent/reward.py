"""The reward of the service agent: looked up first, then the right actions and no others, and the
right answers in the form that the airline's rules give them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from world import Airline

from agentcore_rl_toolkit import RewardFunction

FORMS = ("Amount:", "Refused:")
NO_AMOUNT = re.compile(r"\b(\d{4}-\d\d-\d\d|GL\d{3})\b")
"""A day or a flight."""
AMOUNT = re.compile(r"\d{2,}")


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
        looks: Sequence[Any] = (),
        actions: Sequence[Any] = (),
        outputs: Sequence[str] = (),
        **_: Any,
    ) -> float:
        if airline is None or not set(same_set(looks)) <= set(same_set(airline.looks)):
            return 0.0
        if same_set(airline.actions) != same_set(actions) or airline.data != expected(actions):
            return 0.0
        return float(answers(said) == list(outputs))


def answers(said: Sequence[str]) -> list[str] | None:
    """The messages of a given form, each once; None when an amount is said in another message."""
    found: list[str] = []
    for message in said:
        text = " ".join(message.split()).removesuffix(".")
        if text.startswith(FORMS):
            found += [text] if text not in found else []
        elif AMOUNT.search(NO_AMOUNT.sub("", text.replace(",", ""))):
            return None
    return found


def same_set(actions: Sequence[Any]) -> list[str]:
    return sorted(json.dumps([name, arguments], sort_keys=True) for name, arguments in actions)


def expected(actions: Sequence[Any]) -> dict[str, Any]:
    airline = Airline()
    for name, arguments in actions:
        getattr(airline, name)(**arguments)
    return airline.data
