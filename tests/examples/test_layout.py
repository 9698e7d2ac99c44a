"""What every example has: files, a data tool that runs, a production app that answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore_rl_toolkit.runtime.agent import copy_folder

from .conftest import EXAMPLES, answered, load_runner

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


def test_the_list_of_examples_is_complete() -> None:
    listed = set(re.findall(r"\]\((\w+)\)", (EXAMPLES / "README.md").read_text()))
    assert listed == {file.parent.name for file in EXAMPLES.glob("*/README.md")}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("strands_migration_agent", "--source", "nowhere"), "no NAME/NAME.tar.gz in nowhere"),
        (("strands_migration_agent", "--pack", "target"), "--pack and REPO go together"),
        (("strands_officebench_agent", "--officebench", "nowhere"), "subtasks/*.json in nowhere"),
    ],
)
def test_a_data_tool_that_finds_nothing_says_so(arguments: tuple[str, ...], says: str) -> None:
    name, *rest = arguments
    command = [sys.executable, EXAMPLES / name / "make_data.py", *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("agentcore_math", "examples/agentcore_math/README.md says what it is for"),
        ("nothing", "there is no example 'nothing'"),
        (None, "no example named"),
    ],
)
def test_what_cannot_be_run_says_what_can(runner: ModuleType, name: str | None, says: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(says)) as error:
        runner.Example(name)
    assert "make example NAME=strands_math_agent" in str(error.value)


def test_an_example_that_lacks_its_program_says_only_that(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "run.py", "claude_code_agent"],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Claude Code is not here: install it with")


KNOW_THE_ANSWERS = {"oracle.py", "make_data.py", "tasks.py", "checks", "tasks.jsonl"}


@pytest.mark.parametrize(
    "name",
    [
        "strands_migration_agent",
        "strands_officebench_agent",
        "strands_appworld_agent",
        "customer_service_agent",
        "claude_code_agent",
    ],
)
def test_what_knows_the_answers_is_not_deployed(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "agent"
    shutil.copytree(EXAMPLES / name, copy)
    (copy / "tasks.jsonl").write_text("{}")
    copy_folder(copy, tmp_path / "deployed", "rl_app.py")
    deployed = {path.name for path in (tmp_path / "deployed").iterdir()}
    assert {"rl_app.py", "basic_app.py", "reward.py"} <= deployed
    assert not KNOW_THE_ANSWERS & deployed


PLANT = """
import sys
from pathlib import Path
folder = sys.path[0] = sys.argv[1]
__import__(sys.argv[2]).conceal()
Path(folder, "wave.py").write_text("planted = True")
import wave
print("planted" if hasattr(wave, "planted") else "the library's own")
"""


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("strands_migration_agent", "tools"),
        ("strands_appworld_agent", "world"),
        ("claude_code_agent", "claude_code"),
    ],
)
def test_a_module_planted_in_the_agent_s_folder_is_not_imported(
    name: str, module: str, tmp_path: Path
) -> None:
    copy = tmp_path / "agent"
    shutil.copytree(EXAMPLES / name, copy)
    done = subprocess.run(
        [sys.executable, "-c", PLANT, copy, module], capture_output=True, text=True, check=False
    )
    assert done.stdout == "the library's own\n", done.stderr


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


def test_the_service_agent_answers_a_real_customer(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"prompt": "anna_k: what is the dearest flight OSL-LIS on 3 March?"}
    said = answered(runner, monkeypatch, "customer_service_agent", asked)
    assert "Amount: 150" in said["response"]


def test_the_app_agent_does_a_task(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (tasks,) = runner.load(EXAMPLES / "strands_appworld_agent", "tasks")
    said = answered(runner, monkeypatch, "strands_appworld_agent", next(tasks.rows()))
    assert "It is done." in said["response"]


def test_the_office_agent_works_on_a_folder(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("dataset", "formats", "testbed")
    dataset, formats, testbed = runner.load(EXAMPLES / "strands_officebench_agent", *names)
    row = next(row for row in dataset.rows() if row["id"] == "1-3")
    monkeypatch.setenv("OFFICE", str(testbed.testbed(row, tmp_path)))
    answered(runner, monkeypatch, "strands_officebench_agent", {"prompt": testbed.prompt(row)})
    assert formats.read_xlsx(tmp_path / "testbed" / "data" / "scores.xlsx")[4, 2] == "91"


def at_once(*calls: tuple[str, Any]) -> tuple[Any, list[str]]:
    """A model that makes all its calls in one message, and what it is told."""
    told: list[str] = []

    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        told[:] = [str(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        return ("That is all.", []) if told else ("", list(calls))

    return reply, told


def test_commands_of_one_message_run_one_after_the_other(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "strands_migration_agent"
    (tasks,) = runner.load(EXAMPLES / name, "tasks")
    slow = ("shell", {"command": "sleep 0.5; echo built > result"})
    reply, told = at_once(slow, ("shell", {"command": "cat result"}))
    answered(runner, monkeypatch, name, next(tasks.shipped()), reply)
    assert "built" in told[1]


def test_pieces_of_code_of_one_message_run_one_after_the_other(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "strands_appworld_agent"
    (tasks,) = runner.load(EXAMPLES / name, "tasks")
    slow = ("execute", {"code": "import time; time.sleep(0.5); x = 6"})
    reply, told = at_once(slow, ("execute", {"code": "print(x * 7)"}))
    answered(runner, monkeypatch, name, next(tasks.rows()), reply)
    assert "42" in told[1]


def test_cells_that_are_set_in_one_message_are_all_set(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "strands_officebench_agent"
    formats, testbed = runner.load(EXAMPLES / name, "formats", "testbed")
    monkeypatch.setenv("OFFICE", str(testbed.testbed({}, tmp_path)))
    where = {"file": "data/many.xlsx", "column": 1}
    cells = [("excel_set_cell", {**where, "row": row, "text": str(row)}) for row in range(1, 21)]
    reply, _ = at_once(*cells)
    answered(runner, monkeypatch, name, {"prompt": "Count."}, reply)
    assert len(formats.read_xlsx(tmp_path / "testbed/data/many.xlsx")) == 20


@pytest.mark.parametrize("app", ["openai_basic_app", "langgraph_basic_app"])
def test_other_frameworks_answer(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, app: str
) -> None:
    asked = {"prompt": "What is the stock of hinge worth?"}
    said = answered(runner, monkeypatch, "other_frameworks", asked, app=app)
    assert said["response"] == "#### 252"
