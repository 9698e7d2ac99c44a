"""A command beside the agent, in the same session.

    init ── keeper ── command ── whatever it starts

The keeper adopts what the command leaves behind, so that all of it can be told from the agent's own
processes. When the runtime asks or hangs up, it ends the whole tree; when the command ends by
itself, what it left running goes to init and lives on with the session, as in a container.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import traceback
from typing import Any, NoReturn

from . import fence, linux, tree, wire

NOT_FOUND, NOT_RUN = 127, 126
"""Exit codes of a shell for a program that is not there or cannot be run."""


def start(
    config: dict[str, Any], writable: list[str], channel: socket.socket, descriptors: list[int]
) -> None:
    """Of init. ``descriptors``: what to run, its output, its errors, and the leash."""
    if len(descriptors) != 4:
        for descriptor in descriptors:
            os.close(descriptor)
        return
    spec, out, errors, held = descriptors
    leash = socket.socket(fileno=held)
    try:
        if os.fork() == 0:
            try:
                channel.close()
                _keep(config, writable, (spec, out, errors), leash)
            except BaseException:  # noqa: BLE001 - seen in the session's log
                traceback.print_exc()
            finally:
                os._exit(1)
    except OSError as error:
        wire.send(leash, {"error": f"cannot start a process: {error.strerror}"})
    finally:
        leash.close()
        for descriptor in (spec, out, errors):
            os.close(descriptor)


def _keep(
    config: dict[str, Any],
    writable: list[str],
    descriptors: tuple[int, int, int],
    leash: socket.socket,
) -> NoReturn:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    _default_signals()
    try:
        command = os.fork()
    except OSError as error:
        wire.send(leash, {"error": f"cannot start a process: {error.strerror}"})
        os._exit(1)
    if command == 0:
        leash.close()
        _run(config, writable, *descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    handle = os.pidfd_open(command)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(leash, select.POLLIN)
    ready = {descriptor for descriptor, _ in poller.poll()}
    if handle in ready:
        _, status = os.waitpid(command, 0)
        wire.send(leash, {"exit": os.waitstatus_to_exitcode(status)})
    else:
        wire.receive(leash)  # unread, it would turn our answer into a broken connection
        tree.end_below(os.getpid())
        try:
            wire.send(leash, {"exit": -signal.SIGKILL})
        except OSError:
            pass  # the runtime has hung up
    os._exit(0)


def _run(config: dict[str, Any], writable: list[str], spec: int, out: int, errors: int) -> NoReturn:
    code = NOT_RUN
    try:
        os.setsid()
        with os.fdopen(spec, "rb") as file:
            file.seek(0)
            argv = json.load(file)
        for target, descriptor in enumerate((_input(out), out, errors)):
            os.dup2(descriptor, target)
        fence.enclose(config, writable)
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        sys.stderr.write(f"{argv[0]}: not found\n")
        code = NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _input(out: int) -> int:
    """What can also be read is the input, too: a socket, or the command's controlling terminal."""
    if not readable(out):
        return os.open("/dev/null", os.O_RDONLY)
    if os.isatty(out):
        fcntl.ioctl(out, termios.TIOCSCTTY, 0)
    return out


def readable(out: int) -> bool:
    return fcntl.fcntl(out, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def _default_signals() -> None:
    """What is ignored stays so in the program that is run, and init and Python ignore several."""
    signal.set_wakeup_fd(-1)
    for number in (
        *(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
        *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGXFSZ),
    ):
        signal.signal(number, signal.SIG_DFL)
