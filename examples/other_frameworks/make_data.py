"""Writes questions as JSONL; the same seed gives the same file.

python make_data.py --rows 200 --seed 1 > train.jsonl
"""

from __future__ import annotations

import argparse
import json

from warehouse import questions

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for row in questions(options.rows, options.seed):
        print(json.dumps(row))
