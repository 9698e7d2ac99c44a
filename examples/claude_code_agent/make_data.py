"""Writes the tasks as JSONL. A row is the payload of a rollout.

python make_data.py > tasks.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator

REPOS = ("roman", "wallet")
PROMPT = "The tests of this repository fail. Mend {repo}.py so that 'python3 -m unittest' passes."


def rows() -> Iterator[dict[str, str]]:
    for repo in REPOS:
        yield {"prompt": PROMPT.format(repo=repo), "repo": repo}


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
