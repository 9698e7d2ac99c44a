"""An agent that is forked by its zygote into a session that another, small process has made.

    zygote ── (gone) ──┐                      the agent's code, a hundred megabytes
      └─ maker ── init ┴─ agent               forked before that code was imported

Init asks the zygote, with its namespaces as descriptors. The zygote forks a child into init's
process namespace, and that one forks the agent and ends: so the agent becomes init's own child, as
if init had forked it. What init would have copied from the zygote, and given back at its end, was
a third of what a stop costs.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from typing import Any

from . import linux, sandbox, wire

Config = dict[str, Any]
COME_S = 10.0


class Unborn(OSError):
    """The zygote ended, or could not fork; another may."""


def ask(births: socket.socket, config: Config, request: wire.Message, listener: int) -> int:
    """Of init. The agent's process id, as init sees it."""
    ours, theirs = wire.pair()
    spaces = sandbox.open_spaces(config)
    try:
        wire.send(births, request, [theirs.fileno(), listener, 1, *spaces])
        theirs.close()
        answer = wire.receive(ours)
    except (BrokenPipeError, ConnectionResetError):
        answer = None
    finally:
        for one in (ours, theirs, births):
            one.close()
        for descriptor in spaces:
            os.close(descriptor)
    if answer is None:
        raise Unborn("the zygote cannot fork the agent")
    return _come(int(answer[0]["agent"]))


def _come(agent: int) -> int:
    """Once it is our child, which it is when the one between has ended."""
    deadline = time.monotonic() + COME_S
    while True:
        try:
            os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.0002)
        else:
            return agent


def fork(own: int, descriptors: list[int]) -> int:
    """Of the zygote. 0 in the agent, else the child that is about to end; ``own``: the zygote's
    process namespace."""
    line, _, _, processes, *_ = descriptors
    linux.setns(processes, linux.CLONE_NEWPID)
    child = -1
    try:
        child = os.fork()
    finally:
        if child:
            linux.setns(own, linux.CLONE_NEWPID)
    if child:
        return child
    agent = 0
    try:
        agent = os.fork()
        if agent:
            wire.send(socket.socket(fileno=line), {"agent": agent})
    except OSError:
        traceback.print_exc()
        agent = -1
    if agent:
        os._exit(0)
    return 0


def enter(config: Config, request: wire.Message, descriptors: list[int]) -> tuple[int, int]:
    """Of the agent: into the session. Its listener and its log."""
    line, listener, log, processes, *spaces = descriptors
    os.close(line)
    os.close(processes)
    sandbox.join_session(config, request, spaces)
    return listener, log
