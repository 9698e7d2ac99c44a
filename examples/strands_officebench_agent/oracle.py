"""Does the shipped tasks through the agent's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dataset
from tasks import TASKS

Step = tuple[str, dict[str, Any]]


def event(user: str, summary: str, day: str, start: str, end: str) -> Step:
    times = {"start": f"{day} {start}", "end": f"{day} {end}"}
    return "calendar_create_event", {"user": user, "summary": summary, **times}


def mail(sender: str, recipient: str, subject: str, content: str) -> Step:
    people = {"sender": sender, "recipient": recipient}
    return "email_send", {**people, "subject": subject, "content": content}


def cell(file: str, row: int, column: int, text: str) -> Step:
    return "excel_set_cell", {"file": file, "row": row, "column": column, "text": text}


def read(kind: str, file: str) -> Step:
    return f"{kind}_read", {"file": file}


def word(file: str, text: str) -> Step:
    return "word_write", {"file": file, "text": text}


def pdf(source: str, target: str) -> Step:
    return "convert_to_pdf", {"source": source, "target": target}


MEMO = "Memo\nThe kitchen is closed on Monday."
STEPS: dict[str, list[Step]] = {
    "1-1": [event("Ann", "Budget review", "2026-05-04", "14:00", "15:00")],
    "1-2": [
        ("calendar_list_events", {"user": "Bob"}),
        ("calendar_delete_event", {"user": "Bob", "summary": "Dentist"}),
    ],
    "1-3": [read("excel", "data/scores.xlsx"), cell("data/scores.xlsx", 4, 2, "91")],
    "1-4": [
        read("word", "data/memo.docx"),
        word("data/memo.docx", f"{MEMO}\nLunch is served in the hall."),
    ],
    "1-5": [mail("Ann", "Bob", "Keys", "The keys are in the safe.")],
    "2-1": [read("excel", "data/sales.xlsx"), mail("Ann", "Bob", "Sales", "1234")],
    "2-2": [
        ("email_list", {"user": "Ann"}),
        event("Ann", "Fjord", "2026-05-07", "13:00", "14:00"),
        event("Bob", "Fjord", "2026-05-07", "13:00", "14:00"),
    ],
    "2-3": [read("excel", "data/sales.xlsx"), word("data/best.docx", "East")],
    "2-4": [pdf("data/memo.docx", "data/memo.pdf")],
    "3-1": [
        read("pdf", "data/notice.pdf"),
        event("Ann", "Fire drill", "2026-05-06", "10:00", "10:30"),
        mail("Ann", "Carol", "Drill", "Seen: 2026-05-06"),
    ],
    "3-2": [
        ("email_list", {"user": "Bob"}),
        cell("data/scores.xlsx", 5, 1, "Dave"),
        cell("data/scores.xlsx", 5, 2, "92"),
        word("data/passed.docx", "Ann\nDave"),
    ],
    "3-3": [
        read("excel", "data/sales.xlsx"),
        word("data/total.docx", "Total: 1234"),
        pdf("data/total.docx", "data/total.pdf"),
        mail("Bob", "Ann", "Total", "data/total.pdf"),
    ],
}


def tasks() -> Iterator[dict[str, Any]]:
    return dataset.rows()


def label(task: dict[str, Any]) -> str:
    return f"{task['id']} {task['task']}"


def reply(request: dict[str, Any]) -> tuple[str, list[Step]]:
    messages = request["messages"]
    content = next(m["content"] for m in messages if m["role"] == "user")
    asked = content if isinstance(content, str) else "".join(part["text"] for part in content)
    steps = next(STEPS[name] for name, (task, _) in TASKS.items() if task in asked)
    done = sum(m["role"] == "tool" for m in messages)
    return ("", [steps[done]]) if done < len(steps) else ("It is done.", [])
