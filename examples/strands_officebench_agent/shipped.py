"""The self-written tasks and their testbed, in OfficeBench's terms.

Names are OfficeBench's, too: ``2-3`` is the third task that needs two programs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import formats
from formats import Event

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


# --- checks, written short -------------------------------------------------------------------


def has(kind: str, where: str, *words: str) -> dict[str, Any]:
    return _check("contain", kind, where, words)


def lacks(kind: str, where: str, *words: str) -> dict[str, Any]:
    return _check("not_contain", kind, where, words)


def _check(name: str, kind: str, where: str, words: tuple[str, ...]) -> dict[str, Any]:
    place = "username" if kind == "email" else "file"
    args = {"doc_type": kind, place: where, "keywords": list(words)}
    return {"function": f"evaluate_{name}", "args": args}


def cells(file: str, *values: tuple[int, int, str]) -> dict[str, Any]:
    matches = [{"row": r, "col": c, "value": value} for r, c, value in values]
    return {"function": "evaluate_excel_cell_value", "args": {"file": file, "matches": matches}}


def free(user: str) -> dict[str, Any]:
    return {"function": "evaluate_calendar_no_overlap", "args": {"username": user}}


def only(*files: str) -> dict[str, Any]:
    return {"function": "evaluate_untouched", "args": {"but": list(files)}}


ANN, BOB = "calendar/Ann.ics", "calendar/Bob.ics"
TASKS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "1-1": (
        "Put 'Budget review' into Ann's calendar, on 2026-05-04 from 14:00 to 15:00.",
        [has("ics", ANN, "Budget review", "DTSTART:20260504T140000", "DTEND:20260504T150000",
             "Stand-up"), free("Ann"), only(ANN)],
    ),
    "1-2": (
        "Bob's visit to the dentist is cancelled. Take it out of his calendar.",
        [lacks("ics", BOB, "Dentist"), has("ics", BOB, "Stand-up"), only(BOB)],
    ),
    "1-3": (
        "Carol's score in data/scores.xlsx should be 91.",
        [cells("data/scores.xlsx", (2, 2, "84"), (3, 2, "77"), (4, 1, "Carol"), (4, 2, "91"),
               (5, 2, "")), only("data/scores.xlsx")],
    ),
    "1-4": (
        "Add the paragraph 'Lunch is served in the hall.' to the end of data/memo.docx.",
        [has("docx", "data/memo.docx", "Memo\nThe kitchen is closed on Monday.\n"
             "Lunch is served in the hall."), only("data/memo.docx")],
    ),
    "1-5": (
        "Write a mail from Ann to Bob with the subject 'Keys' that says: The keys are in the safe.",
        [has("email", "Bob", "From: Ann", "Subject: Keys", "The keys are in the safe."),
         only("emails/Bob/002.eml")],
    ),
    "2-1": (
        "Mail Bob, from Ann, the total of the sales in data/sales.xlsx, and no other number of it.",
        [has("email", "Bob", "1234"), lacks("email", "Bob", "410", "275", "549"),
         only("emails/Bob/002.eml")],
    ),
    "2-2": (
        "Put the meeting that Bob proposes to Ann by mail into both calendars, as 'Fjord'.",
        [has("ics", ANN, "DTSTART:20260507T130000", "DTEND:20260507T140000", "Fjord"),
         has("ics", BOB, "DTSTART:20260507T130000", "DTEND:20260507T140000", "Fjord"),
         free("Ann"), free("Bob"), only(ANN, BOB)],
    ),
    "2-3": (
        "Write into data/best.docx only the region of data/sales.xlsx that sells most.",
        [has("docx", "data/best.docx", "East"), lacks("docx", "data/best.docx", "North", "South"),
         only("data/best.docx")],
    ),
    "2-4": (
        "Make data/memo.pdf of data/memo.docx.",
        [has("pdf", "data/memo.pdf", "Memo", "The kitchen is closed on Monday."),
         lacks("pdf", "data/memo.pdf", "Lunch", "Drill"), only("data/memo.pdf")],
    ),
    "3-1": (
        "Put the drill that data/notice.pdf announces into Ann's calendar as 'Fire drill', and "
        "mail the contact, from Ann, that she has seen it: 'Seen: ' and the day as YYYY-MM-DD.",
        [has("ics", ANN, "Fire drill", "DTSTART:20260506T100000", "DTEND:20260506T103000"),
         has("email", "Carol", "Seen: 2026-05-06"), free("Ann"), only(ANN, "emails/Carol/001.eml")],
    ),
    "3-2": (
        "Add the person whom Carol's mail to Bob names to data/scores.xlsx, and write the names of "
        "those with 80 or more into data/passed.docx, one a line, in the order of the sheet.",
        [cells("data/scores.xlsx", (4, 2, "69"), (5, 1, "Dave"), (5, 2, "92"), (6, 1, "")),
         has("docx", "data/passed.docx", "Ann\nDave"),
         lacks("docx", "data/passed.docx", "Bob", "Carol", "Name"),
         only("data/scores.xlsx", "data/passed.docx")],
    ),
    "3-3": (
        "Write data/total.docx with the line 'Total: ' and the total of the sales in "
        "data/sales.xlsx, make data/total.pdf of it, and mail Ann, from Bob, the name "
        "of that file.",
        [has("docx", "data/total.docx", "Total: 1234"), has("pdf", "data/total.pdf", "Total: 1234"),
         lacks("docx", "data/total.docx", "410", "275"), has("email", "Ann", "total.pdf"),
         only("data/total.docx", "data/total.pdf", "emails/Ann/002.eml")],
    ),
}  # fmt: skip
