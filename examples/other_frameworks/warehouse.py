"""The task that all frameworks share: questions about a warehouse, answered with two tools."""

from __future__ import annotations

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
    draw = random.Random(seed)
    for _ in range(rows):
        item, other = draw.sample(sorted(STOCK), 2)
        (n, cost), (m, _) = STOCK[item], STOCK[other]
        if draw.random() < 0.5:
            yield {"prompt": f"What is the stock of {item} worth?", "answer": str(n * cost)}
        else:
            prompt = f"How many pieces of {item} and {other} are there in all?"
            yield {"prompt": prompt, "answer": str(n + m)}
