"""What stands around a session's processes at level ``process``, where there are no namespaces.

Landlock and the system call filter, each where the kernel has it. Neither can be taken off again,
and both hold for all that the process starts.
"""

from __future__ import annotations

from typing import Any

from . import landlock, linux, seccomp


def enclose(config: dict[str, Any], writable: list[str]) -> None:
    """This process. At other levels it is enclosed already."""
    if config["level"] != "process":
        return
    if landlock.version() > 0:
        landlock.restrict(config["readable"], writable)
    if seccomp.supported():
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.load()
