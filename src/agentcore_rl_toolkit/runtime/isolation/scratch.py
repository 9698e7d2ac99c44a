"""A template's folder on disk, removed with it; what a killed runtime left is removed by the next.

The folder is locked as long as its runtime lives, so that a sweep by another one, perhaps in
another container that shares the temporary folder, spares it. It gets its name once it is locked.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "art-session-"
_NEW = "art-new-"
_YOUNG_S = 60.0
"""A folder is made a moment before it is locked and named."""


class Scratch:
    def __init__(self) -> None:
        sweep()
        made = Path(tempfile.mkdtemp(prefix=_NEW))
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(_PREFIX + made.name.removeprefix(_NEW)))

    def remove(self) -> None:
        """Blocking. May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@functools.cache
def sweep() -> None:
    """Once a process."""
    place = Path(tempfile.gettempdir())
    for folder in (*place.glob(f"{_PREFIX}*"), *place.glob(f"{_NEW}*")):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            found = os.fstat(descriptor)
            young = folder.name.startswith(_NEW) and time.time() - found.st_mtime < _YOUNG_S
            if found.st_uid == os.geteuid() and not young:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
