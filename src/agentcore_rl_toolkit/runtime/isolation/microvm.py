"""Level ``microvm``: every session in a virtual machine with a kernel of its own. EXPERIMENTAL.

No session of this driver has ever run: the machines it was written on cannot boot a guest (their
``/dev/kvm`` is emulated), so only the probe and the refusals are tested, the rest is written from
the type stubs of ``microsandbox`` 0.7. It is thin on purpose: one machine a session, started fresh,
from the image that ``ART_IMAGE`` names (an image reference, or a folder with a root file system; it
holds Python and what the agent imports). The agent's folder is ``/app`` in it, read-only.

Not there yet, and refused instead of done in another way: the network levels ``model`` and
``allowlist`` (so no way to the object store: invocations answer, rollouts have nowhere to put their
result), commands in a session, forking from a warmed machine. ``auto`` never chooses this level.

A machine counts as able when it has booted a guest, once; that ``/dev/kvm`` can be opened says
nothing.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import itertools
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ...errors import IsolationError, install_extra
from .base import Agent, Compute, Probe, Running, SessionSpec, Stats, Template

BOOT_S = 60.0
PORT = 8080
EXPERIMENTAL = "experimental, its sessions have never been run by its authors"
_numbers = itertools.count(1)

_BOOT = """
import asyncio, sys
import microsandbox
async def boot():
    image, network = microsandbox.Image.bind(sys.argv[1]), microsandbox.Network.none()
    machine = await microsandbox.Sandbox.create(
        "probe", image=image, memory=128, cpus=1, network=network, ephemeral=True
    )
    await machine.kill()
asyncio.run(boot())
"""


class MicroVMDriver:
    level = "microvm"

    def probe(self) -> Probe:
        return _probe()

    async def prepare(self, agent: Agent) -> Template:
        if agent.network not in ("none", "open"):
            raise IsolationError(
                f"isolation level 'microvm' cannot give network level {agent.network!r} yet: "
                "deploy with ART_NETWORK=none or ART_NETWORK=open, or use level 'namespace'"
            )
        if not agent.env.get("ART_IMAGE"):
            raise IsolationError(
                "isolation level 'microvm' needs an image with Python and what the agent imports: "
                "deploy with ART_IMAGE=<image reference, or folder with a root file system>"
            )
        return MicroVMTemplate(agent)


@functools.cache
def _probe() -> Probe:
    if importlib.util.find_spec("microsandbox") is None:
        install = install_extra("microvm")
        return Probe(False, f"not installed: {install} ({EXPERIMENTAL})")
    if reason := obstacle():
        return Probe(False, f"{reason} ({EXPERIMENTAL})")
    with tempfile.TemporaryDirectory(prefix="art-boot-") as work:
        (Path(work) / "root").mkdir()
        try:
            trial = subprocess.run(
                [sys.executable, "-c", _BOOT, f"{work}/root"],
                env={**os.environ, "MSB_HOME": f"{work}/home"},
                capture_output=True,
                text=True,
                timeout=BOOT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return Probe(False, f"a guest did not boot: {error} ({EXPERIMENTAL})")
    if trial.returncode != 0:
        said = trial.stderr.strip().splitlines() or ["no reason given"]
        return Probe(False, f"a guest did not boot: {said[-1][-300:]} ({EXPERIMENTAL})")
    return Probe(True, f"a guest has booted; {EXPERIMENTAL}")


def obstacle(root: Path = Path("/")) -> str:
    """What is known to keep a guest from booting, so that nobody waits for it; empty if nothing."""
    if sys.platform != "linux":
        return "" if sys.platform == "darwin" else f"not available on {sys.platform}"
    device = root / "dev/kvm"
    if not device.exists():
        return "this machine has no /dev/kvm"
    if not os.access(device, os.R_OK | os.W_OK):
        return "/dev/kvm is not yours to open: ask for membership of its group"
    if (root / "sys/module/kvm_pvm").exists():
        return "virtualisation is emulated here (kvm_pvm), which boots no ordinary guest"
    flags = (root / "proc/cpuinfo").read_text().split()
    if platform.machine() == "x86_64" and not {"vmx", "svm"} & set(flags):
        return "the processor offers no virtualisation here (neither vmx nor svm)"
    return ""


class MicroVMTemplate:
    level = "microvm"
    mode: Literal["zygote", "exec"] = "exec"
    note = f"every session boots a machine of its own; {EXPERIMENTAL}"

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._running: set[MicroVM] = set()

    async def spawn(self, spec: SessionSpec) -> Compute:
        import microsandbox as msb  # type: ignore[import-not-found, unused-ignore]

        agent, limits = self.agent, self.agent.limits
        image = agent.env["ART_IMAGE"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folders = [(str(agent.folder), "/app"), *((p, p) for p in (agent.packages,) if p)]
        # An agent listens on all addresses, and so on the machine's, when it is in a container.
        env = {**agent.env, **spec.env, "DOCKER_CONTAINER": "1", "PYTHONPATH": agent.packages}
        try:
            machine = await msb.Sandbox.create(
                f"art-{os.getpid()}-{next(_numbers)}",
                image=msb.Image.bind(image) if os.path.isdir(image) else msb.Image.oci(image),
                memory=limits.memory_mb,
                cpus=max(1, int(limits.cpus)),
                workdir="/app",
                env=env,
                volumes={at: msb.Volume.bind(path, readonly=True) for path, at in folders},
                ports={port: PORT},
                network=msb.Network.none() if agent.network == "none" else msb.Network.allow_all(),
                ephemeral=True,
            )
            work = await machine.exec_stream("python", [f"/app/{agent.entry}"])
        except msb.MicrosandboxError as error:
            raise IsolationError(f"cannot boot a machine for {spec.session_id}: {error}") from error
        compute = MicroVM(machine, work, port, spec.log_path)
        self._running.add(compute)
        compute.gone.add_done_callback(lambda _: self._running.discard(compute))
        return compute

    async def close(self) -> None:
        await asyncio.gather(*(compute.kill() for compute in list(self._running)))


class MicroVM:
    """One session's machine, and the agent's process in it."""

    pid = 0

    def __init__(self, machine: Any, work: Any, port: int, log: Path) -> None:
        self._machine, self._work, self._port = machine, work, port
        self._reason = ""
        self.gone = asyncio.ensure_future(self._attend(log))

    async def _attend(self, log: Path) -> str:
        with log.open("ab", buffering=0) as file:
            async for event in self._work:
                if event.data:
                    file.write(event.data)
                if event.code is not None:
                    self._reason = self._reason or f"exit code {event.code}"
        await self._machine.kill()
        return self._reason or "killed"

    async def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def wait(self) -> str:
        return await asyncio.shield(self.gone)

    async def kill(self) -> None:
        if not self.gone.done():
            self._reason = self._reason or "stopped"
            await self._machine.kill()
            await self.wait()

    async def run(self, argv: Sequence[str], out: int, errors: int) -> Running:
        raise OSError("isolation level 'microvm' runs no commands in sessions yet")

    async def listen_inside(self, port: int) -> socket.socket | None:
        return None

    def freeze(self) -> bool:
        return False

    def thaw(self) -> None:
        pass

    def at_rest(self) -> bool:
        return False

    def cpu_s(self) -> float:
        return 0.0

    def stats(self) -> Stats:
        return Stats(0, 0, 0.0)
