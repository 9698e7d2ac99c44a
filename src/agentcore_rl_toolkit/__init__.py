"""Train the agent you deploy.

The public door. Names are loaded on first use, so that an agent container pays only for
``AgentCoreRLApp`` and a trainer only for ``RolloutClient``; the base install has all of them.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import AgentCoreRLApp
    from .client import BatchItem, RolloutClient, RolloutFuture
    from .errors import RolloutError, ToolkitError
    from .reward import (
        AllChecksPass,
        ExactMatch,
        FinalAnswer,
        NumericMatch,
        RewardFunction,
        WeightedSum,
    )
    from .rollout import Failure, FailureKind
    from .sandbox import Sandbox, SandboxClient

__version__ = "1.0.0.dev0"

__all__ = [  # noqa: RUF022 - grouped for the reader
    # agent side
    "AgentCoreRLApp",
    "RewardFunction",
    # ready rewards
    "AllChecksPass",
    "ExactMatch",
    "FinalAnswer",
    "NumericMatch",
    "WeightedSum",
    # trainer side
    "BatchItem",
    "RolloutClient",
    "RolloutFuture",
    # commands and files in a session
    "Sandbox",
    "SandboxClient",
    # how rollouts fail
    "Failure",
    "FailureKind",
    "RolloutError",
    "ToolkitError",
]  # fmt: skip

_HOME = {
    "AgentCoreRLApp": "app",
    "RewardFunction": "reward",
    "AllChecksPass": "reward",
    "ExactMatch": "reward",
    "FinalAnswer": "reward",
    "NumericMatch": "reward",
    "WeightedSum": "reward",
    "BatchItem": "client",
    "RolloutClient": "client",
    "RolloutFuture": "client",
    "Sandbox": "sandbox",
    "SandboxClient": "sandbox",
    "Failure": "rollout",
    "FailureKind": "rollout",
    "RolloutError": "errors",
    "ToolkitError": "errors",
}

# A library is silent until its user says otherwise.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
