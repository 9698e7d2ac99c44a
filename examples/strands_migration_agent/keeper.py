"""Runs one command and, when it ends, kills all that it left behind.

python -I keeper.py SECONDS COMMAND…

Whatever a command puts in the background would still be there while the reward looks at the files.
The keeper adopts such orphans, so that nobody gets away; it owns nothing else. The command is the
agent's own user, so ``fence`` takes from it what it could harm the agent with.
"""

import ctypes
import os
import resource
import signal
import struct
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF, SCOPE_SIGNAL = 444, 446, 2
MAX_FILE_BYTES = 1 << 28
SPARED = 32
"""Processes and threads of the user's that are left to the agent."""
TIMED_OUT = 124
LIBC = ctypes.CDLL(None)


def main() -> int:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    command = subprocess.Popen(sys.argv[2:], preexec_fn=fence)
    try:
        code = command.wait(float(sys.argv[1]))
    except subprocess.TimeoutExpired:
        code = TIMED_OUT
    while (left := children()) or command.poll() is None:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return code if code >= 0 else 128 - code


def fence() -> None:
    """No signals to anybody but its own children (Linux 6.12), and the first to go for memory."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if processes > SPARED:  # neither few nor without end
        resource.setrlimit(resource.RLIMIT_NPROC, (processes - SPARED, processes - SPARED))
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass  # a machine that does not let it
    rules = struct.pack("3Q", 0, 0, SCOPE_SIGNAL)
    descriptor = LIBC.syscall(LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    if descriptor >= 0:
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        LIBC.syscall(LANDLOCK_RESTRICT_SELF, descriptor, 0)
        os.close(descriptor)


def children() -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", pid, "stat").read_bytes()
        except OSError:
            continue  # it is gone
        if int(stat.rpartition(b")")[2].split()[1]) == os.getpid():  # the name may be any bytes
            found.append(int(pid))
    return found


if __name__ == "__main__":
    sys.exit(main())
