"""An interpreter that has imported the agent's code, stands before serving, and forks sessions.

In mode ``zygote`` the agent's script runs as ``__main__`` up to ``uvicorn.Server.run`` and is
parked there; every fork goes on from that line with its own listener. In mode ``exec`` nothing
of the agent is imported here and every fork starts a fresh interpreter (or program).

It answers ``{"ready": …}`` once, or says why it cannot serve; then one packet for each request.
It never forks with more than one thread, or with sockets that the sessions would then share.

With namespaces the zygote splits before it imports anything: a small copy of it, the maker, serves
the runtime and forks the first process of each session, and the zygote only the agents: ``birth``.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from . import birth, linux, packages, pages, sandbox, script, seccomp, session, tree, wire

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
    if config["mode"] == "exec":
        listener = Server(control, config).serve({})
        session.exec_agent(config, listener)
    split = config["level"] == "namespace"
    server = Nursery(control, config, _split(control, config)) if split else Server(control, config)
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


def _split(control: socket.socket, config: Config) -> socket.socket:
    """In the zygote; the maker never returns."""
    ours, theirs = wire.pair()
    if os.fork():
        theirs.close()
        return ours
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    ours.close()
    if (parked := wire.receive(theirs)) is not None:
        Server(control, config, theirs).serve(parked[0])
    os._exit(0)


class Server:
    """Serves fork requests until the runtime hangs up."""

    def __init__(
        self, control: socket.socket, config: Config, births: socket.socket | None = None
    ) -> None:
        self.control, self.config, self.births = control, config, births
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
        if seccomp.supported():
            seccomp.program(os.uname().machine)
        gc.collect()
        gc.freeze()
        if self.births is None and self.config["mode"] == "zygote":
            pages.collapse()
        sys.stdout.flush()
        sys.stderr.flush()
        children = Children()
        self._begin(facts)
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(children.ended, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor == children.ended.fileno():
                    children.ended.recv(4096)
                    self._bury()
                elif (listener := self._next_request(children)) is not None:
                    return listener

    def _next_request(self, children: Children) -> socket.socket | None:
        """A listener, in the agent process of a new session; None in the zygote."""
        received = wire.receive(self.control)
        if received is None:
            os._exit(0)
        request, descriptors = received
        try:
            pid = self._fork(descriptors)
        except OSError as error:
            self._refuse(error)
            _close(descriptors)
            return None
        if pid == 0:
            self.forked = True
            self.control.close()
            if self._own_pids >= 0:
                os.close(self._own_pids)
            children.forget()
            return self._enter(request, descriptors)
        self._answer(pid)
        _close(descriptors)
        return None

    def _begin(self, facts: wire.Message) -> None:
        wire.send(self.control, {"ready": facts})

    def _refuse(self, error: OSError) -> None:
        wire.send(self.control, {"error": f"cannot fork a session: {error}"})

    def _answer(self, pid: int) -> None:
        self._sessions.add(pid)
        handle = os.pidfd_open(pid)
        wire.send(self.control, {"pid": pid}, [handle])
        os.close(handle)

    def _enter(self, request: wire.Message, descriptors: list[int]) -> socket.socket:
        return session.begin(self.config, request, descriptors, self.births)

    def _fork(self, descriptors: list[int]) -> int:
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


class Nursery(Server):
    """Of a zygote that was split: forks agents until the maker is gone. Its requests come from the
    first processes of sessions, and ``control`` is the way to the maker."""

    def __init__(self, runtime: socket.socket, config: Config, births: socket.socket) -> None:
        super().__init__(births, config)
        self._runtime = runtime

    def park(self, facts: wire.Message) -> socket.socket:
        own = {0, 1, 2, self._runtime.fileno(), self.control.fileno(), self._own_pids}
        if found := obstacles(own):
            _give_up(self._runtime, {"unsafe": found})
        self._runtime.close()
        return self.serve(facts)

    def _begin(self, facts: wire.Message) -> None:
        try:
            wire.send(self.control, facts)
        except OSError:  # the maker has ended, and nobody else is left to be told
            os._exit(1)

    def _refuse(self, error: OSError) -> None:
        """Whoever asked sees its line closed."""
        sys.stderr.write(f"cannot fork an agent: {error}\n")

    def _answer(self, pid: int) -> None:
        """The agent tells its init itself."""

    def _enter(self, request: wire.Message, descriptors: list[int]) -> socket.socket:
        return session.enter(self.config, request, descriptors)

    def _fork(self, descriptors: list[int]) -> int:
        return birth.fork(self._own_pids, descriptors)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Children:
    """Tells when a child has ended, whatever the agent's import did to the signal for it: a dead
    child that is not reaped keeps its session's process namespace from ending."""

    def __init__(self) -> None:
        self.ended, self._writing = socket.socketpair()
        """Readable then."""
        self.ended.setblocking(False)
        self._writing.setblocking(False)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

    def forget(self) -> None:
        """In a child: as the agent's import left it."""
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.signal(signal.SIGCHLD, self._handler or signal.SIG_DFL)
        self.ended.close()
        self._writing.close()
