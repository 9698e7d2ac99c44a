"""GSM8K as payloads of the Strands math agent, in rllm's registry and as JSONL.

    python prepare_data.py [--jsonl FOLDER] [--limit N]

Registers the data set ``gsm8k_agentcore`` with rllm; ``--jsonl`` writes ``train.jsonl`` and
``test.jsonl`` instead, for other trainers. Rows have idx, prompt, answer and data_source.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "gsm8k_agentcore"
SOURCE = "openai/gsm8k"
ANSWER = re.compile(r"####\s*(-?[\d.,]*\d)")


def payload(index: int, row: Mapping[str, str]) -> dict[str, Any]:
    """What the agent gets; GSM8K writes its answers as ``… #### 1,234``."""
    found = ANSWER.search(row["answer"])
    if found is None:
        raise SystemExit(f"row {index} has no answer after ####: {row['answer'][:80]!r}")
    answer = found.group(1).replace(",", "")
    return {"idx": index, "prompt": row["question"], "answer": answer, "data_source": "gsm8k"}


def load(split: str, limit: int | None) -> list[dict[str, Any]]:
    import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]

    rows = datasets.load_dataset(SOURCE, "main", split=split)
    return [payload(i, row) for i, row in enumerate(rows) if limit is None or i < limit]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jsonl", type=Path, help="folder to write to, instead of rllm's registry")
    parser.add_argument("--limit", type=int, help="rows of each split")
    options = parser.parse_args()
    for split in ("train", "test"):
        rows = load(split, options.limit)
        if options.jsonl is not None:
            options.jsonl.mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (options.jsonl / f"{split}.jsonl").write_text(lines)
        else:
            from rllm.data.dataset import DatasetRegistry  # type: ignore[import-not-found]

            DatasetRegistry.register_dataset(NAME, rows, split)
        print(f"{split}: {len(rows)} rows")


if __name__ == "__main__":
    main()
