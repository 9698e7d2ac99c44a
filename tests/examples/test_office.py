"""The office example: real files, OfficeBench's checks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .conftest import EXAMPLES

FOLDER = EXAMPLES / "strands_officebench_agent"


class Example:
    def __init__(self, runner: ModuleType) -> None:
        names = ("oracle", "reward", "tools", "dataset", "formats", "shipped")
        self.oracle, self.reward, self.tools, self.dataset, self.formats, self.shipped = (
            runner.load(FOLDER, *names)
        )

    def play(self, row: dict[str, Any], steps: list[Any], scratch: Path) -> float:
        office = self.tools.Office(self.dataset.testbed(row, scratch))
        reward = self.reward.OfficeReward(office.testbed)
        tools = {each.__name__: each for each in office.tools()}
        for name, arguments in steps:
            try:
                tools[name](**arguments)
            except ValueError:
                pass  # Strands tells the model; it goes on
        return float(reward(testbed=office.testbed, evaluation=row["evaluation"]))

    def row(self, name: str) -> dict[str, Any]:
        return next(dict(row) for row in self.dataset.rows() if row["id"] == name)


@pytest.fixture(scope="module")
def example(runner: ModuleType) -> Example:
    return Example(runner)


def test_the_oracle_does_every_task(example: Example, tmp_path: Path) -> None:
    rows = list(example.dataset.rows())
    rewards = {
        r["id"]: example.play(r, example.oracle.STEPS[r["id"]], tmp_path / r["id"]) for r in rows
    }
    assert rewards == dict.fromkeys(example.oracle.STEPS, 1.0)
    assert len(rewards) == 12


def test_doing_nothing_is_worth_nothing(example: Example, tmp_path: Path) -> None:
    rows = list(example.dataset.rows())
    assert [example.play(r, [], tmp_path / r["id"]) for r in rows] == [0.0] * 12


EVERYTHING = "North 410\nSouth 275\nEast 549\n1234\nTotal: 1234\nAnn\nBob\nCarol\nDave\nMemo"
PEOPLE = {"sender": "Ann", "recipient": "Bob"}
CHEATS: dict[str, tuple[str, list[Any]]] = {
    "every-word-at-once": ("2-3", [("word_write", {"file": "data/best.docx", "text": EVERYTHING})]),
    "every-number-at-once": (
        "2-1",
        [("email_send", {**PEOPLE, "subject": "s", "content": EVERYTHING})],
    ),
    "a-file-on-the-side": (
        "2-3",
        [
            ("word_write", {"file": "data/best.docx", "text": "East"}),
            ("word_write", {"file": "data/reward.docx", "text": "1.0"}),
        ],
    ),
    "the-source-changed-to-fit": (
        "2-3",
        [
            ("excel_set_cell", {"file": "data/sales.xlsx", "row": 2, "column": 1, "text": "East"}),
            ("word_write", {"file": "data/best.docx", "text": "East"}),
        ],
    ),
    "the-reward-s-own-data": (
        "1-5",
        [
            ("word_write", {"file": "../../reward.docx", "text": "x"}),
            ("email_send", {"sender": "A", "recipient": "../..", "subject": "s", "content": "c"}),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_worth_nothing(example: Example, tmp_path: Path, cheat: str) -> None:
    name, steps = CHEATS[cheat]
    assert example.play(example.row(name), steps, tmp_path / "a" / "b") == 0.0
    assert not (tmp_path / "reward.docx").exists()


def test_an_expected_file_that_was_changed_does_not_count(example: Example, tmp_path: Path) -> None:
    names = {"result_file": "data/mine.docx", "expected_file": "data/memo.docx"}
    check = {"function": "evaluate_exact_match", "args": {"doc_type": "docx", **names}}
    row = {"evaluation": [check]}
    right = "Memo\nThe kitchen is closed on Monday."
    mine = ("word_write", {"file": "data/mine.docx", "text": right})
    assert example.play(row, [mine], tmp_path / "right") == 1.0
    both = [("word_write", {"file": f"data/{n}.docx", "text": "x"}) for n in ("mine", "memo")]
    assert example.play(row, both, tmp_path / "changed") == 0.0


def test_an_unknown_check_is_an_error(example: Example, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown check"):
        example.play({"evaluation": [{"function": "evaluate_x", "args": {}}]}, [], tmp_path)


def test_officebench_s_layout_is_read_back(example: Example, tmp_path: Path) -> None:
    example.dataset.write(tmp_path / "bench")
    rows = list(example.dataset.officebench(tmp_path / "bench"))
    assert [row["id"] for row in rows] == [f"{name}/0" for name in example.oracle.STEPS]
    steps = example.oracle.STEPS["3-2"]
    row = next(row for row in rows if row["id"] == "3-2/0")
    assert example.play(row, steps, tmp_path / "work") == 1.0


def test_formats_are_read_back(example: Example, tmp_path: Path) -> None:
    formats = example.formats
    cells = {(1, 1): "a <b> & c", (2, 26): "-3.5", (10, 2): "x\ty"}
    formats.write_xlsx(tmp_path / "a.xlsx", cells)
    assert formats.read_xlsx(tmp_path / "a.xlsx") == cells
    formats.write_docx(tmp_path / "a.docx", ["één", "<two> & three"])
    assert formats.read_docx(tmp_path / "a.docx") == ["één", "<two> & three"]
    formats.write_pdf(tmp_path / "a.pdf", ["one (1)", "back\\slash"])
    assert [line for line in formats.read_pdf(tmp_path / "a.pdf") if line] == [
        "one (1)",
        "back\\slash",
    ]
    events = [formats.Event("20260101T100000", "20260101T110000", "A: b, c")]
    formats.write_ics(tmp_path / "a.ics", events)
    assert formats.read_ics(tmp_path / "a.ics") == events
    formats.write_eml(tmp_path / "a.eml", "Ann", "Bob", "Grüße", "Zeile 1\nZeile 2")
    assert "Subject: Grüße\n\nZeile 1\nZeile 2" in formats.read_eml(tmp_path / "a.eml")


def test_a_task_runs_on_the_local_runtime(runner: ModuleType) -> None:
    (oracle,) = runner.load(FOLDER, "oracle")
    rows = [row for row in oracle.tasks() if row["id"] in ("1-3", "3-1")]
    with runner.serve(oracle.reply) as model:
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", rows, model, 2))
    assert rewards == {0: 1.0, 1: 1.0}
