"""``art train --backend slime``: the common configuration in slime's words.

``slime:`` holds further arguments of ``SlimeRunner``; they win, its ``extra_flags`` over whatever
our keys say. The rows, which are payloads, are written to the run folder in the form that slime
reads. What slime has no word for is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...trainer.config import ANYWHERE, Deployed, TrainConfig
from ...trainer.setting import TrainSetting
from ...trainer.tasks import read_rows
from ..child import mapping
from .runner import SlimeRunner

DATA, EVAL = "slime.jsonl", "slime-eval.jsonl"
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")


def run(config: TrainConfig, run_dir: Path, where: Deployed) -> None:
    runner = make(config, run_dir, where)
    runner.find()
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(run_dir / DATA, read_rows(config.data.train))
    if _evaluates(config):
        _write(run_dir / EVAL, read_rows(str(config.data.eval), config.loop.eval_tasks))
    (run_dir / "config.yaml").write_text(config.resolved(), encoding="utf-8")
    runner.train(config.train.steps)


def check(config: TrainConfig) -> None:
    """ConfigError for what slime cannot honour."""
    make(config, Path(config.run_dir), ANYWHERE)


def make(config: TrainConfig, run_dir: Path, where: Deployed) -> SlimeRunner:
    _check(config)
    rollout, own = config.rollout, dict(config.slime)
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
        **mapping(own, "slime", "agentcore"),
    }
    common: dict[str, Any] = {
        "exp_id": run_dir.name,
        "agent_runtime_arn": where.arn,
        "s3_bucket": config.agent.bucket,
        "model_dir": config.model.path,
        "data_path": str(run_dir.resolve() / DATA),
        "rollout_batch_size": rollout.tasks_per_step,
        "n_samples_per_prompt": rollout.group_size,
        "max_tokens_per_gpu": config.train.batch_tokens,
        "lr": config.train.lr,
        "shuffle": config.data.shuffle,
        "save_dir": str(run_dir.resolve() / "checkpoints"),
        "save_interval": config.loop.save_every or config.train.steps,
        "wandb_project": (config.track.wandb or {}).get("project"),
    }
    if "max_tokens" in rollout.sampling:
        common["max_response_len"] = rollout.sampling["max_tokens"]
    flags = [*_flags(config, run_dir), *own.get("extra_flags", ())]
    given = {**common, **own, "agentcore": agentcore, "extra_flags": flags}
    return SlimeRunner.of(given, "slime")


def _check(config: TrainConfig) -> None:
    train, sampling = config.train, config.rollout.sampling
    refused = {
        "train.max_staleness": config.loop.max_staleness != 0,
        "train.epochs": train.epochs != 1,
        "train.lora": train.lora is not None,
        "train.normalise: constant": train.normalise == "constant",
        "track.tensorboard": config.track.tensorboard,
    }
    refused |= {f"rollout.sampling.{key}": True for key in sampling.keys() - set(SAMPLING)}
    for name, used in refused.items():
        if used:
            raise ConfigError(
                f"{name} has no effect with backend slime: leave it out, or say it in slime's own "
                "flags under slime.extra_flags"
            )
    if sampling.get("top_p", 1) != 1:
        raise ConfigError("rollout.sampling.top_p must be 1 with backend slime")
    if config.rollout.tasks_per_step * config.rollout.group_size % train.minibatches:
        raise ConfigError("train.minibatches must divide the rollouts of a step")


def _flags(config: TrainConfig, run_dir: Path) -> list[str]:
    """Those that ``SlimeRunner`` has no argument for."""
    train, rollout, sampling = config.train, config.rollout, config.rollout.sampling
    batch = rollout.tasks_per_step * rollout.group_size // train.minibatches
    found: dict[str, Any] = {
        "--rollout-temperature": sampling["temperature"],
        "--rollout-seed": train.seed,
        "--global-batch-size": batch,
        "--eps-clip": train.clip_low,
        "--eps-clip-high": train.clip_high,
        "--tis-clip": train.max_importance,
        **_optimiser(train),
    }
    if sampling.get("top_k", 0) > 0:
        found["--rollout-top-k"] = sampling["top_k"]
    if config.model.max_tokens is not None:
        found["--sglang-context-length"] = config.model.max_tokens
    if train.kl > 0:
        found |= {"--kl-loss-coef": train.kl, "--kl-loss-type": "low_var_kl"}
    if train.gradient_checkpointing:
        found |= {"--recompute-granularity": "full", "--recompute-method": "uniform"}
        found["--recompute-num-layers"] = 1
    words = [str(word) for pair in found.items() for word in pair]
    if _evaluates(config):
        words += ["--eval-prompt-data", "agentcore", str(run_dir.resolve() / EVAL)]
        words += ["--eval-interval", str(config.loop.eval_every)]
    switches = {
        "--use-kl-loss": train.kl > 0,
        "--disable-grpo-std-normalization": not train.scale_by_std,
        "--calculate-per-token-loss": train.normalise == "token",
    }
    return [*words, *(name for name, on in switches.items() if on)]


def _optimiser(train: TrainSetting) -> dict[str, Any]:
    """In Megatron's words."""
    found: dict[str, Any] = {
        "--lr-decay-style": train.schedule,
        "--lr-warmup-iters": train.warmup_steps,
        "--adam-beta1": train.betas[0],
        "--adam-beta2": train.betas[1],
        "--weight-decay": train.weight_decay,
        "--clip-grad": train.max_grad_norm,
    }
    if train.schedule != "constant":
        found["--min-lr"] = train.lr * train.final_lr
    return found


def _evaluates(config: TrainConfig) -> bool:
    return config.data.eval is not None and config.loop.eval_every > 0


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(_row(row)) + "\n" for row in rows), encoding="utf-8")


def _row(payload: Mapping[str, Any]) -> dict[str, Any]:
    """slime wants a prompt in every row; agents read what they want of the payload."""
    prompt = payload.get("prompt", "")
    return {"prompt": prompt if isinstance(prompt, str) else "", "metadata": dict(payload)}
