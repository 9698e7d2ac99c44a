"""Runs the model's code in a process of its own; ``apis`` are questions to the world outside.

One line of JSON each way: code comes in, calls go out and their results come in, output goes out.
Whatever the code does here, the data and the checks are not here. It is the agent's own user, so
``fence`` takes from it what it could harm the agent with.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import struct
import sys
import traceback

MAX_CHARS = 8000
BOUNDS = {
    resource.RLIMIT_AS: 2 << 30,
    resource.RLIMIT_FSIZE: 1 << 26,
    resource.RLIMIT_NPROC: 64,  # of the user's, the agent's threads among them
}
PR_SET_NO_NEW_PRIVS, LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 38, 444, 446
BIND_AND_CONNECT, SCOPES = 3, 3


class Api:
    def __init__(self, ask, path):
        self._ask, self._path = ask, path

    def __getattr__(self, name):
        return Api(self._ask, (*self._path, name))

    def __call__(self, **arguments):
        return self._ask({"call": [*self._path, arguments]})


def fence():
    """No TCP, no signals to anybody but its own children (Linux 6.12), and bounds on the rest."""
    for what, most in BOUNDS.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    libc = ctypes.CDLL(None)
    rules = struct.pack("3Q", 0, BIND_AND_CONNECT, SCOPES)
    descriptor = libc.syscall(LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    if descriptor >= 0:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.syscall(LANDLOCK_RESTRICT_SELF, descriptor, 0)
        os.close(descriptor)


def main():
    fence()
    inward, outward = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # the code must not speak for us
    os.dup2(2, 1)

    def send(message):
        outward.write(json.dumps(message) + "\n")
        outward.flush()

    def ask(message):
        send(message)
        answer = json.loads(inward.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    space = {"apis": Api(ask, ()), "__name__": "__main__"}
    for line in inward:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            try:
                exec(json.loads(line)["code"], space)
            except BaseException:
                traceback.print_exc(limit=-1)
        send({"output": shown.getvalue()[:MAX_CHARS]})


if __name__ == "__main__":
    sys.exit(main())
