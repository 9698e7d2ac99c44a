"""Word problems in two steps of arithmetic, in the shape of GSM8K; the same seed, the same rows.

A problem is one of twelve stories with a name, an object and three numbers. Its numbers decide
whether it is held out: a tenth of all number triples, by hash, is never seen in training, whatever
the seed. Rows are the payload of a rollout.

python problems.py --rows 96 --split test > test.jsonl
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any, Literal

DATA_SOURCE = "demo_word_problems"
HELD_OUT = 10
"""One triple of numbers in this many is held out."""

Split = Literal["train", "test"]


@dataclasses.dataclass(frozen=True)
class Story:
    text: str
    expression: str
    mistake: str
    """What a careless reader would compute."""
    kind: str = "any"
    """Which numbers it needs, see ``_numbers``."""


STORIES = (
    Story(
        "{n} has {a} {o}, buys {b} more and gives {c} away. How many {o} does {n} have now?",
        "{a} + {b} - {c}",
        "{a} + {b} + {c}",
        "smaller third",
    ),
    Story(
        "{n} fills {a} boxes with {b} {o} each and has {c} {o} left over. "
        "How many {o} are there in total?",
        "{a} * {b} + {c}",
        "{a} + {b} + {c}",
    ),
    Story(
        "Each day {n} collects {a} {o} in the morning and {b} {o} in the evening. "
        "How many {o} is that in {c} days?",
        "({a} + {b}) * {c}",
        "{a} + {b} * {c}",
        "small third",
    ),
    Story(
        "Every week {n} makes {a} {o} and keeps {b} of them, selling the rest. "
        "How many {o} does {n} sell in {c} weeks?",
        "({a} - {b}) * {c}",
        "{a} - {b} * {c}",
        "smaller second, small third",
    ),
    Story(
        "{n} finds {a} red {o} and {b} blue {o} and shares them equally among {c} friends. "
        "How many {o} does each friend get?",
        "({a} + {b}) / {c}",
        "{a} + {b} / {c}",
        "sum divides",
    ),
    Story(
        "{n} orders {a} bags of {b} {o} and spreads them evenly over {c} shelves. "
        "How many {o} are on each shelf?",
        "{a} * {b} / {c}",
        "{a} * {b} - {c}",
        "product divides",
    ),
    Story(
        "{n} has {a} {o}, a sister has just as many, and a cousin has {b}. "
        "They need {c} baskets. How many {o} do they have together?",
        "{a} + {a} + {b}",
        "{a} + {b} + {c}",
    ),
    Story(
        "{n} has {a} {o} and an uncle has {b} times as many. After {c} minutes they count. "
        "How many {o} do they have together?",
        "{a} + {a} * {b}",
        "{a} * {b}",
        "small second",
    ),
    Story(
        "{n} buys {a} packs of {b} {o} and loses {c} of them. How many {o} remain?",
        "{a} * {b} - {c}",
        "{a} * {b} + {c}",
        "smaller third",
    ),
    Story(
        "Of {a} {o}, {n} throws {b} away and packs the others into {c} equal parcels. "
        "How many {o} are in a parcel?",
        "({a} - {b}) / {c}",
        "{a} - {b} / {c}",
        "difference divides",
    ),
    Story(
        "{n} starts with {a} {o}, lends {b} to a neighbour and breaks {c}. How many {o} are left?",
        "{a} - {b} - {c}",
        "{a} - {b} + {c}",
        "large first",
    ),
    Story(
        "{n} stacks {c} layers of {a} rows with {b} {o} in a row. How many {o} is that?",
        "{a} * {b} * {c}",
        "{a} * {b} + {c}",
        "small third",
    ),
)

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo")
NAMES += ("Iris", "Jon", "Kira", "Liam", "Mona", "Nils", "Olga", "Paul")
OBJECTS = ("apples", "books", "cards", "coins", "eggs", "lamps")
OBJECTS += ("pears", "pens", "roses", "shells", "stamps", "tiles")


@dataclasses.dataclass(frozen=True)
class Problem:
    story: int
    prompt: str
    expression: str
    mistake: str
    answer: int
    numbers: tuple[int, int, int]

    def row(self, idx: int) -> dict[str, Any]:
        return {
            "idx": idx,
            "prompt": self.prompt,
            "answer": str(self.answer),
            "data_source": DATA_SOURCE,
        }


def problems(count: int, seed: int, split: Split = "train") -> Iterator[Problem]:
    """Round robin through the stories, so that every step of a training sees most of them."""
    rng = random.Random(f"{split}/{seed}")
    order: list[int] = []
    for _ in range(count):
        if not order:
            order = rng.sample(range(len(STORIES)), len(STORIES))
        yield make(rng, order.pop(), split)


def make(rng: random.Random, story: int, split: Split) -> Problem:
    told = STORIES[story]
    while True:
        numbers = _numbers(rng, told.kind)
        if held_out(numbers) == (split == "test"):
            break
    a, b, c = numbers
    words = {"n": rng.choice(NAMES), "o": rng.choice(OBJECTS), "a": a, "b": b, "c": c}
    expression = told.expression.format(**words)
    return Problem(
        story=story,
        prompt=told.text.format(**words),
        expression=expression,
        mistake=told.mistake.format(**words),
        answer=_whole(expression),
        numbers=numbers,
    )


def held_out(numbers: tuple[int, int, int]) -> bool:
    return zlib.crc32(repr(numbers).encode()) % HELD_OUT == 0


def _numbers(rng: random.Random, kind: str) -> tuple[int, int, int]:
    while True:
        a, b, c = (rng.randint(2, 99) for _ in range(3))
        if kind in (
            "small third",
            "smaller second, small third",
            "sum divides",
            "product divides",
            "difference divides",
        ):
            c = rng.randint(2, 12)
        if kind == "small second":
            b = rng.randint(2, 12)
        fits = {
            "smaller third": a + b > c and a * b > c,
            "smaller second, small third": a > b,
            "sum divides": (a + b) % c == 0,
            "product divides": a * b % c == 0,
            "difference divides": a > b and (a - b) % c == 0,
            "large first": a > b + c,
        }
        if fits.get(kind, True):
            return a, b, c


def _whole(expression: str) -> int:
    value = eval(expression, {"__builtins__": {}})  # our own text, made of numbers and signs
    if value != int(value) or value < 0:
        raise ValueError(f"{expression} has no whole result")
    return int(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=["train", "test"], default="train")
    options = parser.parse_args()
    for idx, problem in enumerate(problems(options.rows, options.seed, options.split)):
        print(json.dumps(problem.row(idx)))


if __name__ == "__main__":
    main()
