"""Starts rllm's trainer: ``python -m agentcore_rl_toolkit.backends.rllm PLAN``.

Runs in rllm's environment, started by ``launch``, which wrote the plan. rllm has no setting for
its gateway or its engine of remote rollouts, so ours take their names before its trainer asks for
them; with verl its trainer lives in a Ray actor, where they do not reach.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ...trainer.tasks import read_rows


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from rllm.trainer import AgentTrainer  # type: ignore[import-not-found]

    if plan["backend"] == "tinker":
        _take_part(plan)
    evaluation = _dataset(plan["eval"], "test", plan["eval_tasks"]) if plan["eval"] else None
    AgentTrainer(
        backend=plan["backend"],
        config=compose(plan["overrides"]),
        train_dataset=_dataset(plan["train"], "train"),
        val_dataset=evaluation,
    ).train()


def compose(overrides: list[str]) -> Any:
    import hydra  # type: ignore[import-not-found]

    with hydra.initialize_config_module("rllm.trainer.config", version_base=None):
        return hydra.compose("unified", overrides=overrides)


def _take_part(plan: dict[str, Any]) -> None:
    from rllm.engine import remote_agent_flow_engine  # type: ignore[import-not-found]
    from rllm.gateway import manager  # type: ignore[import-not-found]

    from .flow import make_flow

    flow = make_flow(Path(plan["run_dir"]), plan["retries"], plan["failed_reward"])
    remote_agent_flow_engine.RemoteAgentFlowEngine = flow
    if plan["capture"] == "agentcore":
        from .capture import make_manager

        manager.GatewayManager = make_manager(Path(plan["run_dir"]))


def _dataset(path: str, split: str, limit: int | None = None) -> Any:
    from rllm.data.dataset import Dataset  # type: ignore[import-not-found]

    return Dataset(data=read_rows(path, limit), name="agentcore", split=split)


if __name__ == "__main__":
    main()
