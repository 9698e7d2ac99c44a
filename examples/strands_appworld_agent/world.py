"""A task's world: AppWorld's where its package and data are, else the small one with its interface.

Used of both: ``task.instruction``, ``execute(code)``, ``task_completed()``, ``evaluate()`` with
``pass_count`` and ``num_tests``, ``close()``, and ``load_task_ids``.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps import AppError, Phone

TIMEOUT_S = 30.0
MAX_CHARS = 8000
Call = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True)
class Task:
    instruction: str
    actions: Sequence[Call] = ()
    """What a right solution changes."""
    answer: Any = None


def _send(to: str, amount: int, note: str) -> Call:
    sent = {"access_token": "wallet-token", "to": to, "amount": amount, "note": note}
    return "wallet", "send_money", sent


_ADD = {"access_token": "music-token", "playlist": "Run", "song_id": "1"}
TASKS = {
    "paid_to_mia": Task("How much have I paid to Mia in all?", answer=45),
    "lunch": Task("Send Mia 25 with the note 'lunch'.", [_send("mia@mail", 25, "lunch")]),
    "blue_door": Task("Add 'Blue Door' to my playlist 'Run'.", [("music", "add_song", _ADD)]),
    "loans": Task(
        "Pay every loan back that people sent me with the note 'loan', oldest first, the same "
        "amount with the note 'thanks'. Then tell me how much that was in all.",
        [_send("leo@mail", 40, "thanks"), _send("zoe@mail", 65, "thanks")],
        105,
    ),
}


@dataclass(frozen=True)
class Evaluation:
    pass_count: int
    num_tests: int


class SmallWorld:
    """Holds the data and the checks; the model's code runs in another process."""

    def __init__(self, task_id: str, **_: Any) -> None:
        self.task = TASKS[task_id]
        self.phone = Phone()
        self._folder = tempfile.TemporaryDirectory()
        self._child: subprocess.Popen[bytes] | None = None

    def execute(self, code: str) -> str:
        """What the code prints."""
        deadline = time.monotonic() + TIMEOUT_S
        try:
            self._write({"code": code})
            while "output" not in (said := self._read(deadline)):
                self._write(self._answer(said["call"]))
        except (OSError, ValueError, KeyError, TypeError):
            self._stop()
            return "error: the code ended or broke the interpreter, which starts anew"
        return str(said["output"])[:MAX_CHARS] or "done"

    def task_completed(self) -> bool:
        return bool(self.phone.data["completed"])

    def evaluate(self) -> Evaluation:
        """Three checks: completed, the answer, and data as a right solution leaves it."""
        right = Phone()
        for app, name, arguments in self.task.actions:
            right.call(app, name, arguments)
        mine, expected = dict(self.phone.data), dict(right.data)
        answer = mine.pop("answer")
        checks = [mine.pop("completed"), _same(answer, self.task.answer)]
        expected.pop("completed"), expected.pop("answer")
        return Evaluation(sum([*checks, mine == expected]), 3)

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _answer(self, call: list[Any]) -> dict[str, Any]:
        try:
            app, name, arguments = call
            return {"result": self.phone.call(str(app), str(name), dict(arguments))}
        except (AppError, ValueError) as error:
            return {"error": str(error)}

    def _write(self, message: dict[str, Any]) -> None:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("repl.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder.name,
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(message).encode() + b"\n")
        self._child.stdin.flush()

    def _read(self, deadline: float) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._child.stdout], [], [], left)[0]:
                raise ValueError("too slow")
            piece = os.read(self._child.stdout.fileno(), 65536)
            if not piece:
                raise ValueError("it ended")
            line += piece
        return dict(json.loads(line))

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass  # what was buffered for a process that is gone
        child.wait()


def _same(answer: Any, right: Any) -> bool:
    return str(answer).strip() == str(right) if right is not None else answer in (None, "")


def make_world(task_id: str) -> Any:
    if task_id in TASKS:
        return SmallWorld(task_id)
    from appworld import AppWorld

    return AppWorld(task_id=task_id, experiment_name="agentcore")


def load_task_ids(split: str | None = None) -> list[str]:
    """The small world's tasks, or those of one of AppWorld's splits (``train``, ``dev``, …)."""
    if split is None:
        return list(TASKS)
    from appworld import load_task_ids as theirs

    return list(theirs(split))
