"""Writes tasks as JSONL. A row is the payload of a rollout.

python make_data.py > tasks.jsonl                    # the small world's
python make_data.py --split train > train.jsonl      # AppWorld's, with its package and data
"""

from __future__ import annotations

import argparse
import json

from world import load_task_ids

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", help="one of AppWorld's: train, dev, test_normal, …")
    for task_id in load_task_ids(parser.parse_args().split):
        print(json.dumps({"task_id": task_id}))
