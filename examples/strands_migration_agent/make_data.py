"""Writes tasks as JSONL, and packs projects into MigrationBench's layout.

python make_data.py > tasks.jsonl                                  # the three shipped projects
python make_data.py --source s3://bucket/tars/test > tasks.jsonl   # all of a prepared data set
python make_data.py --pack s3://bucket/tars/test REPO …            # prepare one from folders
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import dataset
from tasks import shipped


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source", help="folder or s3://bucket/prefix with MigrationBench's layout"
    )
    parser.add_argument(
        "--pack", metavar="TARGET", help="put REPOs into this folder or s3:// prefix"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the shipped projects' questions")
    parser.add_argument("repos", nargs="*", type=Path, metavar="REPO")
    options = parser.parse_args()
    if bool(options.pack) != bool(options.repos):
        parser.error("--pack and REPO go together")
    if options.pack:
        for repo in options.repos:
            print(dataset.pack(repo.resolve(), options.pack, describe(repo)))
        return
    tasks = list(dataset.tasks(options.source) if options.source else shipped(options.seed))
    if not tasks:
        parser.error(f"there is no NAME/NAME.tar.gz in {options.source}")
    for task in tasks:
        print(json.dumps(task))


def describe(repo: Path) -> dict[str, object]:
    head = repo / ".git" / "HEAD"
    commit = head.read_text().strip() if head.is_file() else None
    if commit and commit.startswith("ref: "):
        ref = repo / ".git" / commit.removeprefix("ref: ")
        commit = ref.read_text().strip() if ref.is_file() else None
    texts = (file.read_text(errors="replace") for file in repo.glob("**/src/test/**/*.java"))
    return {"base_commit": commit, "num_test_cases": sum(text.count("@Test") for text in texts)}


if __name__ == "__main__":
    main()
