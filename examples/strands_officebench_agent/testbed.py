"""The files of a task: the testbed of the shipped tasks, or a copy of OfficeBench's.

A row's ``testbed`` is a folder, absolute or inside this one; without it the row is a shipped task.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import formats
from formats import Event

HERE = Path(__file__).resolve().parent
SALES = [("Region", "Sales"), ("North", "410"), ("South", "275"), ("East", "549")]
SCORES = [("Name", "Score"), ("Ann", "84"), ("Bob", "77"), ("Carol", "69")]


def build_testbed(folder: Path) -> None:
    """The same files every time."""
    data = folder / "data"
    data.mkdir(parents=True)
    formats.write_xlsx(data / "sales.xlsx", _table(SALES))
    formats.write_xlsx(data / "scores.xlsx", _table(SCORES))
    formats.write_docx(data / "memo.docx", ["Memo", "The kitchen is closed on Monday."])
    notice = ["NOTICE", "Fire drill on 2026-05-06 from 10:00 to 10:30.", "Contact: Carol"]
    formats.write_pdf(data / "notice.pdf", notice)
    ann = [Event("20260504T090000", "20260504T100000", "Stand-up")]
    bob = [*ann, Event("20260505T080000", "20260505T083000", "Dentist")]
    formats.write_ics(folder / "calendar" / "Ann.ics", ann)
    formats.write_ics(folder / "calendar" / "Bob.ics", bob)
    text = "Let us meet on 2026-05-07 from 13:00 to 14:00 about the Fjord project. Bob"
    formats.write_eml(folder / "emails/Ann/001.eml", "Bob", "Ann", "Fjord", text)
    text = "Please note that Dave joins with a score of 92. Carol"
    formats.write_eml(folder / "emails/Bob/001.eml", "Carol", "Bob", "Scores", text)


def _table(rows: list[tuple[str, str]]) -> formats.Cells:
    return {(r, c): text for r, row in enumerate(rows, 1) for c, text in enumerate(row, 1)}


def testbed(row: dict[str, Any], into: Path) -> Path:
    """The files of a task, to be changed."""
    folder = into / "testbed"
    if row.get("testbed"):
        shutil.copytree(HERE / row["testbed"], folder)
    else:
        build_testbed(folder)
    for name in ("calendar", "emails", "data"):
        (folder / name).mkdir(exist_ok=True)
    return folder


def prompt(row: dict[str, Any]) -> str:
    when = f"Today is {row['date']} ({row['weekday']}), {row['time']}."
    return f"You work for {row['username']}. {when}\n{row['task']}"
