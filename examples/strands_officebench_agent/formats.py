"""Office files with the standard library: xlsx, docx, pdf, ics, eml, each as plain values.

What is written can be opened by office programs; what is read is the part that tasks are about
(cells of the first sheet, paragraphs, lines of text, events). Styles and formulas are not kept.
"""

from __future__ import annotations

import email.message
import email.policy
import re
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import programs

Cells = dict[tuple[int, int], str]
"""Text by row and column, from 1."""
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
MAIN = "application/vnd.openxmlformats-officedocument"


# --- xlsx and docx ---------------------------------------------------------------------------


def _package(file: Path, main: str, kind: str, parts: dict[str, str]) -> None:
    overrides = f'<Override PartName="/{main}" ContentType="{MAIN}.{kind}.main+xml"/>'
    if "xl/worksheets/sheet1.xml" in parts:
        part = f'PartName="/xl/worksheets/sheet1.xml" ContentType="{MAIN}.spreadsheetml'
        overrides += f'<Override {part}.worksheet+xml"/>'
    relation = '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}">{relation}relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>',
        "_rels/.rels": _relations("officeDocument", main),
        **parts,
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in parts.items():
            package.writestr(zipfile.ZipInfo(name), f'<?xml version="1.0"?>\n{text}')


def _relations(kind: str, target: str) -> str:
    one = f'<Relationship Id="rId1" Type="{OFFICE}/{kind}" Target="{target}"/>'
    return f'<Relationships xmlns="{RELATIONS}">{one}</Relationships>'


def write_xlsx(file: Path, cells: Cells) -> None:
    rows: dict[int, list[str]] = {}
    for (row, column), text in sorted(cells.items()):
        name = f"{chr(64 + column)}{row}"
        if re.fullmatch(r"-?\d+(\.\d+)?", text):
            rows.setdefault(row, []).append(f'<c r="{name}"><v>{text}</v></c>')
        else:
            inside = f"<is><t>{_escaped(text)}</t></is>"
            rows.setdefault(row, []).append(f'<c r="{name}" t="inlineStr">{inside}</c>')
    body = "".join(f'<row r="{row}">{"".join(found)}</row>' for row, found in rows.items())
    sheets = '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets>'
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}">{sheets}</workbook>',
        "xl/_rels/workbook.xml.rels": _relations("worksheet", "worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{SHEET}"><sheetData>{body}</sheetData>'
        "</worksheet>",
    }
    _package(file, "xl/workbook.xml", "spreadsheetml.sheet", parts)


def read_xlsx(file: Path) -> Cells:
    space = {"s": SHEET}
    with zipfile.ZipFile(file) as package:
        shared: list[str] = []
        if "xl/sharedStrings.xml" in package.namelist():
            table = ElementTree.fromstring(package.read("xl/sharedStrings.xml"))
            shared = ["".join(one.itertext()) for one in table.findall("s:si", space)]
        sheet = ElementTree.fromstring(package.read("xl/worksheets/sheet1.xml"))
    cells: Cells = {}
    for cell in sheet.iterfind(".//s:c", space):
        letters, digits = re.fullmatch(r"([A-Z]+)(\d+)", cell.get("r", "A1")).groups()  # type: ignore[union-attr]
        column = 0
        for letter in letters:
            column = 26 * column + ord(letter) - 64
        value = cell.find("s:v", space)
        inline = cell.find("s:is", space)
        if inline is not None:
            cells[int(digits), column] = "".join(inline.itertext())
        elif value is not None and value.text is not None:
            text = shared[int(value.text)] if cell.get("t") == "s" else value.text
            cells[int(digits), column] = text.removesuffix(".0")
    return cells


def _escaped(text: str) -> str:
    """Without what XML cannot hold: a file with it could not be read again."""
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text))


def write_docx(file: Path, paragraphs: list[str]) -> None:
    body = "".join(f"<w:p><w:r><w:t>{_escaped(text)}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    parts = {"word/document.xml": document}
    _package(file, "word/document.xml", "wordprocessingml.document", parts)


def read_docx(file: Path) -> list[str]:
    space = {"w": WORD}
    with zipfile.ZipFile(file) as package:
        document = ElementTree.fromstring(package.read("word/document.xml"))
    found = document.iterfind(".//w:p", space)
    return ["".join(t.text or "" for t in p.iterfind(".//w:t", space)) for p in found]


# --- pdf -------------------------------------------------------------------------------------


def write_pdf(file: Path, lines: list[str]) -> None:
    texts = (re.sub(r"([\\()])", r"\\\1", line) for line in lines)
    drawn = "".join(f"({text}) Tj T*\n" for text in texts)
    stream = f"BT /F1 11 Tf 14 TL 50 780 Td\n{drawn}ET".encode("latin-1", "replace")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    content, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    content += b"xref\n0 6\n0000000000 65535 f \n%btrailer << /Size 6 /Root 1 0 R >>\n" % table
    start = content.index(b"xref\n0 6")
    file.write_bytes(content + b"startxref\n%d\n%%%%EOF\n" % start)


def read_pdf(file: Path) -> list[str]:
    """With pdftotext where it is installed; else only text that is drawn plainly."""
    if (found_lines := programs.pdf_text(file)) is not None:
        return found_lines
    lines: list[str] = []
    for found in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", file.read_bytes(), re.DOTALL):
        stream = found[1]
        try:
            stream = zlib.decompress(stream)
        except zlib.error:
            pass  # it was not compressed
        drawn = re.findall(rb"\(((?:\\.|[^\\)])*)\)\s*Tj", stream)
        lines += [re.sub(rb"\\(.)", rb"\1", text).decode("latin-1") for text in drawn]
    return lines


# --- calendar and mail -----------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Event:
    start: str
    """YYYYMMDDTHHMMSS, which sorts by time."""
    end: str
    summary: str


def read_ics(file: Path) -> list[Event]:
    text = re.sub(r"\r?\n[ \t]", "", file.read_text()) if file.is_file() else ""
    events = []
    for block in re.findall(r"BEGIN:VEVENT(.*?)END:VEVENT", text, re.DOTALL):
        fields = dict(re.findall(r"^([A-Z]+)(?:;[^:\n]*)?:(.*?)\r?$", block, re.MULTILINE))
        start, end = (fields.get(name, "").rstrip("Z") for name in ("DTSTART", "DTEND"))
        events.append(Event(start, end, fields.get("SUMMARY", "")))
    return sorted(events)


def write_ics(file: Path, events: list[Event]) -> None:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//strands_officebench_agent//EN"]
    for number, event in enumerate(sorted(events)):
        lines += ["BEGIN:VEVENT", f"UID:{number}-{event.start}", f"DTSTART:{event.start}"]
        lines += [f"DTEND:{event.end}", f"SUMMARY:{event.summary}", "END:VEVENT"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("\r\n".join([*lines, "END:VCALENDAR", ""]).encode())


def write_eml(file: Path, sender: str, recipient: str, subject: str, content: str) -> None:
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, recipient, subject
    message.set_content(content)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(message.as_bytes())


def read_eml(file: Path) -> str:
    message = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
    body = message.get_body(("plain",))
    head = (f"{name}: {message[name]}" for name in ("From", "To", "Subject"))
    return "\n".join([*head, "", body.get_content().strip() if body else ""])
