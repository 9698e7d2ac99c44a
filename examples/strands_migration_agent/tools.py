"""The agent's tools: a shell and an editor, both on one folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import kept

HERE = Path(__file__).resolve().parent
PR_SET_DUMPABLE = 4
TIMEOUT_S = 300.0
MAX_CHARS = 12_000
SHELL_ENV = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class Workspace:
    """The folder that the agent works in."""

    def __init__(self, folder: Path, timeout_s: float = TIMEOUT_S) -> None:
        self.folder = folder.resolve()
        self.timeout_s = timeout_s
        self.escaped = False
        """Somebody killed a command's keeper: what it started may still be there."""

    def shell(self, command: str) -> str:
        """Run a shell command in the project's folder and see what it prints.

        Nothing runs on after the command has ended, also not in the background.

        Args:
            command: The command, for instance "sh build.sh".
        """
        env = {**SHELL_ENV, "HOME": str(self.folder.parent)}
        done = kept.run(["/bin/sh", "-c", command], self.folder, env, self.timeout_s)
        self.escaped |= done.escaped
        return f"{shortened(done.output)}\n[exit {done.code}]"

    def editor(self, command: str, path: str, text: str = "", replace: str = "") -> str:
        """View, write or change a file of the project.

        Args:
            command: "view", "write" (the whole file becomes `text`) or "replace" (the one place
                that reads `replace` becomes `text`).
            path: The file, relative to the project's folder.
            text: What is written.
            replace: What is replaced.
        """
        try:
            return self._edit(command, self._inside(path), text, replace)
        except (OSError, ValueError) as error:
            return f"error: {error}"

    def _edit(self, command: str, file: Path, text: str, replace: str) -> str:
        if file.exists() and not file.is_file():
            raise ValueError(f"{file.name} is not a plain file")
        if command == "view":
            return shortened(file.read_text())
        if command == "write":
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return "written"
        if command == "replace":
            old = file.read_text()
            if not replace or old.count(replace) != 1:
                times = old.count(replace) if replace else 0
                raise ValueError(f"`replace` is in the file {times} times, it must be there once")
            file.write_text(old.replace(replace, text))
            return "replaced"
        raise ValueError(f"unknown command {command!r}: use view, write or replace")

    def _inside(self, path: str) -> Path:
        file = Path(os.path.realpath(self.folder / path))
        if not file.is_relative_to(self.folder):
            raise ValueError(f"{path} is not in the project's folder")
        return file

    def tools(self) -> list[Callable[..., str]]:
        return [self.shell, self.editor]


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Gone afterwards, whatever is in it: Python's own removal fails on folders that go too deep,
    and a rollout that fails is not trained."""
    folder = tempfile.mkdtemp()
    try:
        yield Path(folder)
    finally:
        subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL, check=False)


def conceal() -> None:
    """A command is the same user: it shall not read this process, nor plant modules."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    sys.path[:] = [place for place in sys.path if place not in ("", str(HERE))]


def shortened(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n[{len(text) - MAX_CHARS} characters left out]\n{text[-half:]}"
