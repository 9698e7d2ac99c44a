"""``SlimeRunner``: slime's own ``train.py``, with the flags that rollouts of an agent need.

It starts one process and waits for it. That process joins the Ray cluster of ``RAY_ADDRESS``, or
starts one that ends with it; nothing else on the machine is touched. slime is not on PyPI: its
checkout is ``slime_dir``, by default where ``slime`` is imported from or ``SLIME_DIR``.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ..bridge import BridgeSetting, typed
from ..child import run_child

logger = logging.getLogger(__name__)

GENERATE = "agentcore_rl_toolkit.backends.slime.generate.generate"
POST_PROCESS = "agentcore_rl_toolkit.backends.slime.reward.post_process"
MODEL_ARGS = 'source "$1" && printf "%s\\0" "${MODEL_ARGS[@]}"'


@dataclasses.dataclass(frozen=True)
class SlimeRunner:
    exp_id: str
    """First part of every result's key."""
    agent_runtime_arn: str
    s3_bucket: str
    model_dir: str
    """Hugging Face folder of the model; Megatron's own form of it is ``ref_load``."""
    data_path: str
    """JSONL: ``{"prompt": …, "metadata": {payload fields}}``."""
    model_type: str
    """Name of a file in slime's ``scripts/models``, such as ``qwen3-4B``."""
    num_gpus: int = 8
    tp_size: int = 2
    rollout_gpus_per_engine: int = 2
    wandb_project: str | None = None
    wandb_group: str | None = None
    extra_flags: Sequence[str] = ()
    """Given to slime after all others, so they win."""
    _: dataclasses.KW_ONLY
    ref_load: str | None = None
    """None: ``{model_dir}_torch_dist``, as slime's conversion tool names it."""
    save_dir: str | None = None
    """Where checkpoints go and are resumed from; None: none are saved."""
    save_interval: int = 20
    rollout_batch_size: int = 32
    """Tasks a step."""
    n_samples_per_prompt: int = 8
    max_response_len: int = 8192
    """Of one model turn."""
    max_tokens_per_gpu: int = 9216
    lr: float = 1e-6
    shuffle: bool = True
    """A new order of the tasks in every epoch."""
    agentcore: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further settings of the rollouts, see ``BridgeSetting``: ``timeout_s``, ``tps_limit`` …"""
    slime_dir: str | None = None
    megatron_dir: str | None = None
    """None: Megatron is importable, or ``MEGATRON_DIR``."""

    @classmethod
    def from_yaml(cls, path: str | Path) -> SlimeRunner:
        """One key a field; ConfigError names the key that is none or is missing."""
        import yaml  # type: ignore[import-untyped]

        try:
            value = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"the configuration cannot be read: {error}") from None
        if not isinstance(value, dict):
            raise ConfigError(f"{path} must hold a mapping with exp_id, agent_runtime_arn …")
        return cls.of(value, str(path))

    @classmethod
    def of(cls, value: Mapping[str, Any], where: str) -> SlimeRunner:
        """From plain data, as ``from_yaml``; ``where`` it comes from."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key in value:
            if key not in fields:
                near = difflib.get_close_matches(str(key), fields, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields)}"
                raise ConfigError(f"{where}: unknown key {key!r}: {hint}")
        none = dataclasses.MISSING
        needed = [n for n, f in fields.items() if f.default is none and f.default_factory is none]
        if missing := [name for name in needed if name not in value]:
            raise ConfigError(f"{where} lacks {', '.join(missing)}")
        flags = value.get("extra_flags")
        if isinstance(flags, list | tuple):
            value = {**value, "extra_flags": tuple(map(str, flags))}
        made = typed(value, cls, where, strict=False)  # YAML takes 1e-6 for text
        BridgeSetting.of(made.setting())
        return made

    def __post_init__(self) -> None:
        if isinstance(self.extra_flags, str):
            raise ConfigError("extra_flags is a list of words, such as ['--lr', '2e-6']")
        if self.rollout_gpus_per_engine < 1:
            raise ConfigError("rollout_gpus_per_engine must be at least 1")
        if self.num_gpus < 1 or self.num_gpus % self.rollout_gpus_per_engine:
            raise ConfigError("num_gpus must be a multiple of rollout_gpus_per_engine")

    def train(self, num_rollout: int = 1) -> None:
        """Runs slime for that many steps; ToolkitError when it does not end well."""
        with tempfile.TemporaryDirectory(prefix="art-slime-") as folder:
            config = Path(folder) / "agentcore.yaml"
            # JSON is YAML, and needs no package in slime's image
            config.write_text(json.dumps({"agentcore": self.setting()}))
            command = self.command(num_rollout, config)
            logger.info("command=<%s> | slime starts", " ".join(command))
            run_child("slime", command, self._variables(), self._home())

    def find(self) -> None:
        """ConfigError when slime is not there, or does not know the model."""
        self._model_args()

    def setting(self) -> dict[str, Any]:
        """Of ``BridgeSetting``, as slime's workers get it."""
        own = {"arn": self.agent_runtime_arn, "bucket": self.s3_bucket, "exp_id": self.exp_id}
        return {**own, **self.agentcore}

    def command(self, num_rollout: int, config: Path) -> list[str]:
        flags = {
            "--actor-num-nodes": 1,
            "--actor-num-gpus-per-node": self.num_gpus,
            "--hf-checkpoint": self.model_dir,
            "--ref-load": self.ref_load or f"{self.model_dir.rstrip('/')}_torch_dist",
            "--prompt-data": self.data_path,
            "--input-key": "prompt",
            "--metadata-key": "metadata",
            "--num-rollout": num_rollout,
            "--rollout-batch-size": self.rollout_batch_size,
            "--n-samples-per-prompt": self.n_samples_per_prompt,
            "--global-batch-size": self.rollout_batch_size * self.n_samples_per_prompt,
            "--rollout-max-response-len": self.max_response_len,
            "--rollout-temperature": 1,
            "--custom-generate-function-path": GENERATE,
            "--custom-reward-post-process-path": POST_PROCESS,
            "--custom-config-path": config,
            "--advantage-estimator": "grpo",
            "--eps-clip": 0.2,
            "--eps-clip-high": 0.28,
            "--optimizer": "adam",
            "--lr": self.lr,
            "--lr-decay-style": "constant",
            "--tensor-model-parallel-size": self.tp_size,
            "--max-tokens-per-gpu": self.max_tokens_per_gpu,
            "--rollout-num-gpus-per-engine": self.rollout_gpus_per_engine,
            "--attention-dropout": 0.0,
            "--hidden-dropout": 0.0,
        }
        if self.save_dir:
            flags |= {"--load": self.save_dir, "--save": self.save_dir}
            flags["--save-interval"] = self.save_interval
        words = [word for name, value in flags.items() for word in (name, str(value))]
        # captured log-probabilities correct for rollouts of older weights
        switches = ["--colocate", "--use-dynamic-batch-size", "--use-tis"]
        if self.shuffle:
            switches.append("--rollout-shuffle")
        if self.tp_size > 1:
            switches.append("--sequence-parallel")
        train = [sys.executable, str(self._home() / "train.py"), *self._model_args()]
        return [*train, *switches, *words, *self._tracking(), *map(str, self.extra_flags)]

    def _tracking(self) -> list[str]:
        if self.wandb_project is None:
            return []
        group = ["--wandb-group", self.wandb_group] if self.wandb_group else []
        return ["--use-wandb", "--wandb-project", self.wandb_project, *group]

    def _model_args(self) -> list[str]:
        """Megatron's description of the model, from slime's shell script for it."""
        folder = self._home() / "scripts" / "models"
        script = folder / f"{self.model_type}.sh"
        if not script.is_file():
            known = sorted(path.stem for path in folder.glob("*.sh"))
            near = difflib.get_close_matches(self.model_type, known, 3, 0.3)
            raise ConfigError(f"slime has no model type {self.model_type!r}; near: {near}")
        command = ["bash", "-c", MODEL_ARGS, "bash", str(script)]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=folder)
        return found.stdout.decode().split("\0")[:-1]

    def _home(self) -> Path:
        given = self.slime_dir or os.environ.get("SLIME_DIR")
        if given is None:
            spec = importlib.util.find_spec("slime")
            where = list(spec.submodule_search_locations or ()) if spec is not None else []
            given = str(Path(where[0]).parent) if where else None
        if given is None or not (Path(given) / "train.py").is_file():
            raise ConfigError(
                "slime was not found: check https://github.com/THUDM/slime out and name the folder "
                "in slime_dir or SLIME_DIR"
            )
        return Path(given).resolve()

    def _variables(self) -> dict[str, str]:
        megatron = self.megatron_dir or os.environ.get("MEGATRON_DIR")
        paths = [str(self._home()), megatron, os.environ.get("PYTHONPATH")]
        return {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYTHONUNBUFFERED": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        }
