"""Writes problems as JSONL: generated ones (the same seed gives the same file), or GSM8K.

python make_data.py --rows 200 --seed 1 > train.jsonl
python make_data.py --gsm8k path/to/gsm8k_test.jsonl > test.jsonl    # a local copy
python make_data.py --gsm8k openai/gsm8k --split test > test.jsonl   # from the hub
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
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


def gsm8k(source: str, split: str) -> Iterator[dict[str, Any]]:
    """Rows of GSM8K, from a file (JSONL or Parquet) or from the Hugging Face hub."""
    for idx, row in enumerate(_read(source, split)):
        yield {
            "idx": idx,
            "prompt": row["question"],
            "answer": final_answer(row["answer"]),
            "data_source": "gsm8k",
        }


def final_answer(solution: str) -> str:
    """The number after ``####``, without thousands separators."""
    _, mark, number = solution.rpartition("####")
    if not mark:
        raise SystemExit(f"no '####' in this solution, so it is not GSM8K: {solution[:80]!r}")
    return number.strip().replace(",", "")


def _read(source: str, split: str) -> Iterator[dict[str, Any]]:
    path = Path(source)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        yield from parquet.read_table(path).to_pylist()
    elif path.is_file():
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
    else:
        try:
            from datasets import load_dataset
        except ImportError:
            raise SystemExit(
                f"{source} is no file, and reading it from the hub needs: pip install datasets"
            ) from None
        yield from load_dataset(source, "main", split=split)


def _expression(rng: random.Random, depth: int) -> str:
    left, right = str(rng.randint(2, 99)), str(rng.randint(2, 99))
    if depth > 1:
        inner = f"({_expression(rng, depth - 1)})"
        left, right = (inner, right) if rng.random() < 0.5 else (left, inner)
    return f"{left} {rng.choice('+-*')} {right}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gsm8k", metavar="FILE|NAME", help="a local copy, or its name on the hub")
    parser.add_argument("--split", default="train", help="of the hub's data set")
    options = parser.parse_args()
    rows = problems(options.rows, options.seed)
    for row in gsm8k(options.gsm8k, options.split) if options.gsm8k else rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
