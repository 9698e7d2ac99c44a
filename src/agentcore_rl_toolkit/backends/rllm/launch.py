"""``art train --backend rllm``: the common configuration in rllm's words.

``rllm:`` in the configuration has the last word, with any key of rllm's. Four keys there are ours:
``python`` (interpreter of rllm's environment), ``env`` (variables of its process), ``backend``
(``tinker`` or ``verl``: who trains for rllm) and ``capture`` (``agentcore`` or ``rllm``: whose
gateway agents call). Resuming is rllm's own: the run folder holds its checkpoints.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client.pace import rate_of
from ...errors import ConfigError
from ...trainer.config import ANYWHERE
from ..child import interpreter, mapping, run_child
from ..override import words

if TYPE_CHECKING:
    from ...trainer.config import Deployed, TrainConfig

PACKAGE = "agentcore_rl_toolkit.backends.rllm"
PLAN = "rllm.json"
OWN = ("python", "env", "backend", "capture")
CHOICES = {"backend": ("tinker", "verl"), "capture": ("agentcore", "rllm")}
FOREVER = 1_000_000
"""Epochs: steps end the run."""


def run(config: TrainConfig, run_dir: Path, where: Deployed) -> None:
    """Returns when rllm has ended well; ToolkitError when it has not."""
    found = plan(config, run_dir, where)
    python = interpreter(config.rllm, "rllm", "rllm", "agentcore_rl_toolkit")
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    (run_dir / "config.yaml").write_text(config.resolved(), encoding="utf-8")
    (run_dir / PLAN).write_text(json.dumps(found), encoding="utf-8")
    command = [python, "-m", PACKAGE, str(run_dir / PLAN)]
    variables = mapping(config.rllm, "rllm", "env")
    if where.endpoint_url is not None:
        # rllm gives its client no address: it finds the runtime by these
        variables["AWS_ENDPOINT_URL_BEDROCK_AGENTCORE"] = where.endpoint_url
        variables["AWS_ENDPOINT_URL_S3"] = where.endpoint_url
    run_child("rllm", command, variables)


def check(config: TrainConfig) -> None:
    """ConfigError for what rllm cannot honour."""
    plan(config, Path(config.run_dir), ANYWHERE)


def plan(config: TrainConfig, run_dir: Path, where: Deployed) -> dict[str, Any]:
    """What ``__main__`` reads; ConfigError for what rllm cannot honour."""
    backend, capture = _choice(config, "backend"), _choice(config, "capture")
    if backend == "verl" and "capture" not in config.rllm:
        capture = "rllm"
    if (backend, capture) == ("verl", "agentcore"):
        raise ConfigError(
            "rllm.capture must be 'rllm' with rllm.backend 'verl': its trainer is a Ray actor that "
            "makes its own gateway. For our capture on verl use 'backend: verl'"
        )
    _check(config, backend)
    mapping(config.rllm, "rllm", "env")
    theirs = {key: value for key, value in config.rllm.items() if key not in OWN}
    sections = {"rllm": _rllm(config, run_dir, where)}
    sections |= _tinker(config, run_dir) if backend == "tinker" else _verl(config, run_dir)
    return {
        "backend": backend,
        "capture": capture,
        "overrides": [f"rllm/backend={backend}", *words(sections, theirs)],
        "train": config.data.train,
        "eval": config.data.eval,
        "eval_tasks": config.loop.eval_tasks,
        "retries": config.rollout.retries,
        "failed_reward": config.rollout.failed_reward,
        "run_dir": str(run_dir.resolve()),
    }


def _choice(config: TrainConfig, name: str) -> str:
    found = config.rllm.get(name, CHOICES[name][0])
    if found not in CHOICES[name]:
        raise ConfigError(f"rllm.{name} must be one of {', '.join(CHOICES[name])}")
    return str(found)


def _check(config: TrainConfig, backend: str) -> None:
    train, loop = config.train, config.loop
    refused = {
        "train.max_staleness": loop.max_staleness != 0,
        "train.epochs": train.epochs != 1,
        "data.shuffle: false": not config.data.shuffle,
    }
    if backend == "tinker":
        refused["train.minibatches"] = train.minibatches != 1
        refused["train.kl"] = train.kl != 0
        refused["train.weight_decay"] = train.weight_decay != 0
    elif config.rollout.tasks_per_step % train.minibatches:
        raise ConfigError("train.minibatches must divide rollout.tasks_per_step")
    for name, used in refused.items():
        if used:
            raise ConfigError(
                f"{name} has no effect with backend rllm: leave it out, or say it in rllm's own "
                "keys under 'rllm:'"
            )


def _rllm(config: TrainConfig, run_dir: Path, where: Deployed) -> dict[str, Any]:
    """What rllm reads whoever trains for it."""
    rollout, train, loop = config.rollout, config.train, config.loop
    evaluates = config.data.eval is not None
    loggers = ["console", *(["tensorboard"] if config.track.tensorboard else [])]
    return {
        "data": {**_data(config), "seed": train.seed},
        "rollout": {"train": dict(rollout.sampling), "val": dict(rollout.sampling)},
        "workflow": {"n_parallel_tasks": rollout.max_concurrent},
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": train.scale_by_std,
            "lr_schedule": train.schedule,
            "warmup_steps": train.warmup_steps or -1,
            "eps_clip": train.clip_low,
            "eps_clip_high": train.clip_high,
            "kl_beta": train.kl,
        },
        "trainer": {
            "total_batches": train.steps,
            "total_epochs": FOREVER,
            "test_freq": loop.eval_every if evaluates and loop.eval_every else -1,
            "val_before_train": evaluates,
            "save_freq": loop.save_every or -1,
            "project_name": (config.track.wandb or {}).get("project", "agentcore-rl-toolkit"),
            "experiment_name": run_dir.name,
            "logger": [*loggers, *(["wandb"] if config.track.wandb is not None else [])],
        },
        # what infrastructure failed is left out of its group; flow.py says which those are
        "compact_filtering": {
            "enable": True,
            "mask_error": True,
            "mask_timeout": True,
            "mask_max_prompt_length_exceeded": False,
            "mask_max_response_length_exceeded": False,
            "mask_max_turns_exceeded": False,
        },
        "remote_runtime": {
            "enabled": True,
            "backend": "agentcore",
            "session_timeout": rollout.timeout_s,
            "agentcore": {
                "agent_runtime_arn": where.arn,
                "s3_bucket": config.agent.bucket,
                # rllm's own setting is a whole number
                "tps_limit": max(1, int(rate_of(where.arn, config.agent.tps_limit))),
            },
        },
        "gateway": {"host": "127.0.0.1"},
    }


def _data(config: TrainConfig) -> dict[str, Any]:
    found: dict[str, Any] = {"train_batch_size": config.rollout.tasks_per_step}
    answer = config.rollout.sampling.get("max_tokens")
    if answer is not None:
        found["max_response_length"] = answer
    if config.model.max_tokens is not None:
        found["max_prompt_length"] = config.model.max_tokens - (answer or 0)
    return found


def _tinker(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    train = config.train
    model: dict[str, Any] = {"name": config.model.path}
    if train.lora is not None:
        model["lora_rank"] = train.lora.rank
    training: dict[str, Any] = {
        "group_size": config.rollout.group_size,
        "learning_rate": train.lr,
        "beta1": train.betas[0],
        "beta2": train.betas[1],
        "default_local_dir": str(run_dir.resolve() / "checkpoints"),
    }
    if config.model.max_tokens is not None:
        training["max_length"] = config.model.max_tokens
    return {
        "model": model,
        "training": training,
        "validation": {"group_size": 1},
        "data": _data(config),
    }


def _verl(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    train, rollout = config.train, config.rollout
    optim = {"lr": train.lr, "weight_decay": train.weight_decay, "betas": list(train.betas)}
    size = max(1, rollout.tasks_per_step // train.minibatches)
    actor = {"optim": optim, "grad_clip": train.max_grad_norm, "ppo_mini_batch_size": size}
    return {
        "actor_rollout_ref": {
            "model": {"path": config.model.path},
            "actor": actor,
            "rollout": {"n": rollout.group_size},
        },
        "trainer": {"default_local_dir": str(run_dir.resolve() / "checkpoints")},
        "data": _data(config),
    }
