"""A task's world: AppWorld's where a task is AppWorld's, else the small one with its interface.

Used of both: ``task.instruction``, ``execute(code)``, ``task_completed()``, ``evaluate()`` with
``pass_count`` and ``num_tests``, ``close()``.

The small world's data and ground truth come with the payload and stay in this process: the model's
code runs in another one, which only asks for API calls.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apps import AppError, Phone

TIMEOUT_S = 30.0
MAX_CHARS = 8000
MAX_LINE_BYTES = 1 << 20
"""Of what the interpreter says at once."""
HERE = Path(__file__).resolve().parent
REPL = (HERE / "repl.py").read_text()
"""In memory from the start: what the model's code does to the file does not matter."""
PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class Task:
    id: str
    instruction: str


@dataclass
class TestTracker:
    """What holds and what does not, as AppWorld tells it."""

    passes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def case(self, requirement: str, holds: bool) -> None:
        (self.passes if holds else self.failures).append(requirement)

    @property
    def pass_count(self) -> int:
        return len(self.passes)

    @property
    def num_tests(self) -> int:
        return len(self.passes) + len(self.failures)


class SmallWorld:
    """Holds the data and the checks; the model's code runs in another process."""

    def __init__(
        self, task_id: str, instruction: str, phone: dict[str, Any], ground_truth: dict[str, Any]
    ) -> None:
        self.task = Task(task_id, instruction)
        self.phone = Phone(phone)
        self._answer, self._right = ground_truth["answer"], {**phone, **ground_truth["changed"]}
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._child: subprocess.Popen[bytes] | None = None

    def execute(self, code: str) -> str:
        """What the code prints."""
        deadline = time.monotonic() + TIMEOUT_S
        try:
            self._write({"code": code})
            while "output" not in (said := self._read(deadline)):
                self._write(self._reply(said["call"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self._stop()
            return "error: the code ended or broke the interpreter, which starts anew"
        return str(said["output"])[:MAX_CHARS] or "done"

    def task_completed(self) -> bool:
        return self.phone.completed

    def evaluate(self) -> TestTracker:
        """The answer, and every table of the phone as a right solution leaves it."""
        tests = TestTracker()
        tests.case("the answer is right", _same(self.phone.answer, self._answer))
        for table, right in self._right.items():
            tests.case(f"{table} are as they should be", self.phone.data[table] == right)
        return tests

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _reply(self, call: list[Any]) -> dict[str, Any]:
        try:
            app, name, arguments = call
            return {"result": self.phone.call(str(app), str(name), dict(arguments))}
        except (AppError, ValueError, TypeError) as error:
            return {"error": str(error)}

    def _write(self, message: dict[str, Any]) -> None:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", REPL],
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
            if not piece or len(line) > MAX_LINE_BYTES:
                raise ValueError("it ended, or does not stop talking")
            line += piece
        return dict(json.loads(line))

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        os.killpg(child.pid, signal.SIGKILL)  # it leads a group of its own, and is not reaped yet
        for pipe in (child.stdin, child.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass  # what was buffered for a process that is gone
        child.wait()


def _same(answer: Any, right: Any) -> bool:
    return str(answer).strip() == str(right) if right is not None else answer in (None, "")


def make_world(row: dict[str, Any]) -> Any:
    """Of a payload: with a phone it is the small world's, else AppWorld's."""
    if "phone" in row:
        truth = row.get("ground_truth") or {"answer": None, "changed": {}}
        return SmallWorld(row["task_id"], row["instruction"], row["phone"], truth)
    from appworld import AppWorld

    # A server of AppWorld's outside the session, so that code and ground truth are not in it.
    url = os.environ.get("APPWORLD_ENVIRONMENT_URL")
    return AppWorld(task_id=row["task_id"], experiment_name="agentcore", remote_environment_url=url)


def conceal() -> None:
    """The model's code is the same user: it shall not read this process, nor plant modules."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    sys.path[:] = [place for place in sys.path if place not in ("", str(HERE))]
