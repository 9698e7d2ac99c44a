"""Writes arithmetic problems as JSONL; the same seed gives the same file.

python make_data.py --rows 200 --seed 1 > train.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from typing import Any

from calculator import calculate

DATA_SOURCE = "strands_math_agent"


def problems(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Rows are the payload of a rollout."""
    rng = random.Random(seed)
    for idx in range(count):
        expression = _expression(rng, depth=rng.randint(1, 3))
        yield {
            "idx": idx,
            "prompt": f"What is {expression}?",
            "answer": str(calculate(expression)),
            "data_source": DATA_SOURCE,
        }


def _expression(rng: random.Random, depth: int) -> str:
    left, right = str(rng.randint(2, 99)), str(rng.randint(2, 99))
    if depth > 1:
        inner = f"({_expression(rng, depth - 1)})"
        left, right = (inner, right) if rng.random() < 0.5 else (left, inner)
    return f"{left} {rng.choice('+-*')} {right}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for row in problems(options.rows, options.seed):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
