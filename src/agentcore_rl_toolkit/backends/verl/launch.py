"""Starts stock ``verl.trainer.main_ppo`` with the settings that our configuration implies.

What our keys say is said to verl in its own; ``verl:`` in the configuration has the last word, with
any key of verl's. Two keys there are ours: ``python``, the interpreter of verl's environment, and
``env``, variables of its processes; ``agentcore`` holds further fields of ``BridgeSetting``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

from ...errors import ConfigError
from ...trainer.config import ANYWHERE
from ..bridge import BridgeSetting
from ..child import interpreter, mapping, run_child
from ..override import words

if TYPE_CHECKING:
    from ...trainer.config import Deployed, TrainConfig
    from ...trainer.setting import TrainSetting

MODULE = "verl.trainer.main_ppo"
PACKAGE = "agentcore_rl_toolkit.backends.verl"
LOOP = "agentcore"
OWN = ("python", "env", "agentcore")
VERL_SAMPLING = ("temperature", "top_p", "top_k")
LOSS = {
    "rollout": "seq-mean-token-mean",
    "token": "token-mean",
    "constant": "seq-mean-token-sum-norm",
}


def run(config: TrainConfig, run_dir: Path, where: Deployed) -> None:
    """Returns when verl has ended well; ToolkitError when it has not."""
    python = interpreter(config.verl, "verl", "verl", "agentcore_rl_toolkit")
    command = [python, "-m", MODULE, *overrides(config, run_dir, where)]
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "agent_loop.yaml").write_text(loop_yaml())
    (run_dir / "config.yaml").write_text(config.resolved())
    run_child("verl", command, mapping(config.verl, "verl", "env"))


def check(config: TrainConfig) -> None:
    """ConfigError for what verl cannot honour."""
    rollout, train = config.rollout, config.train
    if rollout.tasks_per_step % train.minibatches:
        raise ConfigError(
            f"train.minibatches ({train.minibatches}) must divide rollout.tasks_per_step "
            f"({rollout.tasks_per_step}): verl splits a batch by tasks"
        )
    mapping(config.verl, "verl", "env")
    overrides(config, Path(config.run_dir), ANYWHERE)


def loop_yaml() -> str:
    """verl's list of agent loops, with ours in it."""
    return str(yaml.safe_dump([{"name": LOOP, "_target_": f"{PACKAGE}.loop.AgentCoreLoop"}]))


def overrides(config: TrainConfig, run_dir: Path, where: Deployed) -> list[str]:
    """Arguments of main_ppo, ours first: the last of two wins."""
    actor = _actor(config, run_dir)
    actor["rollout"]["custom"] = {"agentcore": _agentcore(config, run_dir, where)}
    theirs = {key: value for key, value in config.verl.items() if key not in OWN}
    return words({**_verl(config, run_dir), "actor_rollout_ref": actor}, theirs)


def _agentcore(config: TrainConfig, run_dir: Path, where: Deployed) -> dict[str, Any]:
    agent, rollout = config.agent, config.rollout
    setting = {
        "arn": where.arn,
        "endpoint_url": where.endpoint_url,
        "bucket": agent.bucket,
        "exp_id": run_dir.name,
        "tps_limit": agent.tps_limit,
        "max_concurrent": rollout.max_concurrent,
        "timeout_s": rollout.timeout_s,
        "retries": rollout.retries,
        "failed_reward": rollout.failed_reward,
        "served_name": config.model.served_name,
        "run_dir": str(run_dir.resolve() / "gateway"),
        **mapping(config.verl, "verl", "agentcore"),
    }
    BridgeSetting.of(setting)
    sampling = {k: v for k, v in rollout.sampling.items() if k not in VERL_SAMPLING}
    return {**setting, "sampling": sampling}


def _verl(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    train, loop = config.train, config.loop
    evaluates = config.data.eval is not None
    loggers = ["console", *(["tensorboard"] if config.track.tensorboard else [])]
    asynchronous = loop.max_staleness > 0
    return {
        "data": {
            "train_files": [config.data.train],
            "val_files": [config.data.eval or config.data.train],
            "train_batch_size": config.rollout.tasks_per_step,
            "shuffle": config.data.shuffle,
            "seed": train.seed,
            "val_max_samples": loop.eval_tasks or -1,
            "custom_cls": {"path": f"pkg://{PACKAGE}.dataset", "name": "Payloads"},
        },
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": train.scale_by_std,
            "rollout_correction": {
                "rollout_is": "token",
                "rollout_is_threshold": train.max_importance,
            },
        },
        "trainer": {
            "total_training_steps": train.steps,
            "total_epochs": 1_000_000,
            "test_freq": loop.eval_every if evaluates and loop.eval_every else -1,
            "val_before_train": evaluates,
            "save_freq": loop.save_every or -1,
            "max_actor_ckpt_to_keep": loop.keep_checkpoints,
            "default_local_dir": str(run_dir.resolve() / "checkpoints"),
            "project_name": (config.track.wandb or {}).get("project", "agentcore-rl-toolkit"),
            "experiment_name": run_dir.name,
            "logger": [*loggers, *(["wandb"] if config.track.wandb is not None else [])],
            "v1": {
                "trainer_mode": "colocate_async" if asynchronous else "sync",
                "sampler": {"max_off_policy_threshold": loop.max_staleness + 1},
                # of separate_async: it wants its mini-batches between two syncs to be the batch
                "separate_async": {"parameter_sync_step": train.minibatches},
            },
        },
    }


def _actor(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    train, rollout, lora = config.train, config.rollout, config.train.lora
    model: dict[str, Any] = {
        "path": config.model.path,
        "enable_gradient_checkpointing": train.gradient_checkpointing,
    }
    if lora is not None:
        targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        model |= {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "target_modules": targets}
    served: dict[str, Any] = {
        "n": rollout.group_size,
        "calculate_log_probs": True,
        "agent": {
            "default_agent_loop": LOOP,
            "agent_loop_manager_class": f"{PACKAGE}.manager.AgentCoreManager",
            "agent_loop_config_path": str(run_dir.resolve() / "agent_loop.yaml"),
        },
        **{name: rollout.sampling[name] for name in VERL_SAMPLING if name in rollout.sampling},
    }
    if config.model.max_tokens is not None:
        served["max_model_len"] = config.model.max_tokens
    return {
        "model": model,
        "rollout": served,
        "actor": {
            "ppo_mini_batch_size": max(1, rollout.tasks_per_step // train.minibatches),
            "ppo_epochs": train.epochs,
            "use_dynamic_bsz": True,
            "ppo_max_token_len_per_gpu": train.batch_tokens,
            "grad_clip": train.max_grad_norm,
            "clip_ratio_low": train.clip_low,
            "clip_ratio_high": train.clip_high,
            "loss_agg_mode": LOSS[train.normalise],
            "loss_scale_factor": train.constant_tokens if train.normalise == "constant" else None,
            "use_kl_loss": train.kl > 0,
            "kl_loss_coef": train.kl,
            "optim": _optimiser(train),
        },
    }


def _optimiser(train: TrainSetting) -> dict[str, Any]:
    if train.schedule not in ("constant", "cosine"):
        raise ConfigError(
            f"train.schedule: verl has no {train.schedule!r}: choose 'constant' or 'cosine'"
        )
    return {
        "lr": train.lr,
        "lr_warmup_steps": train.warmup_steps,
        "lr_scheduler_type": train.schedule,
        "min_lr_ratio": train.final_lr,
        "weight_decay": train.weight_decay,
        "betas": list(train.betas),
    }
