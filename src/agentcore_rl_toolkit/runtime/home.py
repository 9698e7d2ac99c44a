"""The runtime's folder on disk: who owns it, and where it says that it is up.

One live runtime per folder, by a lock that the kernel drops when the process dies, however it dies.
``runtime.json`` is written once the server listens and removed at a clean end; a stale one only
names an address at which nobody answers.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from .. import local
from ..errors import RuntimeServiceError


class Home:
    def __init__(self, path: Path | None = None) -> None:
        self.path = (path or local.home()).absolute()
        self.runtime = self.path / "runtime"
        self.objects = self.runtime / "objects"
        self.agents = self.runtime / "agents"
        self.logs = self.runtime / "logs"
        self.registry = self.runtime / "registry.jsonl"
        self.state_file = self.path / local.state_file().name
        self.access_keys = self.path / "access-keys"
        self._lock = -1

    def take(self) -> None:
        """RuntimeServiceError when another live runtime has it."""
        for folder in (self.path, self.runtime, self.agents, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        self._lock = os.open(self.runtime / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.leave()
            raise RuntimeServiceError(
                f"another local runtime{self._owner()} already uses {self.path}. Use that one, "
                "stop it, or give this one its own folder with --home or ART_HOME"
            ) from None
        self.state_file.unlink(missing_ok=True)

    def announce(self, endpoint_url: str, access_keys: Path | None = None) -> None:
        state = {"endpoint_url": endpoint_url, "pid": os.getpid(), "started": time.time()}
        if access_keys is not None:
            state["access_keys"] = str(access_keys)
        fresh = self.state_file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(state))
        os.replace(fresh, self.state_file)

    def withdraw(self) -> None:
        self.state_file.unlink(missing_ok=True)

    def leave(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _owner(self) -> str:
        try:
            state = json.loads(self.state_file.read_text())
            return f" (pid {state['pid']}, {state['endpoint_url']})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""
