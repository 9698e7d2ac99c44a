"""Which agents are registered: runtimes, their versions and endpoints, on disk.

The registry is one file of JSON lines: what it is, then one line for every change, the whole
runtime or the word that it is gone. A change costs the same however many are registered; the file
is written anew when half of it is history. A kill at any moment leaves the state before or after:
a last line that has no end was never answered. Everything is held in memory; only this module
writes the file. It knows nothing of HTTP or sessions: ``control.py`` decides, this keeps.
"""

from __future__ import annotations

import os
import secrets
import string
import time
from bisect import bisect_left
from pathlib import Path
from typing import Any

import msgspec

from ..errors import RuntimeServiceError

DEFAULT_ENDPOINT = "DEFAULT"
PENDING = ("CREATING", "UPDATING")


class Version(msgspec.Struct):
    """Immutable once made, but for its status."""

    number: str
    config: dict[str, Any]
    """The blocks of the request that made it, as received."""
    entry: str
    status: str
    created: float
    client_token: str = ""
    failure: str = ""


class Endpoint(msgspec.Struct):
    name: str
    endpoint_id: str
    target: str
    created: float
    updated: float
    live: str = ""
    """The version that new sessions get; empty until one is READY."""
    description: str = ""
    client_token: str = ""
    tags: dict[str, str] = msgspec.field(default_factory=dict)


class Runtime(msgspec.Struct):
    runtime_id: str
    name: str
    created: float
    updated: float
    client_token: str = ""
    next_version: int = 1
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    versions: dict[str, Version] = msgspec.field(default_factory=dict)
    endpoints: dict[str, Endpoint] = msgspec.field(default_factory=dict)

    @property
    def latest(self) -> Version:
        return self.versions[max(self.versions, key=int)]


class Head(msgspec.Struct):
    format: int = 0


class Gone(msgspec.Struct):
    gone: str


FORMAT = Head(2)
SMALL_BYTES = 1024 * 1024
"""A shorter file is not worth writing anew."""


class Registry:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.runtimes: dict[str, Runtime] = {}
        self.ordered: list[Runtime] = []
        """Those that are saved, by id."""
        self._names: dict[str, Runtime] = {}
        self._tokens: dict[str, Runtime] = {}
        self._size = self._fresh_size = 0
        self._load()
        self._rewrite()

    def by_name(self, name: str) -> Runtime | None:
        return self._names.get(name)

    def by_token(self, token: str) -> Runtime | None:
        return self._tokens.get(token)

    def add_runtime(self, name: str, client_token: str, tags: dict[str, str]) -> Runtime:
        """Known from now on, saved and listed with its first version."""
        now = time.time()
        runtime = Runtime(f"{name}-{random_id()}", name, now, now, client_token, tags=tags)
        self._know(runtime)
        return runtime

    def _know(self, runtime: Runtime) -> None:
        self.runtimes[runtime.runtime_id] = runtime
        self._names[runtime.name] = runtime
        if runtime.client_token:
            self._tokens[runtime.client_token] = runtime

    def add_version(
        self,
        runtime: Runtime,
        number: str,
        config: dict[str, Any],
        entry: str,
        client_token: str,
    ) -> Version:
        """Not READY yet; DEFAULT is told to move to it."""
        now = time.time()
        status = "UPDATING" if runtime.versions else "CREATING"
        version = Version(number, config, entry, status, now, client_token)
        runtime.versions[number] = version
        runtime.updated = now
        default = runtime.endpoints.get(DEFAULT_ENDPOINT)
        if default is None:
            self.add_endpoint(runtime, DEFAULT_ENDPOINT, number)
        else:
            default.target, default.updated = number, now
        return version

    def add_endpoint(self, runtime: Runtime, name: str, target: str) -> Endpoint:
        now = time.time()
        endpoint_id = f"{name}-{random_id()}"
        endpoint = runtime.endpoints[name] = Endpoint(name, endpoint_id, target, now, now)
        return endpoint

    def touch(self, runtime: Runtime, endpoint: Endpoint) -> None:
        endpoint.updated = time.time()
        self.save(runtime)

    def settle(self, runtime: Runtime, version: Version, failure: str = "") -> None:
        """The version was prepared, or could not be: endpoints that aim at it follow."""
        if failure:
            version.failure = failure
            version.status = "CREATE_FAILED" if version.status == "CREATING" else "UPDATE_FAILED"
        else:
            version.status = "READY"
            for endpoint in runtime.endpoints.values():
                if endpoint.target == version.number:
                    endpoint.live = version.number
        runtime.updated = time.time()
        self.save(runtime)

    def save(self, runtime: Runtime) -> None:
        """Kept before it is answered: a registration that was acknowledged survives a power cut."""
        at = bisect_left(self.ordered, runtime.runtime_id, key=_id)
        if self.ordered[at : at + 1] != [runtime]:
            self.ordered.insert(at, runtime)
        self._append(runtime)

    def remove(self, runtime: Runtime) -> None:
        """May be called twice, and for one that was never saved."""
        for book, key in (
            (self.runtimes, runtime.runtime_id),
            (self._names, runtime.name),
            (self._tokens, runtime.client_token),
        ):
            if book.get(key) is runtime:
                del book[key]
        at = bisect_left(self.ordered, runtime.runtime_id, key=_id)
        if at < len(self.ordered) and self.ordered[at] is runtime:
            del self.ordered[at]
            self._append(Gone(runtime.runtime_id))

    def _append(self, line: Runtime | Gone) -> None:
        data = msgspec.json.encode(line) + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        self._size += len(data)
        if self._size > max(2 * self._fresh_size, SMALL_BYTES):
            self._rewrite()

    def _rewrite(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for line in (FORMAT, *self.ordered):
                file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self._size = self._fresh_size = file.tell()
        os.replace(fresh, self.path)

    def _load(self) -> None:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        *lines, _ = raw.split(b"\n")
        try:
            head = msgspec.json.decode(lines.pop(0) if lines else raw, type=Head)
            if head != FORMAT:
                raise RuntimeServiceError(
                    f"the registry {self.path} has format {head.format}, this version reads "
                    f"{FORMAT.format}. Move it away to start empty"
                )
            for line in lines:
                self._replay(line)
        except msgspec.DecodeError as error:
            raise RuntimeServiceError(
                f"the registry {self.path} cannot be read ({error}). Move it away to start empty"
            ) from error
        self.ordered = sorted(self.runtimes.values(), key=_id)

    def _replay(self, line: bytes) -> None:
        if not line.startswith(b'{"gone"'):
            self._know(msgspec.json.decode(line, type=Runtime))
        elif gone := self.runtimes.get(msgspec.json.decode(line, type=Gone).gone):
            self.remove(gone)


def _id(runtime: Runtime) -> str:
    return runtime.runtime_id


def random_id() -> str:
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(10))
