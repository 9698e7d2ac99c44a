"""One task in several frameworks, each on the local runtime with the same scripted model."""

from __future__ import annotations

from types import ModuleType

import pytest

from .conftest import EXAMPLES

FOLDER = EXAMPLES / "other_frameworks"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("entry", [file.name for file in sorted(FOLDER.glob("*_rl_app.py"))])
def test_every_question_is_answered(runner: ModuleType, entry: str) -> None:
    (oracle,) = runner.load(FOLDER, "oracle")
    if entry not in oracle.entries():
        pytest.skip(f"{oracle.NEEDS[entry]} is not installed")
    tasks = [*oracle.tasks(), {"prompt": "What is the stock of nut worth?", "answer": "1"}]
    with runner.serve(oracle.reply) as model:
        rewards = dict(runner.run_tasks(FOLDER.name, entry, tasks, model, 2))
    assert rewards == {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.0}


def test_every_app_has_its_entry(runner: ModuleType) -> None:
    (oracle,) = runner.load(FOLDER, "oracle")
    assert sorted(oracle.NEEDS) == sorted(file.name for file in FOLDER.glob("*_rl_app.py"))


def test_no_question_comes_again_before_all_have_come(runner: ModuleType) -> None:
    (warehouse,) = runner.load(FOLDER, "warehouse")
    rows = [row["prompt"] for row in warehouse.questions(30, seed=3)]
    assert len(set(rows[:15])) == len(set(rows[15:])) == 15
