"""Writes the tasks as JSONL. A row is the payload of a rollout.

python make_data.py > tasks.jsonl
python make_data.py --user-model other-name > tasks.jsonl    # the model that plays the customer
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from tasks import TASKS


def rows(user_model: str = "user") -> Iterator[dict[str, Any]]:
    for task in TASKS:
        yield {**task, "user_model_id": user_model}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--user-model", default="user")
    for row in rows(parser.parse_args().user_model):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
