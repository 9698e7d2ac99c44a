"""Writes tasks as JSONL, or the shipped ones as files of OfficeBench's layout.

python make_data.py > tasks.jsonl                          # the shipped tasks
python make_data.py --officebench path/to/OfficeBench > tasks.jsonl
python make_data.py --write DIR                            # the shipped tasks as a data set
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import dataset

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--officebench", type=Path, help="a copy of OfficeBench's repository")
    parser.add_argument("--write", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.write:
        dataset.write(options.write)
    else:
        bench = options.officebench
        found = list(dataset.officebench(bench) if bench else dataset.rows())
        if not found:
            parser.error(f"there is no tasks/*/subtasks/*.json in {bench}")
        for row in found:
            print(json.dumps(row))
