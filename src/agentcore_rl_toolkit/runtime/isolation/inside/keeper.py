"""The process between the runtime and a zygote. It outlives both for a moment.

Invariant: when the runtime or the zygote is gone, however it went, nothing that they started is
still running. The keeper holds no agent code, so the agent cannot make it hang.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket

from . import linux, sandbox, tree, wire, zygote


def main(descriptor: int) -> None:
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    first = wire.receive(control)
    if first is None:
        os._exit(0)
    config = first[0]
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    os.setsid()
    try:
        if config["level"] == "namespace":
            sandbox.enter_users(config["users"], config["view"])
        child = os.fork()
    except OSError as error:
        wire.send(control, {"error": f"cannot make the zygote: {error}"})
        os._exit(1)
    if child == 0:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        zygote.main(control, config)
        return  # as an agent process that has come to the end of its script
    _watch(control, child)
    if config["level"] == "namespace":
        # It is the first of its process namespace, and /proc is that namespace's by now.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    else:
        tree.end_below(os.getpid())
        for name in os.listdir(config["scratch"]):  # itself it is locked by the runtime
            shutil.rmtree(os.path.join(config["scratch"], name), ignore_errors=True)
    os._exit(0)


def _watch(control: socket.socket, child: int) -> None:
    """Returns when the runtime's end is closed or the zygote has ended."""
    poller = select.poll()
    poller.register(control, 0)  # a hang-up is always reported
    poller.register(os.pidfd_open(child), select.POLLIN)
    poller.poll()
