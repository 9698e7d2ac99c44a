"""What one session can reach, and the listeners inside its network that make it so.

A session has a network of its own with nothing in it. The runtime opens listeners on its loopback
and relays; a listener belongs to one session, so what comes through it is known to come from that
session, and nothing in the request can change that.

    none        nothing
    model       the authorities of URLs in ``_rollout`` and in the agent's deployed environment,
                and the object store for its own result
    allowlist   the same, and the named hosts through the proxy
    open        the machine's network (no namespace, nothing here)

A loopback authority keeps its port; another host is reached through the proxy that the session's
environment names. At level ``process`` sessions share the machine's network and this does nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from ..errors import ConfigError, IsolationError
from ..local import is_loopback
from ..rollout import ROLLOUT, RolloutConfig, rollout_block
from .isolation.base import Agent, Compute
from .isolation.namespace import PROXY_PORT
from .objects import RUNNER_OPTIONS, Scope
from .proxy import Proxy
from .relay import MAX_CONNECTIONS, Door, Streams, relay
from .rest import Traffic

logger = logging.getLogger(__name__)

URL_FIELDS = ("base_url", "anthropic_base_url", "done_url")
PORTS = {"http": 80, "https": 443}
LARGE = 1024 * 1024
"""A payload from here on is not parsed on the event loop."""
MAX_AUTHORITIES = 16
"""Of one session: a caller that names a new one at every call would open listeners for ever."""

StoreHandler = Callable[[web.Request, Scope], Awaitable[web.StreamResponse]]


class Egress:
    """Owns every listener of the session; ``close`` them with it."""

    def __init__(
        self, session_id: str, agent: Agent, compute: Compute, store_port: int, store: StoreHandler
    ) -> None:
        self.session_id, self._agent, self._compute = session_id, agent, compute
        self._store_port, self._store = store_port, store
        self.active = False
        """Whether the session has a network of its own to which anything may be opened."""
        self.traffic = Traffic()
        self._hosts: set[tuple[str, int]] = set()
        self._ports: set[int] = set()
        self._scopes: list[Scope] = []
        self._doors: list[Door] = []
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._arriving = 0
        self._permitting = asyncio.Lock()

    async def open(self) -> None:
        """Once, before the session is invoked. IsolationError when the session is gone."""
        if self._agent.network in ("none", "open"):
            return
        try:
            listener = await self._compute.listen_inside(PROXY_PORT)
            if listener is None:
                return
            self.active = True
            door = Door(listener, Proxy(self._permits, self.session_id, self.traffic).handle)
            self._doors.append(door)
            await door.start()
            await self._open_store()
            for host, port in authorities(self._agent.env.values()):
                await self._reach(host, port)
        except OSError as error:
            await self.close()
            raise IsolationError(f"the session's network could not be opened: {error}") from error

    async def _open_store(self) -> None:
        listener = await self._compute.listen_inside(self._store_port)
        assert listener is not None
        listener.setblocking(False)
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._serve_store)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0, **RUNNER_OPTIONS)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._accept, sock=listener, backlog=128)

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server if self._runner is not None else None
        if server is None or len(server.connections) + self._arriving >= MAX_CONNECTIONS:
            return _Refused()
        # Many are accepted at once, and the server knows each only a moment later.
        self._arriving += 1
        asyncio.get_running_loop().call_soon(self._arrived)
        return server()

    def _arrived(self) -> None:
        self._arriving -= 1

    async def _serve_store(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.path
        mine = [scope for scope in self._scopes if path == f"/{scope.bucket}/{scope.key}"]
        return await self._store(request, (mine or self._scopes or [Scope("", "")])[-1])

    async def permit(self, body: bytes | mmap.mmap) -> None:
        """Before every invocation: what this payload's ``_rollout`` names becomes reachable."""
        if not self.active:
            return
        payload = await asyncio.to_thread(_read, body) if len(body) > LARGE else _read(body)
        if payload is None:
            return
        try:
            block = rollout_block(payload)
            config = RolloutConfig.from_payload(payload, self.session_id)
        except ConfigError:
            return  # the agent answers it with the same words
        if config is not None:
            scope = Scope(config.s3_bucket, config.result_key)
            if scope not in self._scopes:
                self._scopes.append(scope)
        async with self._permitting:
            for host, port in authorities(block.get(field) for field in URL_FIELDS):
                await self._reach(host, port)

    async def _reach(self, host: str, port: int) -> None:
        if len(self._hosts) + len(self._ports) >= MAX_AUTHORITIES:
            logger.warning("session=<%s> host=<%s> | too many authorities", self.session_id, host)
        elif not is_loopback(host):
            self._hosts.add((host, port))
        elif port not in self._ports and port not in (self._store_port, PROXY_PORT):
            self._ports.add(port)
            await self._relay(host, port)

    async def _relay(self, host: str, port: int) -> None:
        try:
            listener = await self._compute.listen_inside(port)
        except OSError as error:
            # The agent itself may listen there; then it talks to itself, as it asked for.
            logger.warning("session=<%s> error=<%s> | no relay", self.session_id, error)
            return
        assert listener is not None

        async def dial() -> Streams:
            return await asyncio.open_connection(host, port)

        self._doors.append(await relay(listener, dial, self.traffic))

    def _permits(self, host: str, port: int) -> bool:
        if (host, port) in self._hosts:
            return True
        return self._agent.network == "allowlist" and listed(self._agent.allow, host, port)

    async def close(self) -> None:
        await asyncio.gather(*(door.close() for door in self._doors))
        self._doors.clear()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Payload(msgspec.Struct):
    """Only this is made into objects, however large the rest is."""

    rollout: dict[str, Any] | None = msgspec.field(name=ROLLOUT, default=None)


def _read(body: bytes | mmap.mmap) -> object:
    """None when there is nothing in it for us."""
    if body.find(ROLLOUT.encode()) < 0:
        return None
    try:
        return {ROLLOUT: msgspec.json.decode(body, type=_Payload).rollout}
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return json.loads(bytes(body))  # takes NaN, as the agent's parser does
    except (ValueError, RecursionError):
        return None


def authorities(values: Iterable[object]) -> list[tuple[str, int]]:
    """Host and port of every value that is a URL."""
    found = []
    for value in values:
        if not isinstance(value, str) or not value.startswith(("http://", "https://")):
            continue
        try:
            url = urlsplit(value)
            port = url.port or PORTS.get(url.scheme)
        except ValueError:
            continue
        if url.hostname and port:
            found.append((url.hostname, port))
    return found


def listed(allow: tuple[str, ...], host: str, port: int) -> bool:
    """``host``, ``host:port`` or ``*.domain``; without a port the web's two."""
    for entry in allow:
        name, _, wanted = entry.lower().partition(":")
        fits = host.endswith(name[1:]) if name.startswith("*.") else host == name
        if fits and (str(port) == wanted if wanted else port in PORTS.values()):
            return True
    return False
