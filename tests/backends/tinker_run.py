"""Runs a small training at a Tinker server, in the SDK's own environment; prints what was seen.

    python tinker_run.py FOLDER URL MODEL STEPS LOSS [STOP_AFTER]

The agent is the trainer tests' own: rewards by chance, in sessions of a local runtime. Interrupted
after a step by STOP_AFTER, and run again in the same folder, it goes on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.backends.tinker.loop import train
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.trainer import config as configs
from agentcore_rl_toolkit.trainer.config import Deployed
from agentcore_rl_toolkit.trainer.view import Silent, StepLine

AGENT = Path(__file__).resolve().parents[1] / "trainer" / "lucky_agent"


class Watching(Silent):
    def __init__(self, stop_after: int | None) -> None:
        self.steps: list[Any] = []
        self.stop_after = stop_after
        self.task: asyncio.Task[Any] | None = None

    def step(self, line: StepLine) -> None:
        self.steps.append(dataclasses.asdict(line))
        if line.step == self.stop_after and self.task is not None:
            self.task.cancel()


def make_config(folder: Path, url: str, model: str, steps: int, loss: str, arn: str) -> Any:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(4)))
    return configs.build(
        {
            "agent": {"arn": arn},
            "data": {"train": str(data)},
            "model": {"path": model},
            "rollout": {"group_size": 4, "tasks_per_step": 2, "sampling": {"max_tokens": 8}},
            "train": {"steps": steps, "lr": 1e-3, "save_every": 1},
            "backend": "tinker",
            "tinker": {"base_url": url, "rank": 8, "loss": loss, "max_difference": 1e-5},
        }
    )


async def watched(config: Any, run_dir: Path, where: Deployed, view: Watching) -> Any:
    view.task = asyncio.current_task()
    try:
        return dataclasses.asdict((await train(config, run_dir, where, view=view)).report)
    except asyncio.CancelledError:
        return None


def main() -> None:
    folder, url, model, steps, loss, *stop = sys.argv[1:]
    os.environ.setdefault("TINKER_API_KEY", "tml-local")
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    view, home = Watching(int(stop[0]) if stop else None), Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    with RuntimeThread(port=0, home=home / "home") as runtime:
        control = control_client(runtime.url)
        made = register(control, "lucky", AGENT, "rl_app.py", {})
        arn = str(made["agentRuntimeArn"])
        config = make_config(home, url, model, int(steps), loss, arn)
        where = Deployed(arn, runtime.url)
        report = asyncio.run(watched(config, home / "run", where, view))
    seen = {"steps": view.steps, "report": report}
    (home / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
