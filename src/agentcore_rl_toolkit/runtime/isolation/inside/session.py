"""The first process of a session: makes its surroundings, has the agent forked, stays as its init.

Init reaps, opens listeners inside the session's network when the runtime asks, reports how the
agent ended, and takes every process of the session with it: when the agent ends, when the
runtime hangs up, when the zygote dies.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from . import birth, command, fence, fresh, linux, plain, sandbox, script, tree, wire

INGRESS = "127.0.0.2"
"""Where an agent that serves with uvicorn listens, in a network of its own: 127.0.0.1 is kept for
what the runtime opens there, on whatever port."""

_DEVICES = [
    f"/dev/{name}"
    for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
]
Config = dict[str, Any]


def begin(
    config: Config,
    request: wire.Message,
    descriptors: list[int],
    births: socket.socket | None = None,
) -> socket.socket:
    """Returns the agent's listener, in the agent's process; never where that is born elsewhere:
    see ``birth``."""
    script.let_bind()
    log, channel_fd, *given = descriptors
    channel = socket.socket(fileno=channel_fd)
    try:
        _surround(config, request, log)
        listener = socket.socket(fileno=given[0]) if given else _listen(config)
        if births is None:
            agent = os.fork()
        else:
            agent = birth.ask(births, config, request, listener.fileno())
    except Exception as error:  # noqa: BLE001 - told to the runtime
        again = isinstance(error, birth.Unborn)
        wire.send(channel, {"error": f"{type(error).__name__}: {error}", "again": again})
        os._exit(1)
    if agent:
        listener.close()
        _init(config, request, channel, agent)
    channel.close()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_DUMPABLE, 1)
    fence.enclose(config, [request["scratch"], *_DEVICES])
    _reseed()
    return listener


def enter(config: Config, request: wire.Message, descriptors: list[int]) -> socket.socket:
    """Of an agent that its zygote forked: into the session that an init has made. Its listener."""
    try:
        os.dup2(descriptors[2], 2)  # should it not get far, the session's log says why
        script.let_bind()
        os.setsid()
        listener, log = birth.enter(config, request, descriptors)
        _standard_streams(log)
        os.environ.update(request["env"])
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        _reseed()
        return socket.socket(fileno=listener)
    except BaseException:  # noqa: BLE001 - nothing may run outside
        traceback.print_exc()
        os._exit(1)


def _listen(config: Config) -> socket.socket:
    """Made in the session's own network. A socket of the machine's network would be a way out:
    it can be disconnected, and then connected to anything there."""
    if config["binds"]:
        return socket.socket()  # the agent makes its own
    return socket.create_server((INGRESS, config["port"]), backlog=1024)


def exec_agent(config: Config, listener: socket.socket) -> NoReturn:
    """Replaces this process by a fresh interpreter, or by a program that is not Python."""
    path = os.path.join(config["folder"], config["entry"])
    if not config["entry"].endswith(".py"):
        os.execve(path, [path], dict(os.environ))
    os.environ[fresh.SPEC] = json.dumps({"folder": config["folder"], "entry": config["entry"]})
    descriptor = -1
    if not config["binds"]:
        descriptor = os.dup(listener.fileno())
        os.set_inheritable(descriptor, True)
    inside = os.path.dirname(os.path.abspath(__file__))
    argv = [config["python"], inside, "agent", str(descriptor)]
    os.execve(config["python"], argv, dict(os.environ))


def _surround(config: Config, request: wire.Message, log: int) -> None:
    os.setsid()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGTERM)
    _standard_streams(log)
    os.environ.update(request["env"])
    if config["level"] == "namespace":
        sandbox.enter_session(config, request)
    else:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        _scratch(config["folder"], request["scratch"])
        plain.limit(request["limits"])  # memory is watched by the runtime
    # Init can be neither traced nor read by the agent, which has the same user id.
    linux.prctl(linux.PR_SET_DUMPABLE, 0)


def _standard_streams(log: int) -> None:
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)


def _scratch(folder: str, scratch: str) -> None:
    places, work = plain.furnish(folder, scratch)
    os.environ.update(places)
    tempfile.tempdir = None  # it remembers the zygote's
    os.chdir(work)


def _reseed() -> None:
    """Generators that CPython does not reseed at a fork: all sessions would draw the same."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()


def _init(config: Config, request: wire.Message, channel: socket.socket, agent: int) -> NoReturn:
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    ignored = [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if config["level"] == "process":
        signal.signal(signal.SIGTERM, lambda *_: None)
    else:  # the end of the zygote is SIGKILL there, and this one could only be the agent's
        ignored.append(signal.SIGTERM)
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the agent's import may have blocked some
    writing.send(b"\0")  # the agent may have ended before anybody listened
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    reason = "stopped"
    try:
        wire.send(channel, {"ready": True})
        run = functools.partial(command.start, config, [request["scratch"], *_DEVICES], channel)
        reason = _attend(channel, reading, agent, run)
    finally:
        # A process namespace dies with its first process; without one there is a sweep.
        if config["level"] == "process" and tree.children():
            tree.end_below(os.getpid())
        try:
            wire.send(channel, {"ended": reason})
        except OSError:
            pass
        os._exit(0)


def _attend(
    channel: socket.socket,
    wakeups: socket.socket,
    agent: int,
    run: Callable[[list[int]], None],
) -> str:
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    poller.register(wakeups, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == wakeups.fileno():
                if signal.SIGTERM in wakeups.recv(4096):
                    return "the zygote has ended"
                status = tree.reap().get(agent)
                if status is not None:
                    code = os.waitstatus_to_exitcode(status)
                    return f"exit code {code}" if code >= 0 else f"signal {-code}"
            else:
                received = wire.receive(channel)
                if received is None:
                    return "the runtime has gone"
                if received[0].get("do") == "end":
                    return "stopped"
                if received[0].get("do") == "run":
                    run(received[1])
                else:
                    _answer(channel, received[0])


def _answer(channel: socket.socket, request: wire.Message) -> None:
    """A listener, or plain sockets: they belong to the network in which they are made."""
    made: list[socket.socket] = []
    try:
        if "listen" in request:
            made.append(socket.create_server(("127.0.0.1", request["listen"]), backlog=256))
        else:
            made += [socket.socket() for _ in range(request["sockets"])]
        wire.send(channel, {"n": request["n"]}, [sock.fileno() for sock in made])
    except OSError as error:
        wire.send(channel, {"n": request["n"], "error": str(error)})
    finally:
        for sock in made:
            sock.close()
