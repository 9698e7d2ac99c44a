"""What the examples' ``evaluate.py`` share: a data file in, each task's reward and the success out.

``art eval`` does the same and resumes; this is the short version to start one's own from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit import RolloutClient


def evaluate(what: str, concurrency: int, timeout: float) -> None:
    """The whole script of an example; ``what`` is evaluated, in words."""
    options = parse_arguments(what, concurrency, timeout)
    with client_of(options) as client:
        batch = client.run_batch(
            tasks(options), options.concurrency, timeout=options.timeout, retry=1
        )
        summarise([(item.index, outcome(item)) for item in batch])
        print(client.report())


def parse_arguments(what: str, concurrency: int, timeout: float) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Success of the deployed {what}.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--agent", required=True, help="ARN of the agent")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model-id", required=True)
    parser.add_argument("--bucket", default="rollouts")
    parser.add_argument("--endpoint", help="URL of the local runtime, if not the usual one")
    parser.add_argument("--concurrency", type=int, default=concurrency)
    parser.add_argument("--timeout", type=float, default=timeout)
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
    else:
        print("success: unknown, because every rollout failed")
