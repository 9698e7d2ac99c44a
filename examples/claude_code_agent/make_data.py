"""Writes the tasks as JSONL. A row is the payload of a rollout.

python make_data.py > tasks.jsonl

A row brings the tests that decide, each a call and its result. They are not in the repositories,
and this file is not deployed (``.dockerignore``): a session has them in memory only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PROMPT = "The tests of this repository fail. Mend {repo}.py so that 'python3 -m unittest' passes."
CHECKS: dict[str, list[tuple[str, list[Any], Any]]] = {
    "roman": [
        ("to_roman", [4], "IV"),
        ("to_roman", [9], "IX"),
        ("to_roman", [1666], "MDCLXVI"),
        ("to_roman", [1990], "MCMXC"),
        ("to_roman", [444], "CDXLIV"),
        ("to_roman", [3999], "MMMCMXCIX"),
    ],
    "wallet": [
        ("split", [100, 4], [25, 25, 25, 25]),
        ("split", [101, 3], [34, 34, 33]),
        ("split", [2, 5], [1, 1, 0, 0, 0]),
        ("split", [1000, 7], [143, 143, 143, 143, 143, 143, 142]),
    ],
}


def rows() -> Iterator[dict[str, Any]]:
    for repo, checks in CHECKS.items():
        yield {"prompt": PROMPT.format(repo=repo), "repo": repo, "checks": checks}


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
