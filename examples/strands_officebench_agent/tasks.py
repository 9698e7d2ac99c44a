"""The self-written tasks with their checks, in OfficeBench's terms.

Names are OfficeBench's, too: ``2-3`` is the third task that needs two programs. Beside its checks
by keyword each task has exact ones: its text says word for word what is to be written, so that an
answer with all candidates in it, or one that takes itself back, is a wrong one.
This file is not deployed (``.dockerignore``): the checks come with the payload.
"""

from __future__ import annotations

from typing import Any

Check = dict[str, Any]
STAND_UP = ("20260504T090000", "20260504T100000", "Stand-up")
DENTIST = ("20260505T080000", "20260505T083000", "Dentist")
FJORD = ("20260507T130000", "20260507T140000", "Fjord")
ANN, BOB = "calendar/Ann.ics", "calendar/Bob.ics"
BEST, MEMO, TOTAL = "data/best.docx", "data/memo.docx", "data/total.docx"
SCORES, PASSED = "data/scores.xlsx", "data/passed.docx"
KITCHEN = "Memo\nThe kitchen is closed on Monday."


# --- checks, written short -------------------------------------------------------------------


def check(name: str, **args: Any) -> Check:
    return {"function": f"evaluate_{name}", "args": args}


def has(kind: str, where: str, *words: str) -> Check:
    place = {"username" if kind == "email" else "file": where}
    return check("contain", doc_type=kind, **place, keywords=list(words))


def lacks(kind: str, where: str, *words: str) -> Check:
    return check("not_contain", doc_type=kind, file=where, keywords=list(words))


def cells(file: str, *values: tuple[int, int, str]) -> Check:
    matches = [{"row": r, "col": c, "value": value} for r, c, value in values]
    return check("excel_cell_value", file=file, matches=matches)


def free(user: str) -> Check:
    return check("calendar_no_overlap", username=user)


def only(*files: str) -> Check:
    return check("untouched", but=list(files))


def reads(file: str, *texts: str) -> Check:
    """The whole text is one of these."""
    return check("text_is", doc_type=file.rpartition(".")[2], file=file, texts=list(texts))


def table(file: str, *rows: tuple[str, str]) -> Check:
    return check("sheet_is", file=file, rows=[list(row) for row in rows])


def calendar(user: str, *events: tuple[str, str, str]) -> Check:
    return check("calendar_is", username=user, events=[list(event) for event in events])


def mail(file: str, sender: str, subject: str, *texts: str) -> Check:
    """The whole text is one of these."""
    return check("mail_is", file=file, sender=sender, subject=subject, texts=list(texts))


SHEET = [("Name", "Score"), ("Ann", "84"), ("Bob", "77")]
TASKS: dict[str, tuple[str, list[Check]]] = {
    "1-1": (
        "Put 'Budget review' into Ann's calendar, on 2026-05-04 from 14:00 to 15:00.",
        [
            has("ics", ANN, "Budget review", "DTSTART:20260504T140000", "DTEND:20260504T150000"),
            calendar("Ann", STAND_UP, ("20260504T140000", "20260504T150000", "Budget review")),
            free("Ann"),
            only(ANN),
        ],
    ),
    "1-2": (
        "Bob's visit to the dentist is cancelled. Take it out of his calendar.",
        [lacks("ics", BOB, "Dentist"), calendar("Bob", STAND_UP), only(BOB)],
    ),
    "1-3": (
        "Carol's score in data/scores.xlsx should be 91.",
        [
            cells(SCORES, (4, 1, "Carol"), (4, 2, "91")),
            table(SCORES, *SHEET, ("Carol", "91")),
            only(SCORES),
        ],
    ),
    "1-4": (
        "Add the paragraph 'Lunch is served in the hall.' to the end of data/memo.docx.",
        [
            has("docx", MEMO, "Lunch is served in the hall."),
            reads(MEMO, f"{KITCHEN}\nLunch is served in the hall."),
            only(MEMO),
        ],
    ),
    "1-5": (
        "Write a mail from Ann to Bob with the subject 'Keys' that says: The keys are in the safe.",
        [
            has("email", "Bob", "From: Ann", "Subject: Keys"),
            mail("emails/Bob/002.eml", "Ann", "Keys", "The keys are in the safe."),
            only("emails/Bob/002.eml"),
        ],
    ),
    "2-1": (
        "Mail Bob, from Ann, with the subject 'Sales', the total of the sales in data/sales.xlsx: "
        "only the number, nothing else.",
        [
            has("email", "Bob", "1234"),
            mail("emails/Bob/002.eml", "Ann", "Sales", "1234", "1,234"),
            only("emails/Bob/002.eml"),
        ],
    ),
    "2-2": (
        "Put the meeting that Bob proposes to Ann by mail into both calendars, as 'Fjord'.",
        [
            has("ics", ANN, "DTSTART:20260507T130000", "DTEND:20260507T140000", "Fjord"),
            calendar("Ann", STAND_UP, FJORD),
            calendar("Bob", STAND_UP, DENTIST, FJORD),
            free("Ann"),
            free("Bob"),
            only(ANN, BOB),
        ],
    ),
    "2-3": (
        "Write into data/best.docx the region of data/sales.xlsx that sells most, only its name.",
        [has("docx", BEST, "East"), reads(BEST, "East"), only(BEST)],
    ),
    "2-4": (
        "Make data/memo.pdf of data/memo.docx.",
        [
            has("pdf", "data/memo.pdf", "The kitchen is closed on Monday."),
            reads("data/memo.pdf", KITCHEN),
            only("data/memo.pdf"),
        ],
    ),
    "3-1": (
        "Put the drill that data/notice.pdf announces into Ann's calendar as 'Fire drill', and "
        "mail the contact, from Ann, with the subject 'Drill', only this: 'Seen: ' and the day as "
        "YYYY-MM-DD.",
        [
            calendar("Ann", STAND_UP, ("20260506T100000", "20260506T103000", "Fire drill")),
            has("email", "Carol", "Seen: 2026-05-06"),
            mail("emails/Carol/001.eml", "Ann", "Drill", "Seen: 2026-05-06"),
            free("Ann"),
            only(ANN, "emails/Carol/001.eml"),
        ],
    ),
    "3-2": (
        "Add the person whom Carol's mail to Bob names to data/scores.xlsx, and write the names of "
        "those with 80 or more into data/passed.docx, one a line, in the order of the sheet.",
        [
            cells(SCORES, (5, 1, "Dave"), (5, 2, "92")),
            table(SCORES, *SHEET, ("Carol", "69"), ("Dave", "92")),
            reads(PASSED, "Ann\nDave"),
            only(SCORES, PASSED),
        ],
    ),
    "3-3": (
        "Write data/total.docx with one line, 'Total: ' and the total of the sales in "
        "data/sales.xlsx, make data/total.pdf of it, and mail Ann, from Bob, with the subject "
        "'Total', the name of that PDF, nothing else.",
        [
            check("file_exist", file="data/total.pdf"),
            reads(TOTAL, "Total: 1234"),
            reads("data/total.pdf", "Total: 1234"),
            mail("emails/Ann/002.eml", "Bob", "Total", "data/total.pdf", "total.pdf"),
            only(TOTAL, "data/total.pdf", "emails/Ann/002.eml"),
        ],
    ),
}
