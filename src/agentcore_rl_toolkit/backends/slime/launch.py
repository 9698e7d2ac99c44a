"""``art train --backend slime``: the common configuration in slime's words.

``slime:`` holds further arguments of ``SlimeRunner``; they win. The rows, which are payloads, are
written to the run folder in the form that slime reads.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...trainer.config import TrainConfig
from ...trainer.rig import Deployed
from ...trainer.tasks import read_rows
from .runner import SlimeRunner

DATA = "slime.jsonl"


def run(config: TrainConfig, run_dir: Path, where: Deployed) -> None:
    runner = make(config, run_dir, where)
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = [json.dumps(_row(row)) + "\n" for row in read_rows(config.data.train)]
    (run_dir / DATA).write_text("".join(lines), encoding="utf-8")
    (run_dir / "config.yaml").write_text(config.resolved(), encoding="utf-8")
    runner.train(config.train.steps)


def make(config: TrainConfig, run_dir: Path, where: Deployed) -> SlimeRunner:
    rollout, own = config.rollout, dict(config.slime)
    known = {field.name for field in dataclasses.fields(SlimeRunner)}
    for key in own.keys() - known:
        raise ConfigError(f"unknown key slime.{key}: known are {', '.join(sorted(known))}")
    if "model_type" not in own:
        raise ConfigError("slime.model_type is missing: a name of slime's scripts/models")
    agentcore: dict[str, Any] = {
        "endpoint_url": where.endpoint_url,
        "tps_limit": config.agent.tps_limit,
        "max_concurrent": rollout.max_concurrent,
        "timeout_s": rollout.timeout_s,
        "retries": rollout.retries,
        "failed_reward": rollout.failed_reward,
        "served_name": config.model.served_name,
        "run_dir": str(run_dir.resolve()),
        **own.pop("agentcore", {}),
    }
    common: dict[str, Any] = {
        "exp_id": run_dir.name,
        "agent_runtime_arn": where.arn,
        "s3_bucket": config.agent.bucket,
        "model_dir": config.model.path,
        "data_path": str(run_dir.resolve() / DATA),
        "rollout_batch_size": rollout.tasks_per_step,
        "n_samples_per_prompt": rollout.group_size,
        "lr": config.train.lr,
        "save_dir": str(run_dir.resolve() / "checkpoints"),
        "agentcore": agentcore,
    }
    if "max_tokens" in rollout.sampling:
        common["max_response_len"] = rollout.sampling["max_tokens"]
    return SlimeRunner(**{**common, **own})


def _row(payload: Mapping[str, Any]) -> dict[str, Any]:
    """slime wants a prompt in every row; agents read what they want of the payload."""
    prompt = payload.get("prompt", "")
    return {"prompt": prompt if isinstance(prompt, str) else "", "metadata": dict(payload)}
