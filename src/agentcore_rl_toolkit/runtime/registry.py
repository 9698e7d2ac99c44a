"""Which agents are registered: runtimes, their versions and endpoints, on disk.

The registry is one JSON file, rewritten atomically at each change, so that a kill at any moment
leaves the state before or after it. Everything is held in memory; only this module writes the file.
It knows nothing of HTTP or sessions: ``control.py`` decides, this keeps.
"""

from __future__ import annotations

import os
import secrets
import string
import time
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


class Book(msgspec.Struct):
    format: int = 1
    runtimes: dict[str, Runtime] = msgspec.field(default_factory=dict)


class Registry:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.book = self._load()

    @property
    def runtimes(self) -> dict[str, Runtime]:
        return self.book.runtimes

    def by_name(self, name: str) -> Runtime | None:
        return next((r for r in self.runtimes.values() if r.name == name), None)

    def add_runtime(self, name: str, client_token: str, tags: dict[str, str]) -> Runtime:
        now = time.time()
        runtime = Runtime(f"{name}-{random_id()}", name, now, now, client_token, tags=tags)
        self.runtimes[runtime.runtime_id] = runtime
        return runtime

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
        endpoint = runtime.endpoints[name] = Endpoint(name, random_id(), target, now, now)
        return endpoint

    def touch(self, endpoint: Endpoint) -> None:
        endpoint.updated = time.time()
        self.save()

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
        self.save()

    def save(self) -> None:
        """Kept before it is answered: a registration that was acknowledged survives a power cut."""
        fresh = self.path.with_suffix(".new")
        with open(fresh, "wb") as file:
            file.write(msgspec.json.encode(self.book))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)

    def _load(self) -> Book:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return Book()
        try:
            book = msgspec.json.decode(raw, type=Book)
        except msgspec.DecodeError as error:
            raise RuntimeServiceError(
                f"the registry {self.path} cannot be read ({error}). Move it away to start empty"
            ) from error
        if book.format != 1:
            raise RuntimeServiceError(
                f"the registry {self.path} has format {book.format}, this version reads 1"
            )
        return book


def random_id() -> str:
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(10))
