"""Tasks in OfficeBench's layout, and the self-written ones.

    SOURCE/tasks/{task}/subtasks/{n}.json     username, date, weekday, time, task, evaluation
    SOURCE/tasks/{task}/testbed/              calendar, emails, data

A row's ``testbed`` is a folder, absolute or inside this one; without it the row is a shipped task,
whose testbed is built.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shipped

HERE = Path(__file__).resolve().parent
NOW = {"username": "Ann", "date": "2026-05-01", "weekday": "Friday", "time": "10:00 AM"}


def rows() -> Iterator[dict[str, Any]]:
    for name, (task, evaluation) in shipped.TASKS.items():
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
        shipped.build_testbed(folder / "testbed")


def testbed(row: dict[str, Any], into: Path) -> Path:
    """The files of a task, to be changed."""
    folder = into / "testbed"
    if row.get("testbed"):
        shutil.copytree(HERE / row["testbed"], folder)
    else:
        shipped.build_testbed(folder)
    for name in ("calendar", "emails", "data"):
        (folder / name).mkdir(exist_ok=True)
    return folder


def prompt(row: dict[str, Any]) -> str:
    when = f"Today is {row['date']} ({row['weekday']}), {row['time']}."
    return f"You work for {row['username']}. {when}\n{row['task']}"
