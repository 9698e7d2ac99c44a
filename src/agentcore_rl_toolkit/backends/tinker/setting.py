"""Settings of a run at Tinker: the ``tinker`` section of the configuration, and what it excludes.

What the service cannot honour is refused at the start: a setting that is ignored is a wrong run.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Literal, get_args

from ...errors import ConfigError
from ...trainer.config import TrainConfig
from ...trainer.setting import TrainSetting
from ..bridge import typed

Loss = Literal["importance_sampling", "ppo", "cispo"]


@dataclasses.dataclass(frozen=True)
class TinkerSetting:
    base_url: str | None = None
    """Of the service; None: the SDK's own, or ``TINKER_BASE_URL``. The key is ``TINKER_API_KEY``,
    which keeps it out of files."""
    base_model: str | None = None
    """Name at the service; None: ``model.path``. The tokenizer is always that of ``model.path``."""
    rank: int = 32
    """Of the LoRA adapter that is trained."""
    loss: Loss = "importance_sampling"
    loss_config: dict[str, float] = dataclasses.field(default_factory=dict)
    """Of the loss, such as ``{clip_low_threshold: 0.8, clip_high_threshold: 1.28}``."""
    max_difference: float | None = None
    """Largest difference between captured and trainer log-probabilities; None: bounds on mean and
    99th percentile, as services compute in bfloat16."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TinkerSetting:
        """From plain data; ConfigError names the key that is none."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                raise ConfigError(f"unknown key 'tinker.{key}': {hint}")
        return typed(value, cls, "tinker")

    def __post_init__(self) -> None:
        if self.loss not in get_args(Loss):
            raise ConfigError(f"tinker.loss must be one of {', '.join(get_args(Loss))}")
        if self.rank < 1:
            raise ConfigError("tinker.rank must be at least 1")


def check(config: TrainConfig) -> TinkerSetting:
    """The setting; ConfigError for what another section asks and Tinker does not do."""
    setting, train = TinkerSetting.of(config.tinker), config.train
    refused = {
        "train.minibatches": train.minibatches != 1,
        "train.epochs": train.epochs != 1,
        "train.kl": train.kl != 0,
        "train.lora (the rank is tinker.rank)": train.lora is not None,
        "train.gradient_checkpointing": train.gradient_checkpointing,
    }
    plain = TrainSetting()
    for name in ("clip_low", "clip_high", "max_importance"):
        is_set = getattr(train, name) != getattr(plain, name)
        refused[f"train.{name} (bounds of the loss are tinker.loss_config)"] = is_set
    for name, used in refused.items():
        if used:
            raise ConfigError(f"{name} has no effect with backend tinker: leave it out")
    sampling = config.rollout.sampling
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
    for name, value in neutral.items():
        if sampling.get(name, value) not in (value, 0 if name == "top_k" else value):
            raise ConfigError(
                f"rollout.sampling.{name} must be {value} with backend tinker: its trainer "
                "computes log-probabilities of the plain distribution"
            )
    return setting
