"""The seam between the runtime and how a session is isolated.

A driver turns a deployed agent into a template once, and a template into a session's compute many
times. The runtime knows only this file: it never learns whether a session is a process, a set of
namespaces or a virtual machine. The effective level is always reported, never lowered silently.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Level = Literal["auto", "process", "namespace", "microvm"]
Network = Literal["model", "none", "allowlist", "open"]


@dataclass(frozen=True)
class Limits:
    """Bounds of one session. Which of them are hard depends on the level."""

    memory_mb: int = 1024
    processes: int = 128
    disk_mb: int = 256
    cpus: float = 2.0
    open_files: int = 4096


@dataclass(frozen=True)
class Agent:
    """One version of a deployed agent: an immutable folder and how to start it."""

    runtime_id: str
    version: str
    folder: Path
    entry: str
    """Path of the script inside the folder, such as ``rl_app.py``."""
    python: str
    """Interpreter whose environment has what the agent imports."""
    packages: str = ""
    """Folder of packages that its requirements brought on top; readable in sessions."""
    env: Mapping[str, str] = field(default_factory=dict)
    isolation: Level = "auto"
    network: Network = "model"
    allow: tuple[str, ...] = ()
    """Hosts that network level ``allowlist`` permits."""
    zygote: bool = True
    """Fork sessions from one warmed interpreter; False starts a fresh one for each."""
    pool: int = 4
    """Sessions kept ready for the next start."""
    init_timeout_s: float = 120.0
    freeze_s: float = 5.0
    """How long a session rests before it is frozen; 0 for never. Rest is no request, no
    HealthyBusy, no call through its doors that waits for an answer, no processor time, no thread
    that only sleeps and no timer in an event loop."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class SessionSpec:
    session_id: str
    env: Mapping[str, str]
    """On top of the agent's own; set in the session, never in the template."""
    log_path: Path
    """The session's standard output and error are appended to it."""


class Stats(NamedTuple):
    memory_bytes: int
    processes: int
    cpu_s: float


class Probe(NamedTuple):
    available: bool
    reason: str
    """Why not, or what it will be made of."""


class Running(Protocol):
    """A command beside the agent; whoever holds this ends it by letting go."""

    @property
    def done(self) -> bool: ...

    async def wait(self) -> int:
        """The exit code, negative for a signal. OSError when it could not be run, or is lost."""

    async def end(self) -> None:
        """Ends the command with all that it started."""

    def let_go(self) -> None:
        """Ends it, too, without waiting for that. May be called twice."""


class Compute(Protocol):
    """A running session: everything that must be gone when the session is."""

    pid: int
    """Host pid of its first process."""

    async def connect(self) -> socket.socket:
        """A connection to the agent's HTTP server, where it may queue; thaws. OSError when nothing
        listens."""

    async def wait(self) -> str:
        """Returns once the compute is gone, saying why ("exit code 1", "signal 9", …)."""

    async def kill(self) -> None:
        """Ends every process of the session, also daemonised ones. May be called twice."""

    async def run(self, argv: Sequence[str], out: int, errors: int) -> Running:
        """A command in the session, as the agent is: same files, network, limits, variables.

        Its output goes to the two descriptors, which stay the caller's; its input comes from the
        first where that can be read, too, as a terminal or a socket. OSError when the session has
        ended.
        """

    async def listen_inside(self, port: int) -> socket.socket | None:
        """A loopback listener in the session's network; None when it shares the host's."""

    def freeze(self) -> bool:
        """Its agent stands still until ``thaw``; it can still be killed. False when that is not
        possible now."""

    def thaw(self) -> None:
        """Nothing when it runs."""

    def at_rest(self) -> bool:
        """Whether only what comes through the runtime can make it go on: no thread runs, or waits
        for time to pass or for the machine's own network."""

    def cpu_s(self) -> float:
        """Processor time so far, of what still runs."""

    def stats(self) -> Stats: ...


class Template(Protocol):
    """A prepared agent. Owns its zygote, when it has one."""

    level: str
    """Effective isolation level."""
    mode: Literal["zygote", "exec"]
    note: str
    """Empty, or why it is not what was asked for (for instance why it cannot fork)."""

    async def spawn(self, spec: SessionSpec) -> Compute: ...

    async def close(self) -> None: ...


class Driver(Protocol):
    level: str

    def probe(self) -> Probe:
        """Tried for real, once; never raises."""

    async def prepare(self, agent: Agent) -> Template:
        """IsolationError, with the agent's own traceback, when its code does not import."""
