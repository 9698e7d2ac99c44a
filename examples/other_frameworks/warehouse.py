"""The task that all frameworks share: questions about a warehouse, answered with two tools."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

STOCK = {"bolt": (120, 3), "nut": (340, 1), "washer": (75, 2), "hinge": (18, 14), "handle": (9, 25)}
"""Pieces and price of each item."""
SYSTEM_PROMPT = (
    "Answer questions about the warehouse with the tools. "
    "End your answer with a line that holds '#### ' and the number, nothing else."
)


def count(item: str) -> str:
    """How many pieces of an item there are.

    Args:
        item: Its name, in the singular.
    """
    return str(STOCK[item][0]) if item in STOCK else f"there is no {item}"


def price(item: str) -> str:
    """What one piece of an item costs.

    Args:
        item: Its name, in the singular.
    """
    return str(STOCK[item][1]) if item in STOCK else f"there is no {item}"


TOOLS = {"count": count, "price": price}


def call(name: str, arguments: dict[str, Any]) -> str:
    """For frameworks that leave calling the tools to the agent."""
    try:
        return TOOLS[name](**arguments)
    except (KeyError, TypeError) as error:
        return f"error: {error}"


def questions(rows: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """None comes again before all have come."""
    every = [
        {"prompt": f"What is the stock of {item} worth?", "answer": str(pieces * price)}
        for item, (pieces, price) in STOCK.items()
    ] + [
        {
            "prompt": f"How many pieces of {one} and {other} are there in all?",
            "answer": str(STOCK[one][0] + STOCK[other][0]),
        }
        for one, other in itertools.combinations(STOCK, 2)
    ]
    draw = random.Random(seed)
    for number in range(rows):
        if number % len(every) == 0:
            draw.shuffle(every)
        yield every[number % len(every)]
