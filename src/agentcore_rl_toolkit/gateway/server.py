"""The gateway as a server: dispatch by path and key, start and stop.

Two doors on one port. The data plane is reached with a session's key, in the path
(``/sessions/{key}/v1/…``) or as API key on plain ``/v1/…``; ``/v1`` may be left out. Everything
else needs the admin token. The first path segment decides; there is no router to walk.

Owns the lifecycle: journal, relay, ticker and listener are made in ``start`` and ended in
``stop``, in reverse order, so that nothing is answered that is not recorded.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from ..errors import ConfigError
from ..local import home
from ..run.journal import Journal
from .admin import Admin, Finished, Opened
from .call import Shelf
from .capture import Capture
from .crew.peers import Peers, Place, owner_of
from .dialects import BY_PATH, CHAT, COUNT_TOKENS, MESSAGES, Dialect
from .events import Events
from .fault import Refusal, bad_request
from .guard import refuse_browsers
from .metrics import Metrics
from .recover import check_writers, recover
from .relay import Relay
from .reply import error_response
from .route import Models, Pool
from .session import OpenSession, Session, Sessions, check_id
from .setting import GatewaySettings, ModelSpec
from .tick import Ticker

logger = logging.getLogger(__name__)

WRITER = "gateway"
"""Name of its journal, when there are no workers."""
ROUTES: dict[str, Dialect] = {**BY_PATH, COUNT_TOKENS: MESSAGES}
"""Data plane: what follows ``/v1/``, and whose errors are given there."""
HEADS = frozenset({"v1", "models"} | {path.partition("/")[0] for path in ROUTES})


class Gateway:
    """``async with Gateway([ModelSpec.parse("policy=vllm:http://…")]) as gateway: gateway.url``"""

    def __init__(
        self,
        models: Iterable[ModelSpec | Pool],
        settings: GatewaySettings | None = None,
        place: Place | None = None,
    ) -> None:
        """``place``: this is one of several workers, see ``workers``."""
        self.settings = settings or GatewaySettings()
        self.peers = Peers(place) if place is not None else None
        self._specs = list(models)
        if not self._specs:
            raise ConfigError("a gateway needs at least one model, as NAME=KIND:URL")
        self.run_dir = self.settings.run_dir or home() / "gateway"
        self.sessions = Sessions(drift_share=self.settings.drift_share)
        self.metrics = Metrics()
        self.events = Events()
        self.models: Models
        self.relay: Relay
        self.capture: Capture
        self.shelf = Shelf(self.settings.retry_window_s, self.settings.retry_bytes)
        self.port = 0
        self._runner: web.ServerRunner | None = None
        self._journal: Journal | None = None
        self._ticker: Ticker | None = None

    # --- life -----------------------------------------------------------------------------

    async def start(self) -> Gateway:
        settings = self.settings
        self.models = Models(
            spec.pool() if isinstance(spec, ModelSpec) else spec for spec in self._specs
        )
        folder = self.run_dir / "turns"
        writer = self.peers.place.journal if self.peers is not None else WRITER
        self._journal = Journal(folder, writer, fsync=settings.fsync)
        try:
            self.capture = Capture(self._journal, self.metrics)
            self.sessions.load = self.capture.read
            if self.peers is None:
                check_writers(folder, {WRITER})
            recover(folder, self.sessions, self._journal.name)
            rules = settings.normalise
            self.relay = Relay(self.models, self.capture, self.shelf, self.metrics, rules)
            self._admin = Admin(self)
            probes = (pool.probe(sample=settings.probe) for pool in self.models.pools.values())
            await asyncio.gather(*probes)
            if self.peers is not None:
                await self.peers.catch_up(self.models, settings.admin_token)
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        self._ticker = Ticker(self)
        logger.info("url=<%s> run=<%s> | gateway listens", self.url, self.run_dir)
        return self

    async def _listen(self) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()

        def make(*parts: object) -> web.BaseRequest:
            return web.BaseRequest(*parts, loop=loop, client_max_size=settings.max_body_bytes)  # type: ignore[arg-type,misc]

        server = web.Server(
            self._handle,
            request_factory=make,
            access_log=None,
            max_field_size=settings.max_header_bytes,
            max_line_size=settings.max_header_bytes,
            read_bufsize=1 << 18,
            keepalive_timeout=75.0,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=5.0)
        await self._runner.setup()
        self._server = server
        if self.peers is not None:
            place = self.peers.place
            place.socket(place.index).unlink(missing_ok=True)
            await web.UnixSite(self._runner, place.socket(place.index), backlog=4096).start()
            self.port = place.port
            return
        await web.TCPSite(self._runner, settings.host, settings.port, backlog=4096).start()
        self.port = self._runner.addresses[0][1]

    async def adopt(self, connection: socket.socket) -> None:
        """Serves a client's connection that another process accepted."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._server, connection)
        except OSError:
            connection.close()

    async def stop(self) -> None:
        """Drains what is in flight, then ends everything. May be called twice."""
        if self._ticker is not None:
            await self._ticker.stop()
            self._ticker = None
        self.events.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self.peers is not None:
            await self.peers.close()
        if hasattr(self, "models"):
            self.models.close()
        if self._journal is not None:
            await self._journal.aclose()
            self._journal = None

    async def __aenter__(self) -> Gateway:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def flush(self) -> None:
        """Returns when everything captured so far is durable."""
        if self._journal is not None:
            await self._journal.flush()

    async def delete_session(self, session_id: str) -> None:
        """Seals, ends what runs, and forgets; the journal keeps what was captured."""
        await self._admin.delete(self.sessions.by_id(session_id))

    async def expire(self, session: Session) -> None:
        """Closes a session that nobody finished."""
        logger.warning("session=<%s> | closed: nobody used or finished it", session.session_id)
        await self._admin.close(session, "expired")

    @property
    def admin(self) -> Admin:
        return self._admin

    @property
    def url(self) -> str:
        return f"http://{self.settings.host}:{self.port}"

    def base_url(self, key: str) -> str:
        """What an agent's client is given."""
        return f"{self.settings.public_url or self.url}/sessions/{key}/v1"

    # --- for programs in this process -----------------------------------------------------

    async def open_session(self, spec: OpenSession) -> Opened:
        """What ``POST /sessions`` does."""
        return await self._admin.open(spec)

    async def finish_session(
        self,
        session_id: str,
        metadata: dict[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Finished:
        """Seals the session, waits for its calls, gives its rows; ``metadata`` is put on each."""
        return await self._admin.finish(session_id, metadata or {}, timeout_s)

    # --- dispatch -------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        dialect: Dialect = CHAT
        try:
            if self.settings.open and not self._is_relayed(request):
                refuse_browsers(request, self.settings)
            head, _, rest = request.path[1:].partition("/")
            if head == "sessions" and rest:
                key, _, tail = rest.partition("/")
                path = without_v1(tail)
                if path in ROUTES or path in ("models", "done") or tail.startswith("v1/"):
                    dialect = dialect_of(path)
                    return await self._session_call(request, key, path, dialect)
            elif head in HEADS:
                path = without_v1(request.path[1:])
                dialect = dialect_of(path)
                return await self._session_call(request, api_key(request), path, dialect)
            return await self._admin.handle(request)
        except Refusal as refusal:
            return error_response(dialect, refusal)
        except web.HTTPRequestEntityTooLarge:
            limit = self.settings.max_body_bytes
            return error_response(dialect, Refusal(413, f"the body is over {limit} bytes"))
        except RecursionError:
            return error_response(dialect, bad_request("the body is nested too deeply"))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("path=<%s> | request failed", request.path.partition("/v1")[0][:10])
            return error_response(dialect, Refusal(500, "the gateway failed; see its log"))

    async def _session_call(
        self, request: web.BaseRequest, key: str, path: str, dialect: Dialect
    ) -> web.StreamResponse:
        peers = self.peers
        if peers is not None and key and not self.is_admin(key):
            owner = owner_of(key, peers.place.count)
            if owner != peers.place.index and not peers.is_internal(request):
                return await peers.forward(request, owner)
        session = await self._find(key, path)
        if path == "models" and request.method == "GET":
            return self._admin.list_models(anthropic="anthropic-version" in request.headers)
        if session is None:
            raise Refusal(
                401,
                "no such session key: open a session with POST /sessions and use its base_url",
                code="invalid_api_key",
                retry=False,
            )
        if path not in ROUTES and path != "done":
            raise Refusal(404, f"/v1/{path} is not served by this gateway", retry=False)
        if request.method != "POST":
            raise Refusal(405, f"{request.method} is not allowed here", retry=False)
        if path == "done":
            return await self._admin.done(request, session)
        if path == COUNT_TOKENS:
            return await self.relay.count_tokens(request, dialect, session)
        return await self.relay.handle(request, dialect, session)

    async def _find(self, key: str, path: str) -> Session | None:
        session = self.sessions.by_key(key)
        if session is None and self.settings.open and key and path in BY_PATH:
            check_id(key)
            session, _ = self.sessions.open(
                OpenSession(session_id=key, caps=self.settings.caps), key=key
            )
            await self.capture.write(session.frame())
        if session is None and path == "models" and not self.is_admin(key):
            raise Refusal(401, "no such session key", code="invalid_api_key", retry=False)
        return session

    def _is_relayed(self, request: web.BaseRequest) -> bool:
        """By another worker, which has looked at it."""
        return self.peers is not None and self.peers.is_internal(request)

    def is_admin(self, token: str) -> bool:
        return self.settings.open or hmac.compare_digest(
            token.encode(errors="surrogateescape"), self.settings.admin_token.encode()
        )

    def check_admin(self, request: web.BaseRequest) -> None:
        if not self.is_admin(api_key(request)):
            raise Refusal(
                401,
                "this needs the gateway's admin token, as 'Authorization: Bearer …': it is printed "
                "at start, or is ART_ADMIN_TOKEN's",
                retry=False,
            )


def without_v1(path: str) -> str:
    """Some clients add ``/v1`` to a base URL that has it."""
    return path.removeprefix("v1/").removeprefix("v1/").rstrip("/")


def dialect_of(path: str) -> Dialect:
    """Whose errors are given at a path, served or not."""
    return ROUTES.get(path) or (MESSAGES if path.startswith(f"{MESSAGES.name}/") else CHAT)


def api_key(request: web.BaseRequest) -> str:
    headers = request.headers
    bearer = headers.get("Authorization", "")
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip()
    return headers.get("x-api-key", "").strip()


async def serve(
    models: Iterable[ModelSpec],
    settings: GatewaySettings | None = None,
    *,
    ready: Callable[[Gateway], None] | None = None,
) -> None:
    """Serves until cancelled or told to end; ``ready`` is called once it listens."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with Gateway(models, settings) as gateway:
        if ready is not None:
            ready(gateway)
        # sessions are many small objects that live long: looking through them often is waste
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        await stop.wait()
