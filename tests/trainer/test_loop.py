"""Whole training runs, small: real sessions, gateway, engine and optimiser."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.errors import ConfigError, ContractError
from agentcore_rl_toolkit.run import RunReader
from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.trainer import config as configs
from agentcore_rl_toolkit.trainer.config import Deployed
from agentcore_rl_toolkit.trainer.loop import Outcome, train
from agentcore_rl_toolkit.trainer.rig import load_tokenizer
from agentcore_rl_toolkit.trainer.view import EvalLine, Silent, StepLine

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "examples" / "demo_policy" / "model"
AGENT = HERE / "lucky_agent"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with RuntimeThread(port=0, home=tmp_path_factory.mktemp("home")) as runtime:
        control = control_client(runtime.url)
        made = register(control, "lucky", AGENT, "rl_app.py", {})
        control.close()
        yield Deployed(str(made["agentRuntimeArn"]), runtime.url)


@pytest.fixture
def config(tmp_path: Path, where: Deployed) -> configs.TrainConfig:
    return make_config(tmp_path, where, [{"prompt": f"Say {i}."} for i in range(5)])


def make_config(folder: Path, where: Deployed, rows: list[Any], **train: Any) -> Any:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return configs.build(
        {
            "agent": {"arn": where.arn, "endpoint_url": where.endpoint_url},
            "data": {"train": str(data), "eval": str(data)},
            "model": {"path": str(MODEL), "threads": 1},
            "rollout": {
                "group_size": 4,
                "tasks_per_step": 2,
                "timeout_s": 60,
                "sampling": {"max_tokens": 6},
            },
            "train": {"steps": 2, "lr": 1e-4, "eval_every": 0, "eval_tasks": 2, **train},
        }
    )


class Watching(Silent):
    def __init__(self, stop_after: int | None = None) -> None:
        self.steps: list[StepLine] = []
        self.evals: list[EvalLine] = []
        self.notes: list[str] = []
        self._stop_after = stop_after
        self.task: asyncio.Task[Any] | None = None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, line: StepLine) -> None:
        self.steps.append(line)
        if line.step == self._stop_after and self.task is not None:
            self.task.cancel()

    def evaluated(self, line: EvalLine) -> None:
        self.evals.append(line)


async def run(config: Any, folder: Path, where: Deployed, view: Watching) -> Outcome:
    view.task = asyncio.current_task()
    return await train(config, folder, where, view=view)


async def test_a_run_changes_the_weights_and_leaves_a_complete_run_folder(
    config: Any, where: Deployed, tmp_path: Path
) -> None:
    folder, view = tmp_path / "run", Watching()
    outcome = await run(config, folder, where, view)
    assert outcome.steps == 2
    assert outcome.report.submitted == outcome.report.succeeded == 2 * 8 + 2 * 2
    assert [line.step for line in view.evals] == [0, 2]
    for line in view.steps:
        report = line.report
        assert report.agreement.tokens == report.tokens, "all tokens are of the current weights"
        assert report.agreement.max < 1e-4
        assert line.staleness == 0
        assert line.tokens > 0
    assert any(line.report.grad_norm > 0 for line in view.steps)
    reader = RunReader(folder)
    lines = list(reader.rollouts())
    assert len(lines) == outcome.report.submitted
    assert {line["phase"] for line in lines} == {"train", "eval"}
    assert [m["step"] for m in reader.metrics() if m["kind"] == "step"] == [1, 2]
    assert configs.load(folder / "config.yaml") == config
    assert (folder / "checkpoints" / "step-000002" / "model.safetensors").is_file()
    assert len(reader.sessions()) == len(lines)


async def test_an_interrupted_run_is_saved_and_goes_on_with_the_next_step(
    config: Any, where: Deployed, tmp_path: Path
) -> None:
    folder, view = tmp_path / "run", Watching(stop_after=1)
    with pytest.raises(asyncio.CancelledError):
        await run(config, folder, where, view)
    asyncio.current_task().uncancel()  # type: ignore[union-attr]
    assert "saved" in view.notes[-1]
    assert (folder / "checkpoints" / "step-000001").is_dir()
    again = Watching()
    outcome = await run(config, folder, where, again)
    assert [line.step for line in again.steps] == [2]
    assert outcome.steps == 2
    assert [line.step for line in again.evals] == [2], "the evaluation before is remembered"
    assert outcome.before == view.evals[0].success
    steps = {r["step"] for r in RunReader(folder).rollouts() if r["phase"] == "train"}
    assert steps == {0, 1}


async def test_a_folder_of_another_configuration_is_refused_by_key(
    config: Any, where: Deployed, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(config.resolved())
    other = dataclasses.replace(config, train=dataclasses.replace(config.train, lr=5e-5))
    with pytest.raises(ConfigError, match=r"train\.lr \(0\.0001, now 5e-05\)"):
        await train(other, folder, where)


async def test_collecting_ahead_keeps_within_the_staleness_bound(
    where: Deployed, tmp_path: Path
) -> None:
    rows = [{"prompt": f"Say {i}."} for i in range(5)]
    config = make_config(tmp_path, where, rows, max_staleness=1, steps=4, eval_tasks=1)
    view = Watching()
    await run(config, tmp_path / "run", where, view)
    assert [line.step for line in view.steps] == [1, 2, 3, 4]
    assert max(line.max_staleness for line in view.steps) <= 1
    assert any(line.report.stale_tokens for line in view.steps), "something was collected ahead"


async def test_an_agent_that_fails_on_every_row_stops_the_run_and_says_why(
    where: Deployed, tmp_path: Path
) -> None:
    config = make_config(tmp_path, where, [{"fail": "answer"}])
    with pytest.raises(ContractError, match=r"every task.*row 0.*answer.*fields"):
        await train(config, tmp_path / "run", where)


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        load_tokenizer(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model folder"):
        load_tokenizer(tmp_path)
