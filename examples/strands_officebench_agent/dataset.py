"""Rows of the shipped tasks, and OfficeBench's layout, read and written.

SOURCE/tasks/{task}/subtasks/{n}.json     username, date, weekday, time, task, evaluation
SOURCE/tasks/{task}/testbed/              calendar, emails, data
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import testbed
from tasks import TASKS

NOW = {"username": "Ann", "date": "2026-05-01", "weekday": "Friday", "time": "10:00 AM"}


def rows() -> Iterator[dict[str, Any]]:
    for name, (task, evaluation) in TASKS.items():
        yield {"id": name, **NOW, "task": task, "evaluation": evaluation}


def officebench(source: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(source.glob("tasks/*/subtasks/*.json")):
        folder = file.parents[1]
        row = json.loads(file.read_text())
        yield {"id": f"{folder.name}/{file.stem}", **row, "testbed": str(folder / "testbed")}


def write(target: Path) -> None:
    """The shipped tasks as files of OfficeBench's layout."""
    for row in rows():
        folder = target / "tasks" / row.pop("id")
        (folder / "subtasks").mkdir(parents=True)
        (folder / "subtasks" / "0.json").write_text(json.dumps(row, indent=2))
        testbed.build_testbed(folder / "testbed")
