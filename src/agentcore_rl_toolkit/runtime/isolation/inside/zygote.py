"""An interpreter that has imported the agent's code, stands before serving, and forks sessions.

In mode ``zygote`` the agent's script runs as ``__main__`` up to ``uvicorn.Server.run`` and is
parked there; every fork goes on from that line with its own listener. In mode ``exec`` nothing
of the agent is imported here and every fork starts a fresh interpreter (or program).

It answers ``{"ready": …}`` once, or says why it cannot serve; then one packet for each request.
It never forks with more than one thread, or with sockets that the sessions would then share.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from . import linux, packages, pages, sandbox, script, session, tree, wire

Config = dict[str, Any]


def main(control: socket.socket, config: Config) -> None:
    """Returns only in an agent process whose script has ended."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    try:
        if config["level"] == "namespace":
            sandbox.enter_view(config)
        os.chdir(config["folder"])
        if config["packages"]:
            packages.use(config["packages"])
    except OSError as error:
        _give_up(control, {"error": f"cannot make the zygote's view: {error}"})
    server = Server(control, config)
    if config["mode"] == "exec":
        listener = server.serve({})
        session.exec_agent(config, listener)
    try:
        script.run(config["folder"], config["entry"], config["port"], server.park)
    except BaseException as error:
        if server.forked:
            raise
        _give_up(control, script.describe(error))
    if not server.forked:
        _give_up(control, script.describe(None))


def _give_up(control: socket.socket, message: wire.Message) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    wire.send(control, message)
    os._exit(1)


def obstacles(own: set[int]) -> list[str]:
    """Why a fork would not be safe: threads do not survive it, sockets would be shared."""
    found = []
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        found.append(f"its import starts {threads - 1} more thread(s)")
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if int(name) not in own and target.startswith(("socket:", "anon_inode:[event")):
            kind = "a socket" if target.startswith("socket:") else "an event loop"
            found.append(f"its import leaves {kind} open (descriptor {name})")
    return found


class Server:
    """Serves fork requests until the runtime hangs up."""

    def __init__(self, control: socket.socket, config: Config) -> None:
        self.control, self.config = control, config
        self.forked = False
        """True in a process that is no longer the zygote."""
        self._sessions: set[int] = set()
        self._own_pids = (
            os.open("/proc/self/ns/pid", os.O_RDONLY) if config["level"] == "namespace" else -1
        )

    def park(self, facts: wire.Message) -> socket.socket:
        """Called by the agent's script in place of serving."""
        own = {0, 1, 2, self.control.fileno(), self._own_pids}
        if found := obstacles(own):
            _give_up(self.control, {"unsafe": found})
        return self.serve(facts)

    def serve(self, facts: wire.Message) -> socket.socket:
        gc.collect()
        gc.freeze()
        if self.config["mode"] == "zygote":
            pages.collapse()
        sys.stdout.flush()
        sys.stderr.flush()
        wakeups, writing = _watch_children()
        wire.send(self.control, {"ready": facts})
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(wakeups, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor == wakeups.fileno():
                    wakeups.recv(4096)
                    self._bury()
                elif (listener := self._next_request(wakeups, writing)) is not None:
                    return listener

    def _next_request(self, wakeups: socket.socket, writing: socket.socket) -> socket.socket | None:
        """A listener, in the agent process of a new session; None in the zygote."""
        received = wire.receive(self.control)
        if received is None:
            os._exit(0)
        request, descriptors = received
        try:
            pid = self._fork()
        except OSError as error:
            wire.send(self.control, {"error": f"cannot fork a session: {error}"})
            _close(descriptors)
            return None
        if pid == 0:
            self.forked = True
            self.control.close()
            if self._own_pids >= 0:
                os.close(self._own_pids)
            _forget_children(wakeups, writing)
            return session.begin(self.config, request, descriptors)
        self._sessions.add(pid)
        handle = os.pidfd_open(pid)
        wire.send(self.control, {"pid": pid}, [handle])
        _close([handle, *descriptors])
        return None

    def _fork(self) -> int:
        if self._own_pids < 0:
            return os.fork()
        # The namespace applies to children only, and a second one needs the first undone.
        linux.unshare(linux.CLONE_NEWPID)
        pid = 0
        try:
            pid = os.fork()
        finally:
            if pid:
                linux.setns(self._own_pids, linux.CLONE_NEWPID)
        return pid

    def _bury(self) -> None:
        """Reaps; kills what a session that died by force has left to its subreaper."""
        self._sessions -= tree.reap().keys()
        if self._own_pids < 0 and set(tree.children()) - self._sessions:
            tree.end_below(os.getpid(), frozenset(self._sessions))


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _watch_children() -> tuple[socket.socket, socket.socket]:
    """A socket that is readable when a child has ended, and its other end."""
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    return reading, writing


def _forget_children(wakeups: socket.socket, writing: socket.socket) -> None:
    signal.set_wakeup_fd(-1)
    wakeups.close()
    writing.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
