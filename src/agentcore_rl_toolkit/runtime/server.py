"""The local AgentCore Runtime as one server on one port.

    /runtimes/…   data plane and control plane, as AWS has them
    /tags/…       control plane
    /_art/…       our own: events, sessions, logs, metrics
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
from urllib.parse import unquote

from aiohttp import web

from .. import local
from ..errors import RuntimeServiceError
from ..loop import new_loop
from . import key, route, wire
from .admission import Admission
from .agent import one_of
from .awsquota import AwsQuotas, Meter
from .body import MAX_BODY_BYTES
from .card import Cards
from .check import runtime_id_of
from .command import Commands
from .control import ControlPlane
from .data import DataPlane
from .deployment import Deployments
from .egress import Egress
from .event import Events
from .guard import Guard, is_agentcore
from .home import Home
from .inspection import Inspection
from .isolation import select as select_driver
from .isolation.base import Agent, Compute, Driver, Level
from .metrics import Metrics
from .objects import ROUTE, RUNNER_OPTIONS, ObjectServer, ObjectStore, Refused, StoredObject
from .quota import Quota
from .registry import Registry
from .route import Operation
from .session import Sessions
from .sessionlog import prune
from .shells import Shells
from .template import Templates
from .websocket import WebSockets

logger = logging.getLogger(__name__)

SHUTDOWN_S = 2.0
"""What answers still being sent get, once the sessions are gone."""
BACKLOG = 1024
IDLE_S = 75.0
"""A connection that has not sent a whole head by then, the first or the next, is closed."""
MAX_FIELD_BYTES = 16 * 1024
"""Of one header, and of the request line; AWS's longest header, baggage, has 8,192."""
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class RuntimeServer:
    """``async with RuntimeServer(port=0) as runtime: runtime.url``.

    Requests must be signed with a key of the file ``access_keys`` when one is named, and always
    when ``host`` is not a loopback address; then the file is made where there is none.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = local.DEFAULT_PORT,
        home: Path | None = None,
        access_keys: Path | None = None,
        isolation: str = "auto",
        init_timeout_s: float = 120.0,
        quota: Quota | None = None,
        quotas: AwsQuotas | None = None,
        select: Callable[[str], Driver] = select_driver,
    ) -> None:
        one_of(Level, "isolation", isolation)
        self.host, self.port = host, port
        self.isolation, self.init_timeout_s = isolation, init_timeout_s
        self.quota = quota or Quota()
        self.metrics = Metrics()
        self.meter = Meter(quotas)
        self.home = Home(home)
        named = os.environ.get("ART_ACCESS_KEYS")
        self.access_keys = access_keys or (Path(named) if named else None)
        self.url = ""
        self._select = select
        self._parts = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Whatever was started when it fails is ended again, in reverse order."""
        async with contextlib.AsyncExitStack() as parts:
            self.home.take()
            parts.callback(self.home.leave)
            prune(self.home.logs)
            if self.access_keys is None and not local.is_loopback(self.host):
                self.access_keys = self.home.access_keys
            self.keys = key.load(self.access_keys) if self.access_keys else None
            self.guard = Guard(self.keys, MAX_BODY_BYTES)
            runner = await self._runner(parts)
            self._assemble(parts)
            await self._listen(runner)
            self.deployments.endpoint_url = self.inner_url
            self.deployments.credentials = self.keys.session if self.keys else None
            self.deployments.recover()
            self.sessions.start()
            self.home.announce(self.url, self.access_keys)
            parts.callback(self.home.withdraw)
            self._parts = parts.pop_all()
        logger.info("url=<%s> home=<%s> | runtime started", self.url, self.home.path)

    async def stop(self) -> None:
        """May be called twice."""
        await self._parts.aclose()

    async def _runner(self, parts: contextlib.AsyncExitStack) -> web.AppRunner:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", ROUTE, self._handle)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=IDLE_S,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            **RUNNER_OPTIONS,
        )
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
        self.sessions = Sessions(self.templates, self.events, Admission(self.quota), home.logs)
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
        self.data = DataPlane(self.deployments, self.sessions, self.meter)
        self.commands, self.websockets = Commands(self.data), WebSockets(self.data)
        self.shells = Shells(self.data)
        parts.push_async_callback(self.shells.close)
        self._data = {
            "InvokeAgentRuntime": self.data.invoke,
            "StopRuntimeSession": self.data.stop,
            "InvokeAgentRuntimeCommand": self.commands.handle,
            "GetAgentCard": Cards(self.data).handle,
            "WebSocket": self.websockets.handle,
            "InvokeAgentRuntimeCommandShell": self.shells.handle,
        }
        self.control = ControlPlane(self.deployments, self.sessions, self.meter)
        self.inspection = Inspection(self)
        self.sessions.on_started = self.metrics.started

    async def _listen(self, runner: web.AppRunner) -> None:
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
        host = WILDCARDS.get(self.host, self.host)
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self.inner_url = self.url
        if not local.is_loopback(host):
            # Sessions know the store by loopback, whichever network they have.
            inner = listen("127.0.0.1", self.port)
            await web.SockSite(runner, inner, backlog=BACKLOG).start()
            self.inner_url = f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- requests -----------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        segments = request.rel_url.raw_path.split("/")[1:]
        operation = route.find(request.method, segments)
        response = await self._answer(request, operation, segments)
        name = operation.name if operation else "other" if segments[0] in route.OURS else "S3"
        self.metrics.answered(name, response.status)
        return response

    async def _answer(
        self, request: web.Request, operation: Operation | None, segments: list[str]
    ) -> web.StreamResponse:
        try:
            await self.guard.check(request)
            if operation is not None:
                return await self._serve(request, operation, segments)
            if segments[0] in route.OURS:
                raise no_operation(request, segments)
            if is_agentcore(request):
                # It has operations on other paths, too: one that we lack is not a bucket.
                raise wire.not_implemented(f"{request.method} {request.path}")
            return await self.objects.handle(request)
        except wire.WireError as error:
            return error.response()
        except Refused as refused:
            return self.objects.refuse(request, refused)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:  # the one place that turns a bug into an answer
            logger.exception("path=<%s> | request failed", request.path)
            return wire.internal(f"The local runtime failed: {error!r}").response()

    async def _serve(
        self, request: web.Request, operation: Operation, segments: list[str]
    ) -> web.StreamResponse:
        match operation.plane, segments:
            case "art", ["_art", *rest]:
                return await self.inspection.handle(request, rest)
            case "control", ["runtimes", *rest]:
                return await self.control.handle(request, rest)
            case "control", ["tags", target]:
                return await self.control.tags(request, target)
        return await self._data[operation.name](request, runtime_id_of(segments[1]))

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


def no_operation(request: web.Request, segments: list[str]) -> wire.WireError:
    if segments[0] == "_art":
        return wire.not_found(f"the local runtime has nothing at {request.path}")
    arn = unquote(segments[1]) if len(segments) > 2 else ""
    if arn.startswith("arn:") and "/" not in arn:
        return wire.invalid("An ARN is one segment of the path: write its '/' as %2F")
    return wire.not_implemented(f"{request.method} {request.path}")


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
    access_keys: Path | None = None,
    isolation: str = "auto",
    init_timeout_s: float = 120.0,
    quota: Quota | None = None,
    quotas: AwsQuotas | None = None,
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
        access_keys=access_keys,
        isolation=isolation,
        init_timeout_s=init_timeout_s,
        quota=quota,
        quotas=quotas,
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
