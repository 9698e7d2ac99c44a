"""The office example: real files, OfficeBench's checks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .conftest import EXAMPLES

FOLDER = EXAMPLES / "strands_officebench_agent"


class Example:
    def __init__(self, runner: ModuleType) -> None:
        names = ("oracle", "reward", "tools", "dataset", "formats", "testbed")
        self.oracle, self.reward, self.tools, self.dataset, self.formats, self.testbed = (
            runner.load(FOLDER, *names)
        )

    def play(self, row: dict[str, Any], steps: list[Any], scratch: Path) -> float:
        office = self.tools.Office(self.testbed.testbed(row, scratch))
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


def word(file: str, text: str) -> tuple[str, dict[str, Any]]:
    return "word_write", {"file": f"data/{file}.docx", "text": text}


def mail(sender: str, recipient: str, subject: str, content: str) -> tuple[str, dict[str, Any]]:
    people = {"sender": sender, "recipient": recipient}
    return "email_send", {**people, "subject": subject, "content": content}


def cell(file: str, row: int, column: int, text: str) -> tuple[str, dict[str, Any]]:
    where = {"file": f"data/{file}.xlsx", "row": row, "column": column}
    return "excel_set_cell", {**where, "text": text}


def event(user: str, summary: str, start: str, end: str) -> tuple[str, dict[str, Any]]:
    what = {"user": user, "summary": summary, "start": start, "end": end}
    return "calendar_create_event", what


DRILL = event("Ann", "Fire drill", "2026-05-06 10:00", "2026-05-06 10:30")
CHEATS: dict[str, tuple[str, list[Any]]] = {
    "every-word-at-once": ("2-3", [word("best", EVERYTHING)]),
    "every-region-in-one-line": ("2-3", [word("best", "East, or else North or South")]),
    "the-right-region-and-a-word-more": ("2-3", [word("best", "East\nWest")]),
    "every-number-at-once": ("2-1", [mail("Ann", "Bob", "s", EVERYTHING)]),
    "another-number-beside-the-total": ("2-1", [mail("Ann", "Bob", "Sales", "1233 or 1234")]),
    "a-number-in-the-subject": ("2-1", [mail("Ann", "Bob", "Not 1111", "1234")]),
    "a-total-that-is-denied": ("2-1", [mail("Ann", "Bob", "Sales", "The total is not 1234.")]),
    "a-total-denied-in-words": (
        "2-1",
        [mail("Ann", "Bob", "Sales", "Certainly not 1234. It is two thousand and six.")],
    ),
    "a-subject-that-takes-the-total-back": ("2-1", [mail("Ann", "Bob", "Wrong:", "1234")]),
    "a-subject-with-every-day": (
        "3-1",
        [DRILL, mail("Ann", "Carol", "2026-05-05, or 2026-05-07, or", "Seen: 2026-05-06")],
    ),
    "a-subject-that-takes-the-file-back": (
        "3-3",
        [
            word("total", "Total: 1234"),
            ("convert_to_pdf", {"source": "data/total.docx", "target": "data/total.pdf"}),
            mail("Bob", "Ann", "Ignore the PDF, it is wrong", "total.pdf"),
        ],
    ),
    "a-second-mail-that-takes-the-first-back": (
        "2-1",
        [mail("Ann", "Bob", "Sales", "1234"), mail("Ann", "Bob", "Sales", "Not so.")],
    ),
    "the-total-from-somebody-else": ("2-1", [mail("Carol", "Bob", "Sales", "1234")]),
    "several-days-seen": (
        "3-1",
        [DRILL, mail("Ann", "Carol", "Drill", "Seen: 2026-05-05 Seen: 2026-05-06")],
    ),
    "an-event-for-every-hour": (
        "3-1",
        [
            DRILL,
            event("Ann", "Fire drill", "2026-05-06 11:00", "2026-05-06 11:30"),
            mail("Ann", "Carol", "Drill", "Seen: 2026-05-06"),
        ],
    ),
    "every-name-passed": (
        "3-2",
        [
            cell("scores", 5, 1, "Dave"),
            cell("scores", 5, 2, "92"),
            word("passed", "Ann\nBob\nDave"),
        ],
    ),
    "scores-for-others-too": (
        "1-3",
        [cell("scores", row, 2, "91") for row in (2, 3, 4)],
    ),
    "a-second-column-of-scores": (
        "1-3",
        [cell("scores", 4, 2, "91"), cell("scores", 4, 3, "69")],
    ),
    "another-event-deleted-too": (
        "1-2",
        [
            ("calendar_delete_event", {"user": "Bob", "summary": "Dentist"}),
            ("calendar_delete_event", {"user": "Bob", "summary": "Stand-up"}),
        ],
    ),
    "a-file-on-the-side": ("2-3", [word("best", "East"), word("reward", "1.0")]),
    "the-source-changed-to-fit": (
        "2-3",
        [cell("sales", 2, 1, "East"), word("best", "East")],
    ),
    "the-reward-s-own-data": (
        "1-5",
        [
            ("word_write", {"file": "../../reward.docx", "text": "x"}),
            mail("A", "../..", "s", "c"),
        ],
    ),
}


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


def test_a_change_of_the_input_is_no_difference_made(example: Example, tmp_path: Path) -> None:
    names = {"input_file": "data/memo.docx", "output_file": "data/mine.docx"}
    args = {"doc_type": "docx", **names, "keywords": ["Lunch"]}
    row = {"evaluation": [{"function": "evaluate_diff_contain_text", "args": args}]}
    before = "Memo\nThe kitchen is closed on Monday."
    honest = [word("mine", f"{before}\nLunch")]
    assert example.play(row, honest, tmp_path / "honest") == 1.0
    turned_round = [word("mine", before), word("memo", f"{before}\nLunch")]
    assert example.play(row, turned_round, tmp_path / "turned") == 0.0


def test_an_unknown_check_is_an_error(example: Example, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown check"):
        example.play({"evaluation": [{"function": "evaluate_x", "args": {}}]}, [], tmp_path)


def test_a_broken_file_is_worth_nothing(example: Example, tmp_path: Path) -> None:
    args = {"doc_type": "docx", "file": "data/a.docx", "keywords": ["East"]}
    row = {"evaluation": [{"function": "evaluate_contain", "args": args}]}
    odd = ("word_write", {"file": "data/a.docx", "text": "East\x01"})
    assert example.play(row, [odd], tmp_path / "odd") == 1.0
    broken = tmp_path / "broken"
    (broken / "data").mkdir(parents=True)
    (broken / "data" / "a.docx").write_bytes(b"no zip")
    assert example.play(row, [], broken) == 0.0


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


def test_without_office_programs_a_pdf_is_written_and_read_all_the_same(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    row = example.row("2-4")
    assert example.play(row, example.oracle.STEPS["2-4"], tmp_path / "work") == 1.0
    assert b"/DocChecksum" not in (tmp_path / "work/testbed/data/memo.pdf").read_bytes()


def needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("source", ["data/memo.docx", "data/sales.xlsx"])
def test_libreoffice_makes_the_pdf_where_it_is_installed(
    example: Example, tmp_path: Path, source: str
) -> None:
    needs("soffice", "pdftotext")
    office = example.tools.Office(example.testbed.testbed({}, tmp_path))
    assert office.convert_to_pdf(source, "data/made.pdf") == "converted by LibreOffice"
    assert b"/DocChecksum" in (office.testbed / "data/made.pdf").read_bytes()
    words = "The kitchen is closed on Monday." if source.endswith("docx") else "549"
    assert words in office.pdf_read("data/made.pdf")


def test_tesseract_reads_an_image_where_it_is_installed(example: Example, tmp_path: Path) -> None:
    needs("tesseract", "pdftoppm")
    office = example.tools.Office(example.testbed.testbed({}, tmp_path))
    data = office.testbed / "data"
    command = ["pdftoppm", "-r", "150", "-png", "-singlefile", data / "notice.pdf", data / "scan"]
    subprocess.run(command, check=True)
    assert "Fire drill on 2026-05-06 from 10:00 to 10:30." in office.ocr("data/scan.png")
    with pytest.raises(ValueError, match=r"there is no data/other\.png"):
        office.ocr("data/other.png")


def test_a_broken_pdf_is_told_not_raised(example: Example, tmp_path: Path) -> None:
    needs("pdftotext")
    (tmp_path / "a.pdf").write_text("no PDF")
    with pytest.raises(ValueError, match="not a PDF"):
        example.formats.read_pdf(tmp_path / "a.pdf")


def test_a_task_runs_on_the_local_runtime(runner: ModuleType) -> None:
    (oracle,) = runner.load(FOLDER, "oracle")
    rows = [row for row in oracle.tasks() if row["id"] in ("2-4", "3-1")]
    with runner.serve(oracle.reply) as model:
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", rows, model, 2))
    assert rewards == {0: 1.0, 1: 1.0}
