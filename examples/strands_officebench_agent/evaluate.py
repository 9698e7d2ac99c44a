"""Success of the deployed office agent, with any OpenAI-compatible model.

python make_data.py > tasks.jsonl
python evaluate.py tasks.jsonl --agent ARN --base-url http://127.0.0.1:8000/v1 --model-id my-model
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit import RolloutClient


def main() -> None:
    options = parse_arguments()
    with client_of(options) as client:
        batch = client.run_batch(
            tasks(options), options.concurrency, timeout=options.timeout, retry=1
        )
        summarise([(item.index, outcome(item)) for item in batch])
        print(client.report())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Success of the deployed office agent.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--agent", required=True, help="ARN of the agent")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model-id", required=True)
    parser.add_argument("--bucket", default="rollouts")
    parser.add_argument("--endpoint", help="URL of the local runtime, if not the usual one")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--limit", type=int, help="only the first tasks")
    return parser.parse_args()


def client_of(options: argparse.Namespace) -> RolloutClient:
    return RolloutClient(
        options.agent,
        options.bucket,
        "evaluation",
        base_url=options.base_url,
        model_id=options.model_id,
        endpoint_url=options.endpoint,
    )


def tasks(options: argparse.Namespace) -> list[dict[str, Any]]:
    lines = options.data.read_text().splitlines()
    return [json.loads(line) for line in lines if line][: options.limit]


def outcome(item: Any) -> float | str:
    return float(item.result["rewards"]) if item.success else f"failed: {item.failure}"


def summarise(outcomes: list[tuple[int, float | str]]) -> None:
    for index, reward in sorted(outcomes):
        print(f"task {index}: {reward}")
    rewards = [reward for _, reward in outcomes if isinstance(reward, float)]
    if rewards:
        solved = sum(reward >= 1.0 for reward in rewards)
        print(f"success: {100 * solved / len(rewards):.1f} % of {len(rewards)} rollouts")


if __name__ == "__main__":
    main()
