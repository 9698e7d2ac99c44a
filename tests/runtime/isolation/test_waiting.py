"""What the threads of a session wait for."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from agentcore_rl_toolkit.runtime.isolation import waiting
from agentcore_rl_toolkit.runtime.isolation.inside import tree

WAITS = {
    "a lock": (True, "held.acquire"),
    "a lock, for a while": (False, "functools.partial(held.acquire, timeout=99)"),
    "a pipe": (True, "functools.partial(os.read, os.pipe()[0], 1)"),
    "a socket, for a while": (False, "functools.partial(select.select, [pair[0]], [], [], 99)"),
    "a socket": (True, "functools.partial(select.select, [pair[0]], [], [])"),
    "an event loop with nothing to do": (True, "select.epoll().poll"),
    "an event loop with a timer": (False, "functools.partial(select.epoll().poll, 99)"),
    "time": (False, "functools.partial(time.sleep, 99)"),
    "nothing": (False, "lambda: next(n for n in itertools.count() if n < 0)"),
}
PROGRAM = """
import functools, itertools, os, select, socket, sys, threading, time
pair = socket.socketpair()
held = threading.Lock()
held.acquire()
threading.Thread(target={what}, daemon=True).start()
print(flush=True)
select.epoll().poll()
"""
STAND = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
"""Stands for the init of a session."""


@pytest.mark.skipif(not waiting._CALLS, reason="this processor's system calls are not known")
@pytest.mark.parametrize(("rests", "what"), WAITS.values(), ids=list(WAITS))
def test_only_a_wait_without_an_end_is_rest(rests: bool, what: str) -> None:
    command = [sys.executable, "-c", STAND, PROGRAM.format(what=what)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as init:
        assert init.stdout is not None
        init.stdout.readline()
        try:
            deadline = time.monotonic() + 60
            while waiting.for_others(init.pid) is not rests and time.monotonic() < deadline:
                time.sleep(0.01)
            assert [waiting.for_others(init.pid) for _ in range(20)] == [rests] * 20
        finally:
            for pid in tree.descendants(init.pid):
                tree._send(pid, tree.signal.SIGKILL)
