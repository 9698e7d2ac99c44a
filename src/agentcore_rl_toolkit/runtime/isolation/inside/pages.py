"""The zygote's memory in large pages, so that a fork has less to copy and an end less to take down.

A fork copies the table of every small page, and both processes of a session give theirs back at
its end: with an agent of 80 MB that was most of what a stop costs. A large page that a session
writes to is split for that session alone, and only the small page in question is copied.
"""

from __future__ import annotations

import ctypes

from . import linux

LARGE = 2 * 1024 * 1024
"""Of machines with 4 KiB pages; the others refuse, and nothing changes."""
MADV_COLLAPSE = 25


def collapse() -> int:
    """How many large pages were made; 0 where the kernel cannot (before Linux 6.1)."""
    made = 0
    try:
        with open("/proc/self/maps") as file:
            areas = [line.split() for line in file]
    except OSError:
        return 0
    for area in filter(_own, areas):
        first, end = (int(word, 16) for word in area[0].split("-"))
        for start in range(-(-first // LARGE) * LARGE, end - LARGE + 1, LARGE):
            made += linux.advise(ctypes.c_void_p(start), LARGE, MADV_COLLAPSE)
    return made


def _own(area: list[str]) -> bool:
    """Writable, private, of no file."""
    return area[1].startswith("rw") and area[1].endswith("p") and area[4] == "0"
