"""The embedded GRPO trainer: rows with rewards in, changed weights out.

Read ``step`` first: it is the whole of a training step, and every other file is one of its parts.
"""

from __future__ import annotations

from ..errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise MissingExtraError("train", "the embedded trainer") from error

from .advantage import Advantages, advantages
from .agree import Agreement, DisagreementError
from .checkpoint import CheckpointError, latest, load, save
from .optimiser import NotFiniteError
from .setting import LoraSetting, TrainSetting
from .step import StepReport, Trainer

__all__ = [
    "Advantages",
    "Agreement",
    "CheckpointError",
    "DisagreementError",
    "LoraSetting",
    "NotFiniteError",
    "StepReport",
    "TrainSetting",
    "Trainer",
    "advantages",
    "latest",
    "load",
    "save",
]
