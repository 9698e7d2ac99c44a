"""Wall clock that jumps: loaded at the start of every Python process that has this folder in its
``PYTHONPATH``. Adds the seconds in the file ``FAULTS_CLOCK`` to ``time.time``; ``datetime.now`` and
the monotonic clock stay as they are, as the latter does when a machine's date is set.
"""

import mmap
import os
import struct
import time

_path = os.environ.get("FAULTS_CLOCK")
if _path:
    try:
        with open(_path, "rb") as _file:
            _shared = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    except OSError:  # the run is over, or this process may not see it
        _path = None

if _path:
    _time, _time_ns, _seconds = time.time, time.time_ns, struct.Struct("<d")

    def _jumped() -> float:
        return _time() + float(_seconds.unpack_from(_shared)[0])

    def _jumped_ns() -> int:
        return _time_ns() + int(_seconds.unpack_from(_shared)[0] * 1e9)

    time.time, time.time_ns = _jumped, _jumped_ns
