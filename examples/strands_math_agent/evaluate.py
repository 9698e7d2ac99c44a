"""Success of the deployed math agent on a data file, with any OpenAI-compatible model.

python evaluate.py test.jsonl --agent ARN --base-url http://127.0.0.1:8000/v1 --model-id my-model

On the local runtime and on AWS alike; ``--samples 4`` tries every problem four times. The command
``art eval`` does the same and resumes; this is the short version to start one's own from.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit import RolloutClient


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--agent", required=True, help="ARN of the agent")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model-id", required=True)
    parser.add_argument("--bucket", default="rollouts")
    parser.add_argument("--samples", type=int, default=1, help="rollouts of each problem")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=1.0)
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.data.read_text().splitlines() if line]
    payloads = [row for row in rows for _ in range(options.samples)]
    solved: dict[int, int] = {}
    counted = 0
    with RolloutClient(
        options.agent,
        options.bucket,
        "evaluation",
        base_url=options.base_url,
        model_id=options.model_id,
        sampling_params={"temperature": options.temperature},
    ) as client:
        batch = client.run_batch(
            payloads, max_concurrent_sessions=options.concurrency, retry=2, progress=show
        )
        for item in batch:
            if not item.success:
                print(f"problem {item.index // options.samples}: {item.failure}")
                continue
            counted += 1
            reward = item.result["rewards"]
            problem = item.index // options.samples
            solved[problem] = solved.get(problem, 0) + (reward >= 1.0)
        print(f"\n{client.report()}")
    if counted:
        print(f"success: {100 * sum(solved.values()) / counted:.1f} % of {counted} rollouts")
    if options.samples > 1 and rows:
        once = sum(1 for count in solved.values() if count)
        print(f"solved at least once in {options.samples}: {100 * once / len(rows):.1f} %")


def show(progress: Any) -> None:
    done = f"{progress.done} of {progress.submitted} ended, {progress.failed} failed"
    print(f"\r{done}, {progress.elapsed:.0f} s", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
