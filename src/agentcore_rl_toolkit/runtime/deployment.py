"""Registered agents made runnable: their copies on disk, their preparation, who serves what.

Owns the registry, the agents folder and the background preparation of new versions. A version is
copied before its registration is saved and answered; it becomes READY, and its endpoints move to
it, only after a template of it was prepared, so an agent that does not import never replaces one
that works. ``control.py`` puts the AWS wire on top.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError, IsolationError
from . import agent as agents
from . import wire
from .isolation.base import Agent
from .life import Timeouts
from .objects import ObjectStore, Refused
from .registry import PENDING, Endpoint, Registry, Runtime, Version
from .template import Templates

logger = logging.getLogger(__name__)

FAILURE_CHARS = 4000


class Deployed(NamedTuple):
    agent: Agent
    timeouts: Timeouts


class Deployments:
    def __init__(
        self,
        registry: Registry,
        templates: Templates,
        folder: Path,
        objects: ObjectStore,
        *,
        isolation: str = "auto",
        init_timeout_s: float = 120.0,
    ) -> None:
        self.registry, self.templates, self.folder = registry, templates, folder
        self.objects = objects
        self.isolation, self.init_timeout_s = isolation, init_timeout_s
        self.endpoint_url = ""
        """Of this runtime, as its sessions see it; known once it listens."""
        self.credentials: tuple[str, str] | None = None
        """Of the sessions, where the object store checks them."""
        self._preparing: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._headers: dict[tuple[str, str], frozenset[str]] = {}

    # --- lookups ------------------------------------------------------------------------------

    def runtime(self, runtime_id: str) -> Runtime:
        runtime = self.registry.runtimes.get(runtime_id)
        if runtime is None:
            raise wire.not_found(f"No agent runtime {runtime_id!r} is registered here")
        return runtime

    def find(self, runtime_id: str, qualifier: str) -> tuple[Runtime, Endpoint]:
        runtime = self.runtime(runtime_id)
        endpoint = runtime.endpoints.get(qualifier)
        if endpoint is None:
            raise wire.not_found(
                f"No endpoint or agent found with qualifier {qualifier!r} for agent {runtime_id!r}"
            )
        return runtime, endpoint

    async def live(self, runtime_id: str, qualifier: str) -> Deployed:
        """What a new session of the endpoint gets; waits while its first version is prepared."""
        runtime, endpoint = self.find(runtime_id, qualifier)
        if not endpoint.live:
            if task := self._preparing.get((runtime_id, endpoint.target)):
                await asyncio.wait({task})
            runtime, endpoint = self.find(runtime_id, qualifier)
        if not endpoint.live:
            failure = runtime.versions[endpoint.target].failure
            raise wire.runtime_error(f"The agent does not start: {failure or 'not prepared'}")
        version = runtime.versions[endpoint.live]
        return Deployed(self.agent(runtime, version), timeouts_of(version.config))

    def agent(self, runtime: Runtime, version: Version) -> Agent:
        return agents.agent_of(
            runtime.runtime_id,
            version.number,
            self.version_folder(runtime, version.number),
            version.entry,
            version.config.get("environmentVariables") or {},
            endpoint_url=self.endpoint_url,
            credentials=self.credentials or ("local", "local"),
            isolation=self.isolation,
            init_timeout_s=self.init_timeout_s,
            least_memory_mb=memory_of(version.config),
        )

    def allowed_headers(self, runtime_id: str, version: str) -> frozenset[str]:
        """Lower-case names of the caller's own headers that the agent gets."""
        key = (runtime_id, version)
        if key not in self._headers:
            runtime = self.registry.runtimes.get(runtime_id)
            found = runtime.versions.get(version) if runtime else None
            block = found.config.get("requestHeaderConfiguration") if found else None
            names = (block or {}).get("requestHeaderAllowlist") or []
            self._headers[key] = frozenset(name.lower() for name in names)
        return self._headers[key]

    def version_folder(self, runtime: Runtime, number: str) -> Path:
        return self.folder / runtime.runtime_id / number

    # --- changes ------------------------------------------------------------------------------

    async def create(
        self, name: str, config: dict[str, Any], token: str, tags: dict[str, str]
    ) -> Runtime:
        runtime = self.registry.add_runtime(name, token, tags)
        try:
            await self.add_version(runtime, config, token)
        except BaseException:
            self.registry.remove(runtime)
            raise
        return runtime

    async def add_version(self, runtime: Runtime, config: dict[str, Any], token: str) -> Version:
        """Copies, registers, saves; prepares in the background."""
        number = str(runtime.next_version)
        runtime.next_version += 1  # taken now: another update may come while this one copies
        entry = await self._copy(
            config["agentRuntimeArtifact"], self.version_folder(runtime, number)
        )
        version = self.registry.add_version(runtime, number, config, entry, token)
        self.registry.save(runtime)
        self._prepare(runtime, version)
        return version

    async def _copy(self, artifact: dict[str, Any], target: Path) -> str:
        try:
            if container := artifact.get("containerConfiguration"):
                source, entry = agents.parse_uri(container["containerUri"])
                await asyncio.to_thread(agents.copy_folder, source, target, entry)
                return entry
            code = artifact["codeConfiguration"]
            entry = agents.check_entry(code["entryPoint"][-1])
            archive = self._open_archive(**code["code"]["s3"])
            await asyncio.to_thread(agents.unpack_zip, *archive, target, entry)
            return entry
        except ConfigError as error:
            raise wire.invalid(str(error), "agentRuntimeArtifact") from error
        except OSError as error:
            raise wire.invalid(
                f"the agent's files cannot be copied: {error}", "agentRuntimeArtifact"
            ) from error

    def _open_archive(self, bucket: str, prefix: str, **_: Any) -> tuple[int, int]:
        """Descriptor and size: the store belongs to the loop, reading does not."""
        try:
            found = self.objects.head(bucket, prefix)
        except Refused as error:
            raise ConfigError(f"s3://{bucket}/{prefix} is not in the local store") from error
        return self.objects.open(found), found.size

    def _prepare(self, runtime: Runtime, version: Version) -> None:
        key = (runtime.runtime_id, version.number)
        task = asyncio.create_task(self._settle(runtime, version), name=f"deploy {key[0]}")
        self._preparing[key] = task
        task.add_done_callback(lambda _: self._preparing.pop(key, None))

    async def _settle(self, runtime: Runtime, version: Version) -> None:
        failure = ""
        try:
            agent = self.agent(runtime, version)
            await self.templates.use(agent)
            self.templates.release(agent)
        except (IsolationError, ConfigError, OSError) as error:
            failure = str(error)[-FAILURE_CHARS:] or repr(error)
            logger.info(
                "runtime=<%s> version=<%s> error=<%s> | cannot be prepared",
                runtime.runtime_id,
                version.number,
                failure,
            )
        except wire.WireError:
            return  # shutting down: the next start prepares it again
        if self.registry.runtimes.get(runtime.runtime_id) is runtime:
            self.registry.settle(runtime, version, failure)
            self.retire_unused(runtime)

    def retire_unused(self, runtime: Runtime) -> None:
        """Old versions give their template back once no endpoint leads to them."""
        used = {e.live for e in runtime.endpoints.values()}
        used |= {e.target for e in runtime.endpoints.values()}
        for number in runtime.versions:
            if number not in used:
                self.templates.retire((runtime.runtime_id, number))

    def unregister(self, runtime: Runtime, number: str | None = None) -> None:
        """The first half of a deletion: nothing can start a session of it any more."""
        if number is None:
            self.registry.remove(runtime)
        else:
            del runtime.versions[number]
            self.registry.save(runtime)

    def discard(self, runtime: Runtime, number: str | None = None) -> None:
        """The second half, once its sessions are gone: templates and files."""
        for version in [number] if number else list(runtime.versions):
            self.templates.retire((runtime.runtime_id, version))
            self._headers.pop((runtime.runtime_id, version), None)
            shutil.rmtree(self.version_folder(runtime, version), ignore_errors=True)
        if number is None:
            shutil.rmtree(self.folder / runtime.runtime_id, ignore_errors=True)

    # --- start and end ------------------------------------------------------------------------

    def recover(self) -> None:
        """After a start: removes what a killed runtime left half made, goes on preparing."""
        runtimes = self.registry.runtimes.values()
        known = [(r.runtime_id, number) for r in runtimes for number in r.versions]
        agents.remove_leftovers(self.folder, known)
        for runtime in runtimes:
            for version in runtime.versions.values():
                if version.status in PENDING:
                    self._prepare(runtime, version)

    async def close(self) -> None:
        tasks = list(self._preparing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def timeouts_of(config: dict[str, Any]) -> Timeouts:
    block = config.get("lifecycleConfiguration") or {}
    return Timeouts.of(block.get("idleRuntimeSessionTimeout"), block.get("maxLifetime"))


def memory_of(config: dict[str, Any]) -> int:
    blocks = config.get("resourceConfigurations") or [{}]
    return int(blocks[0].get("minimumMemoryInMiB") or 0)
