"""Trains the deployed math agent with rllm: ``python train.py tinker|verl key=value …``.

The agent runs in AgentCore sessions, on AWS or on a local runtime; rllm's gateway captures its
model calls. Data: ``gsm8k_agentcore``, made by ``prepare_data.py``.
"""

from __future__ import annotations

import sys
from typing import Any

import hydra  # type: ignore[import-not-found]
from prepare_data import NAME
from rllm.data.dataset import DatasetRegistry  # type: ignore[import-not-found]

BACKEND = sys.argv.pop(1) if len(sys.argv) > 1 else ""


def data(split: str) -> Any:
    found = DatasetRegistry.load_dataset(NAME, split)
    if found is None:
        raise SystemExit(f"no data set {NAME}: run prepare_data.py first")
    return found


@hydra.main(config_path="pkg://rllm.trainer.config", config_name="unified", version_base=None)
def main(config: Any) -> None:
    if BACKEND == "tinker":
        from rllm.trainer.tinker.tinker_backend import (  # type: ignore[import-not-found]
            TinkerBackend,
        )
        from rllm.trainer.unified_trainer import (  # type: ignore[import-not-found]
            UnifiedTrainer,
        )

        trainer = UnifiedTrainer(
            backend_cls=TinkerBackend,
            config=config,
            train_dataset=data("train"),
            val_dataset=data("test"),
        )
        try:
            trainer.fit()
        finally:
            trainer.shutdown()
    elif BACKEND == "verl":
        from rllm.trainer import AgentTrainer  # type: ignore[import-not-found]

        sets = {"train_dataset": data("train"), "val_dataset": data("test")}
        AgentTrainer(backend="verl", config=config, **sets).train()
    else:
        raise SystemExit("write: python train.py tinker|verl key=value …")


if __name__ == "__main__":
    main()
