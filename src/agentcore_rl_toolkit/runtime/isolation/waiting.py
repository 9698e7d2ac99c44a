"""What the threads of a session wait for, as /proc tells it.

Time that passes, or an end that is near, is work: the thread goes on by itself. Anything else comes
from outside the session or from another of its threads. What cannot be seen counts as work.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from .inside import tree

_TIMED = {
    # name: (x86_64, aarch64, which argument bounds the wait); None where it is bounded in any case,
    # or where the architecture has no such call
    "restart_syscall": (219, 128, None),  # what a wait becomes that a freeze broke into
    "nanosleep": (35, 101, None),
    "clock_nanosleep": (230, 115, None),
    "rt_sigtimedwait": (128, 137, 2),
    "semtimedop": (220, 192, 3),
    "futex": (202, 98, 3),
    "poll": (7, None, 2),
    "ppoll": (271, 73, 2),
    "select": (23, None, 4),
    "pselect6": (270, 72, 4),
    "epoll_wait": (232, None, 3),
    "epoll_pwait": (281, 22, 3),
    "epoll_pwait2": (441, 441, 3),
}
_MILLISECONDS = ("poll", "epoll_wait", "epoll_pwait")
"""Bounded by a number, where the others have a pointer to a time."""
_FOR_EVER = 0xFFFFFFFF
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
_CALLS = {row[_COLUMN]: name for name, row in _TIMED.items()} if _COLUMN is not None else {}


def for_others(root: int) -> bool:
    """Whether every thread below ``root`` waits, and none of them for time to pass."""
    if not _CALLS:
        return False
    try:
        return all(
            _waits(f"/proc/{pid}/task/{thread}")
            for pid in tree.descendants(root)
            for thread in os.listdir(f"/proc/{pid}/task")
        )
    except (OSError, ValueError):
        return False


def _waits(task: str) -> bool:
    with open(f"{task}/syscall") as file:
        words = file.read().split()
    if words[0] in ("running", "-1"):  # in its own code, or gone and not collected yet
        return _has_ended(task)
    return not bounded(words)


def bounded(words: Sequence[str]) -> bool:
    """Whether the call ends by itself; ``words``: its number and its arguments."""
    name = _CALLS.get(int(words[0]))
    if name is None:
        return False
    argument = _TIMED[name][2]
    if argument is None:
        return True
    value = int(words[1 + argument], 16)
    return value & _FOR_EVER != _FOR_EVER if name in _MILLISECONDS else value != 0


def _has_ended(task: str) -> bool:
    with open(f"{task}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in b"ZX"
