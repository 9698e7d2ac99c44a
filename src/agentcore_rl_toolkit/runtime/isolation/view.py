"""What of the machine a zygote and its sessions can see: Python, its packages, system libraries.

The agent's interpreter is asked what it needs, so that virtual environments, interpreters in
unusual places and editable installs work. Nothing else of the machine is there: no home folders,
no sockets, no configuration but what the C library and TLS need.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
from pathlib import Path

from ...errors import IsolationError
from .base import Agent
from .inside import sandbox

_INSIDE = Path(__file__).parent / "inside"
_SYSTEM = (
    "/usr",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/debian_version",
    "/etc/os-release",
    "/etc/fonts",
    "/etc/libreoffice",  # its registry, as Debian packs it: it does not start without
    *sorted(glob.glob("/etc/java*")),  # what Debian's JDK links to; it does not start without
)
_RESOLVER = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services")
"""Only for sessions that share the machine's network."""
_TOP = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n",
    "/etc/group": "root:x:0:\nagent:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost session\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/hostname": "session\n",
}

_QUESTION = """
import json, os, sys
found = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sys.path]
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found += [os.path.dirname(path) for path in getattr(module, "MAPPING", {}).values()]
hop = sys.executable
while hop:
    found.append(os.path.dirname(hop))
    hop = os.path.join(os.path.dirname(hop), os.readlink(hop)) if os.path.islink(hop) else ""
print(json.dumps([os.path.abspath(path) for path in found if path]))
"""
"""Asked of the agent's interpreter. Editable installs are on its path, or in a finder's table."""


def compose(agent: Agent, folder: Path) -> dict[str, object]:
    """The view as the zygote gets it: places, links, files, and which places sessions cover."""
    paths = needs(agent)
    places = {path: path for path in (*_SYSTEM, *(_RESOLVER if agent.network == "open" else ()))}
    places |= {path: os.path.realpath(path) for path in paths}
    links = {}
    for path in _TOP:
        if os.path.islink(path):
            links[path] = os.readlink(path)
        else:
            places[path] = path
    files = {path: text for path, text in _FILES.items() if path not in places}
    kept = [*_outermost(places), sandbox.APP]
    places[sandbox.APP] = str(folder)
    return {
        "view": [{"source": places[path], "target": path} for path in kept],
        "links": links,
        "files": files,
        "kept": [path for path in kept if _covered(path)],
    }


def readable(agent: Agent) -> list[str]:
    """The same for level ``process``, where the machine's own paths are seen as they are."""
    extra = ("/etc", "/proc", "/sys", "/dev", "/run/systemd/resolve", "/nix/store")
    return [*_SYSTEM, *_TOP, *extra, *needs(agent), str(agent.folder)]


def needs(agent: Agent) -> list[str]:
    """Folders that the agent's interpreter and our own part in it are made of."""
    try:
        answer = subprocess.run(
            [agent.python, "-c", _QUESTION],
            env={"PATH": os.defpath, "HOME": "/nonexistent", **agent.env},  # PYTHONPATH counts
            cwd="/",
            capture_output=True,
            timeout=30,
            check=True,
        )
        found: list[str] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise IsolationError(
            f"cannot use {agent.python} as the agent's interpreter: {error}"
        ) from error
    if agent.packages:
        if not os.path.isdir(agent.packages):
            raise IsolationError(
                f"the packages of the agent's requirements are gone from {agent.packages}: deploy "
                "it again"
            )
        found.append(agent.packages)
    return [path for path in (*found, str(_INSIDE)) if os.path.exists(path) and path != "/"]


def _outermost(places: dict[str, str]) -> list[str]:
    """Targets that exist and do not already come with one further out."""
    kept: list[str] = []
    for path in sorted(places, key=len):
        inside = any(path == one or path.startswith(one.rstrip("/") + "/") for one in kept)
        if not inside and os.path.exists(places[path]):
            kept.append(path)
    return kept


def _covered(path: str) -> bool:
    return any(path.startswith(place + "/") for place in (*sandbox.COVERED, "/run"))
