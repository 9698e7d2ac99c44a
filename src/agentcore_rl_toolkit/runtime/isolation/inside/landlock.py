"""Landlock: a process gives up every file but those it names, and signals to all outside.

Needs no right and no namespace, so it is what level ``process`` has for a wall. It bounds files
and, from version 6 of the interface, signals; it does not bound the network.
"""

from __future__ import annotations

import os
import struct

from . import linux

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE, _READ, _READ_FOLDER = 1, 2, 4, 8
_VERSION_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_SCOPES = 0b11
"""Abstract Unix sockets, and signals."""
_PATH_BENEATH = 1


def version() -> int:
    """Of the kernel's interface; 0 or less when there is none."""
    ask = 1
    if not linux.HERE:
        return 0
    return linux.raw_syscall(_CREATE, None, 0, ask)


def restrict(readable: list[str], writable: list[str]) -> None:
    """For this process and all that it starts, for good. Paths that do not exist are left out."""
    known = version()
    handled = _VERSION_1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        handled |= right if known >= since else 0
    fields = [handled, 0, _SCOPES]  # files, network, scopes
    count = 3 if known >= 6 else 2 if known >= 4 else 1
    attributes = struct.pack(f"{count}Q", *fields[:count])
    rules = linux.check(
        linux.raw_syscall(_CREATE, attributes, len(attributes), 0), "landlock_create_ruleset"
    )
    try:
        for path in readable:
            _permit(rules, path, handled & (_EXECUTE | _READ | _READ_FOLDER))
        for path in writable:
            _permit(rules, path, handled)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.check(linux.raw_syscall(_RESTRICT, rules, 0), "landlock_restrict_self")
    finally:
        os.close(rules)


def _permit(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        linux.check(
            linux.raw_syscall(_ADD, rules, _PATH_BENEATH, rule, 0), f"landlock_add_rule {path}"
        )
    finally:
        os.close(descriptor)
