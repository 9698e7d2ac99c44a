"""The same as ``evaluate.py`` in a program that has other things to do: nothing here blocks.

python evaluate_async.py tasks.jsonl --agent ARN --base-url http://127.0.0.1:8000/v1 --model-id NAME
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evaluation import client_of, outcome, parse_arguments, summarise, tasks


async def main() -> None:
    options = parse_arguments("migration agent", concurrency=8, timeout=1800.0)
    outcomes = []
    async with client_of(options) as client:
        batch = client.run_batch_async(
            tasks(options), options.concurrency, timeout=options.timeout, retry=1
        )
        async for item in batch:
            outcomes.append((item.index, outcome(item)))
        summarise(outcomes)
        print(client.report())


if __name__ == "__main__":
    asyncio.run(main())
