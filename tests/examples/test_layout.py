"""What every example has: files, a data tool that runs, a production app that answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from .conftest import EXAMPLES, load_runner

NAMES = load_runner().names()
FILES = ("README.md", "pyproject.toml", "reward.py", "make_data.py", "evaluate.py", "oracle.py")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_complete_and_its_readme_names_its_files(name: str) -> None:
    folder = EXAMPLES / name
    assert [file for file in FILES if not (folder / file).is_file()] == []
    for kind in ("basic_app", "rl_app"):
        assert list(folder.glob(f"*{kind}.py")), f"no {kind}"
    readme = (folder / "README.md").read_text()
    assert [p.name for p in folder.glob("*.py") if p.name not in readme] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_data_tool_writes_the_tasks_that_are_run(runner: ModuleType, name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name / "make_data.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    written = [json.loads(line) for line in done.stdout.splitlines()]
    (oracle,) = runner.load(EXAMPLES / name, "oracle")
    run = json.loads(json.dumps(list(oracle.tasks())))
    assert written[: len(run)] == run


def answer(
    runner: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    payload: dict[str, Any],
    app: str = "basic_app",
) -> dict[str, Any]:
    """What the production app says, with the oracle as its model."""
    oracle, module = runner.load(EXAMPLES / name, "oracle", app)
    with runner.serve(oracle.reply) as url:
        for variable, value in (("URL", url), ("KEY", "EMPTY"), ("ID", "scripted")):
            monkeypatch.setenv(f"MODEL_{variable}", value)
        context = [SimpleNamespace(session_id="s")]
        takes_two = len(inspect.signature(module.invoke).parameters) == 2
        said = module.invoke(payload, *(context if takes_two else ()))
        return dict(asyncio.run(said) if inspect.isawaitable(said) else said)


def test_the_service_agent_answers_a_real_customer(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"prompt": "anna_k: what is the dearest flight OSL-LIS on 3 March?"}
    said = answer(runner, monkeypatch, "customer_service_agent", asked)
    assert "at 150" in said["response"]


def test_the_app_agent_does_a_task(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said = answer(runner, monkeypatch, "strands_appworld_agent", {"task_id": "lunch"})
    assert "It is done." in said["response"]


def test_the_office_agent_works_on_a_folder(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dataset, formats = runner.load(EXAMPLES / "strands_officebench_agent", "dataset", "formats")
    row = next(row for row in dataset.rows() if row["id"] == "1-3")
    monkeypatch.setenv("OFFICE", str(dataset.testbed(row, tmp_path)))
    answer(runner, monkeypatch, "strands_officebench_agent", {"prompt": dataset.prompt(row)})
    assert formats.read_xlsx(tmp_path / "testbed" / "data" / "scores.xlsx")[4, 2] == "91"


@pytest.mark.parametrize("app", ["openai_basic_app", "langgraph_basic_app"])
def test_other_frameworks_answer(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, app: str
) -> None:
    asked = {"prompt": "What is the stock of hinge worth?"}
    said = answer(runner, monkeypatch, "other_frameworks", asked, app)
    assert said["response"] == "#### 252"
