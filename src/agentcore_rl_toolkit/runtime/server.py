"""The local AgentCore Runtime as one server on one port.

    /runtimes/…   data plane and control plane, as AWS has them
    /tags/…       control plane
    /_art/…       our own: events, sessions, logs
    /…            the S3 subset, path style

``RuntimeServer`` assembles the parts and owns their order of start and end: nothing is served
before leftovers of an earlier run are cleaned up, and nothing is left running when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from .. import local
from ..errors import RuntimeServiceError
from ..loop import new_loop
from . import guard, wire
from .agent import one_of
from .check import runtime_id_of
from .control import ControlPlane
from .data import MAX_BODY_BYTES, DataPlane
from .deployment import Deployments
from .egress import Egress
from .event import Events
from .home import Home
from .inspection import Inspection
from .isolation import select as select_driver
from .isolation.base import Agent, Compute, Driver, Level
from .objects import ROUTE, RUNNER_OPTIONS, ObjectServer, ObjectStore, StoredObject
from .quota import MAX_SESSIONS, Quota
from .registry import Registry
from .session import Sessions
from .sessionlog import prune
from .template import Templates

logger = logging.getLogger(__name__)

SHUTDOWN_S = 2.0
"""What answers still being sent get, once the sessions are gone."""
BACKLOG = 1024


class RuntimeServer:
    """``async with RuntimeServer(port=0) as runtime: runtime.url``."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = local.DEFAULT_PORT,
        home: Path | None = None,
        isolation: str = "auto",
        init_timeout_s: float = 30.0,
        max_sessions: int = MAX_SESSIONS,
        select: Callable[[str], Driver] = select_driver,
    ) -> None:
        guard.check_bind(host)
        one_of(Level, "isolation", isolation)
        self.host, self.port = host, port
        self.isolation, self.init_timeout_s = isolation, init_timeout_s
        self.max_sessions = max_sessions
        self.home = Home(home)
        self.url = ""
        self._select = select
        self._parts = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Whatever was started when it fails is ended again, in reverse order."""
        async with contextlib.AsyncExitStack() as parts:
            self.home.take()
            parts.callback(self.home.leave)
            prune(self.home.logs)
            runner = await self._runner(parts)
            self._assemble(parts)
            await self._listen(runner)
            self.deployments.endpoint_url = self.url
            self.deployments.recover()
            self.sessions.start()
            self.home.announce(self.url)
            parts.callback(self.home.withdraw)
            self._parts = parts.pop_all()
        logger.info("url=<%s> home=<%s> | runtime started", self.url, self.home.path)

    async def stop(self) -> None:
        """May be called twice."""
        await self._parts.aclose()

    async def _runner(self, parts: contextlib.AsyncExitStack) -> web.AppRunner:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", ROUTE, self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S, **RUNNER_OPTIONS)
        parts.push_async_callback(runner.cleanup)
        await runner.setup()
        return runner

    def _assemble(self, parts: contextlib.AsyncExitStack) -> None:
        """Ended from the last to the first: sessions before all, they are what must not outlive."""
        home = self.home
        self.store = ObjectStore(home.objects)
        parts.callback(self.store.close)
        self.store.ensure_bucket(local.DEFAULT_BUCKET)
        self.objects = ObjectServer(self.store, self._on_put)
        self.events = Events()
        parts.callback(self.events.close)
        self.templates = Templates(self._select)
        self.templates.driver(self.isolation)
        self.sessions = Sessions(self.templates, self.events, Quota(self.max_sessions), home.logs)
        parts.push_async_callback(self.sessions.drain)
        self.sessions.egress_of = self._open_egress
        self.deployments = Deployments(
            Registry(home.registry),
            self.templates,
            home.agents,
            self.store,
            isolation=self.isolation,
            init_timeout_s=self.init_timeout_s,
        )
        parts.push_async_callback(self.deployments.close)
        parts.push_async_callback(self.templates.close)
        parts.push_async_callback(self.sessions.close)
        self.data = DataPlane(self.deployments, self.sessions)
        self.control = ControlPlane(self.deployments, self.sessions)
        self.inspection = Inspection(self)

    async def _listen(self, runner: web.AppRunner) -> None:
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"http://{host}:{self.port}"
        await web.SockSite(runner, listener, backlog=BACKLOG).start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- requests -----------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            guard.check_request(request)
            return await self._route(request)
        except wire.WireError as error:
            return error.response()
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:  # the one place that turns a bug into an answer
            logger.exception("path=<%s> | request failed", request.path)
            return wire.internal(f"The local runtime failed: {error!r}").response()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        """Splits the raw path: an ARN is one segment that holds an encoded slash."""
        segments = request.rel_url.raw_path.split("/")[1:]
        match segments:
            case ["runtimes", target, "invocations"] if request.method == "POST":
                return await self.data.invoke(request, runtime_id_of(target))
            case ["runtimes", target, "stopruntimesession"] if request.method == "POST":
                return await self.data.stop(request, runtime_id_of(target))
            case ["runtimes", *rest]:
                return await self.control.handle(request, rest)
            case ["tags", target]:
                return await self.control.tags(request, target)
            case ["_art", *rest]:
                return await self.inspection.handle(request, rest)
        # Both services sign as bedrock-agentcore: an operation we lack is not a bucket.
        if "/bedrock-agentcore/aws4_request" in request.headers.get("Authorization", ""):
            raise wire.not_implemented(f"{request.method} {request.path}")
        return await self.objects.handle(request)

    async def _open_egress(self, session_id: str, agent: Agent, compute: Compute) -> Egress:
        egress = Egress(session_id, agent, compute, self.port, self.objects.handle)
        await egress.open()
        return egress

    def _on_put(self, stored: StoredObject) -> None:
        session_id = stored.key.rpartition("/")[2].removesuffix(".json")
        known = self.sessions.named(session_id) is not None
        self.events.result(
            stored.bucket,
            stored.key,
            stored.size,
            stored.etag,
            session_id if known else None,
            stored.content_type,
            stored.content,
        )


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise RuntimeServiceError(
            f"the local runtime cannot listen on {host}:{port} ({error.strerror}). Choose another "
            "port with --port, or --port 0 for a free one"
        ) from error
    return listener


async def serve(
    *,
    host: str = "127.0.0.1",
    port: int = local.DEFAULT_PORT,
    home: Path | None = None,
    isolation: str = "auto",
    init_timeout_s: float = 30.0,
    max_sessions: int = MAX_SESSIONS,
    on_ready: Callable[[RuntimeServer], None] | None = None,
    until_eof: bool = False,
) -> None:
    """Runs until SIGINT or SIGTERM; ``on_ready`` is called once it listens.

    ``until_eof`` ends it with its standard input too: a pipe whose other end a program holds closes
    however that program dies, so its runtime does not outlive it.
    """
    server = RuntimeServer(
        host=host,
        port=port,
        home=home,
        isolation=isolation,
        init_timeout_s=init_timeout_s,
        max_sessions=max_sessions,
    )
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), end_at_eof, asked)
    try:
        async with server:
            if on_ready is not None:
                on_ready(server)
            await asked.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def end_at_eof(asked: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 512):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        asked.set()


def run(**options: Any) -> None:
    """``serve`` in a loop of its own, the quicker one when it is installed."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(**options))
