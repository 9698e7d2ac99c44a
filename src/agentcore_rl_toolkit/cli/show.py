"""How the commands speak: one console, one look for errors, hints and progress."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.live import Live
from rich.table import Table

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)
for _one in (console, errors):
    if not _one.is_terminal and not os.environ.get("COLUMNS"):
        _one.width = 1000  # nothing is folded for a file or a pipe
QUIET_S = 10.0
"""The longest silence of something that goes on, where there is no terminal."""
_STEERING = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")


def fail(message: str, *, code: int = 1) -> NoReturn:
    errors.print(f"[bold red]error[/]: {escape(printable(message))}", soft_wrap=True)
    sys.exit(code)


def hint(message: str) -> None:
    errors.print(f"[dim]{escape(printable(message))}[/]", soft_wrap=True)


def escape(text: str) -> str:
    from rich.markup import escape as rich_escape

    return rich_escape(text)


def printable(text: Any) -> str:
    """What agents wrote must not steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in str(text))


def coloured(text: str) -> str:
    """The same for logs: colours may pass, and a line may be written over."""
    return _STEERING.sub("\ufffd", text)


def plain_table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


class Line:
    """What is under way: rewritten in place on a terminal; in a file or a pipe a line at once, and
    then one every ``QUIET_S``."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._next = 0.0

    def say(self, text: str) -> None:
        text = printable(text.partition("\n")[0])
        if self._live is not None:
            self._live.update(f"[dim]{escape(text[: max(20, errors.width - 1)])}[/]")
        elif (now := time.monotonic()) >= self._next:
            self._next = now + QUIET_S
            hint(text)


@contextmanager
def live_line() -> Iterator[Line]:
    if not errors.is_terminal:
        yield Line(None)
        return
    with Live(console=errors, refresh_per_second=8, transient=True) as live:
        yield Line(live)
