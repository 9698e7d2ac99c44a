"""Runs one shell command and, when it ends, kills all that it left behind.

python -I keeper.py SECONDS COMMAND

Whatever a command puts in the background would still be there while the reward looks at the files.
The keeper adopts such orphans, so that nobody gets away; it owns nothing else.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TIMED_OUT = 124


def main() -> int:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    shell = subprocess.Popen(["/bin/sh", "-c", sys.argv[2]], stdin=subprocess.DEVNULL)
    try:
        code = shell.wait(float(sys.argv[1]))
    except subprocess.TimeoutExpired:
        code = TIMED_OUT
    while (left := children()) or shell.poll() is None:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return code if code >= 0 else 128 - code


def children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
