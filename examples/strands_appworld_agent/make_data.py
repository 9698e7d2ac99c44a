"""Writes tasks as JSONL. A row is the payload of a rollout.

python make_data.py > tasks.jsonl                           # four of the small world
python make_data.py --rows 400 --seed 2 > train.jsonl       # more of them, on other phones
python make_data.py --split train > train.jsonl             # AppWorld's, with its package and data
"""

from __future__ import annotations

import argparse
import json

from tasks import rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", help="one of AppWorld's: train, dev, test_normal, …")
    options = parser.parse_args()
    if options.split is None:
        found = rows(options.rows, options.seed)
    else:
        from appworld import load_task_ids

        found = ({"task_id": task_id} for task_id in load_task_ids(options.split))
    for row in found:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
