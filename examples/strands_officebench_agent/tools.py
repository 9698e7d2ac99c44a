"""The agent's tools: calendar, mail, spreadsheet, document, PDF and OCR on the files of a testbed.

``testbed/calendar/{user}.ics``, ``testbed/emails/{user}/*.eml`` and ``testbed/data/*``, as in
OfficeBench. A tool answers text; what cannot be done is a ValueError, which the model is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import formats
import programs


class Office:
    """The programs of one testbed."""

    def __init__(self, testbed: Path) -> None:
        self.testbed = testbed.resolve()

    def list_files(self) -> str:
        """All files of the testbed."""
        files = sorted(p for p in self.testbed.rglob("*") if p.is_file())
        return "\n".join(str(p.relative_to(self.testbed)) for p in files)

    def calendar_list_events(self, user: str) -> str:
        """The events of somebody's calendar.

        Args:
            user: Such as "Ann".
        """
        events = formats.read_ics(self._calendar(user))
        return "\n".join(f"{e.start} to {e.end}: {e.summary}" for e in events) or "no events"

    def calendar_create_event(self, user: str, summary: str, start: str, end: str) -> str:
        """Adds an event to somebody's calendar.

        Args:
            user: Such as "Ann".
            summary: What it is.
            start: YYYY-MM-DD HH:MM
            end: YYYY-MM-DD HH:MM
        """
        event = formats.Event(_moment(start), _moment(end), " ".join(summary.split()))
        file = self._calendar(user)
        formats.write_ics(file, [*formats.read_ics(file), event])
        return "created"

    def calendar_delete_event(self, user: str, summary: str) -> str:
        """Deletes an event from somebody's calendar.

        Args:
            user: Such as "Ann".
            summary: The event's text, as listed.
        """
        file = self._calendar(user)
        events = formats.read_ics(file)
        kept = [event for event in events if event.summary != summary]
        if len(kept) == len(events):
            raise ValueError(f"there is no event {summary!r}")
        formats.write_ics(file, kept)
        return "deleted"

    def email_list(self, user: str) -> str:
        """The mails that somebody has got.

        Args:
            user: Such as "Ann".
        """
        files = sorted(self._inside(f"emails/{_name(user)}").glob("*.eml"))
        return "\n\n---\n".join(map(formats.read_eml, files)) or "no mails"

    def email_send(self, sender: str, recipient: str, subject: str, content: str) -> str:
        """Sends a mail.

        Args:
            sender: Such as "Ann".
            recipient: Such as "Bob".
            subject: One line.
            content: The text.
        """
        folder = self._inside(f"emails/{_name(recipient)}")
        number = len(list(folder.glob("*.eml"))) + 1
        subject = " ".join(subject.split())
        formats.write_eml(folder / f"{number:03}.eml", sender, recipient, subject, content)
        return "sent"

    def excel_read(self, file: str) -> str:
        """The cells of a spreadsheet.

        Args:
            file: Such as "data/sales.xlsx".
        """
        cells = sorted(formats.read_xlsx(self._file(file, ".xlsx")).items())
        return "\n".join(f"({row}, {column}): {text}" for (row, column), text in cells)

    def excel_set_cell(self, file: str, row: int, column: int, text: str) -> str:
        """Sets a cell of a spreadsheet, which is made if it is not there.

        Args:
            file: Such as "data/sales.xlsx".
            row: From 1.
            column: From 1 to 26.
            text: What is in it then; empty to delete it.
        """
        if row < 1 or not 1 <= column <= 26:
            raise ValueError("rows count from 1, columns from 1 to 26")
        path = self._inside(file, ".xlsx")
        cells = formats.read_xlsx(path) if path.is_file() else {}
        cells[row, column] = text
        formats.write_xlsx(path, {place: value for place, value in cells.items() if value})
        return "set"

    def word_read(self, file: str) -> str:
        """The text of a document.

        Args:
            file: Such as "data/memo.docx".
        """
        return "\n".join(formats.read_docx(self._file(file, ".docx")))

    def word_write(self, file: str, text: str) -> str:
        """Writes a document anew, or makes it.

        Args:
            file: Such as "data/memo.docx".
            text: All of it, a paragraph a line.
        """
        formats.write_docx(self._inside(file, ".docx"), text.splitlines())
        return "written"

    def pdf_read(self, file: str) -> str:
        """The text of a PDF.

        Args:
            file: Such as "data/notice.pdf".
        """
        return "\n".join(formats.read_pdf(self._file(file, ".pdf")))

    def convert_to_pdf(self, source: str, target: str) -> str:
        """Makes a PDF of a document or a spreadsheet.

        Args:
            source: A .docx or .xlsx file.
            target: A .pdf file.
        """
        file = self._file(source, ".docx", ".xlsx")
        if programs.office_to_pdf(file, self._inside(target, ".pdf")):
            return "converted by LibreOffice"
        text = self.word_read(source) if source.endswith(".docx") else self.excel_read(source)
        formats.write_pdf(self._inside(target, ".pdf"), text.splitlines())
        return "converted"

    def ocr(self, file: str) -> str:
        """The text in an image.

        Args:
            file: Such as "data/scan.png".
        """
        return programs.image_text(self._file(file, ".png", ".jpg", ".jpeg", ".tif"))

    def tools(self) -> list[Callable[..., str]]:
        names = [name for name in vars(Office) if not name.startswith("_") and name != "tools"]
        return [getattr(self, name) for name in names]

    def _calendar(self, user: str) -> Path:
        return self._inside(f"calendar/{_name(user)}.ics")

    def _file(self, file: str, *endings: str) -> Path:
        path = self._inside(file, *endings)
        if not path.is_file():
            raise ValueError(f"there is no {file}")
        return path

    def _inside(self, file: str, *endings: str) -> Path:
        path = (self.testbed / file).resolve()
        if not path.is_relative_to(self.testbed):
            raise ValueError(f"{file} is not in the testbed")
        if endings and path.suffix not in endings:
            raise ValueError(f"{file} does not end in {' or '.join(endings)}")
        return path


def _name(user: str) -> str:
    if not re.fullmatch(r"[A-Za-z]\w{0,40}", user):
        raise ValueError(f"{user!r} is not a user's name")
    return user


def _moment(text: str) -> str:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", text):
        raise ValueError(f"{text!r} is not YYYY-MM-DD HH:MM")
    return text.replace("-", "").replace(":", "").replace(" ", "T") + "00"
