"""Level ``namespace``: every session in its own user, process, mount, network, IPC, host name and
control-group namespaces, without capabilities, behind a system call filter.

For root and for ordinary users by one path. Root maps a range of ids that nothing on the machine
uses, so that not even a session that broke out of its user namespace would be root; an ordinary
user maps itself. It is not a wall against a kernel exploit: the kernel is shared.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import cgroup, view
from .base import Agent, Limits, Probe, Template
from .inside import linux, sandbox, seccomp
from .template import ProcessTemplate

FIRST_ID = 1_900_000_000
"""Beyond every range that login, containers or services are given by convention."""
IDS = 65536
PROXY_PORT = 3128
"""On the session's loopback: the way to permitted hosts elsewhere."""
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_NO_PROXY = "127.0.0.1,localhost,::1"
_blocks = itertools.count()


def users() -> sandbox.Users:
    """Which ids a new zygote gets: a fresh block where the machine lets us, else our own."""
    if os.geteuid() == 0 and _maps_everything():
        first = FIRST_ID + IDS * (next(_blocks) % 1000)
        return {"first_uid": first, "first_gid": first, "count": IDS}
    return {"first_uid": os.geteuid(), "first_gid": os.getegid(), "count": 1}


def _maps_everything() -> bool:
    for name in ("uid_map", "gid_map"):
        extents = [line.split() for line in Path(f"/proc/self/{name}").read_text().splitlines()]
        needed = FIRST_ID + IDS * 1000
        if not any(int(first) == 0 and int(count) >= needed for first, _, count in extents):
            return False
    return True


class NamespaceTemplate(ProcessTemplate):
    level = "namespace"
    own_network = True
    own_processes = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.own_network = agent.network != "open"
        self._users = users()
        self._view: dict[str, object] = {}

    async def start(self) -> None:
        await asyncio.to_thread(self._compose)
        await super().start()

    def _compose(self) -> None:
        folder = self.agent.folder
        if self._users["count"] > 1:
            folder = self._given_away(folder)
        self._view = view.compose(self.agent, folder)

    def _given_away(self, folder: Path) -> Path:
        """A copy that belongs to the sessions' user: an overlay keeps the owner of its lower."""
        copy = self.scratch.path / "app"
        if not copy.exists():
            shutil.copytree(folder, copy, symlinks=True)
            owner = self._users["first_uid"] + sandbox.USER
            for place, folders, files in os.walk(copy):
                for name in ("", *folders, *files):
                    os.lchown(os.path.join(place, name), owner, owner)
        return copy

    def environment(self) -> dict[str, str]:
        values = {"HOME": sandbox.HOME, "TMPDIR": "/tmp"}
        if self.agent.network in ("model", "allowlist"):
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
                values[name] = _PROXY
            values |= {"NO_PROXY": _NO_PROXY, "no_proxy": _NO_PROXY}
        return {**super().environment(), **values}

    def config(self) -> dict[str, Any]:
        return {
            **super().config(),
            **self._view,
            "folder": sandbox.APP,
            "users": self._users,
            "user": sandbox.USER if self._users["count"] > 1 else 0,
            "network": self.agent.network,
        }


class NamespaceDriver:
    level = "namespace"

    def probe(self) -> Probe:
        return _probe()

    async def prepare(self, agent: Agent) -> Template:
        template = NamespaceTemplate(agent)
        try:
            await template.start()
        except BaseException:
            await template.close()
            raise
        return template


@functools.cache
def _probe() -> Probe:
    if not linux.HERE:
        return Probe(False, f"needs Linux, this is {sys.platform}")
    if not seccomp.supported():
        return Probe(False, f"has no system call table for {os.uname().machine}")
    inside = str(Path(sandbox.__file__).parent)
    config = {
        "users": users(),
        "user": sandbox.USER if users()["count"] > 1 else 0,
        "view": [{"source": inside, "target": sandbox.APP}],
        **{"links": {}, "files": {}, "kept": [], "network": "model"},
        "limits": dataclasses.asdict(Limits()),
    }
    try:
        trial = subprocess.run(
            [sys.executable, inside, "probe", "0"],
            env={"PATH": os.defpath},
            input=json.dumps(config),
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Probe(False, f"the trial could not be run: {error}")
    if trial.returncode == 0:
        made_of = "user, process, mount, network, IPC, host name and cgroup namespaces"
        return Probe(True, f"{made_of}; {cgroup.find().describe()}")
    return Probe(False, (trial.stdout + trial.stderr).strip()[-300:] + _hint())


def _hint() -> str:
    """What forbids namespaces on the systems that do."""
    for path, value, name in (
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor (Ubuntu)"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "this kernel's configuration"),
        ("/proc/sys/user/max_user_namespaces", "0", "this machine's configuration"),
    ):
        try:
            if Path(path).read_text().strip() == value:
                return f" ({name} forbids user namespaces: {path} is {value})"
        except OSError:
            continue
    return ""
