"""The dashboard as one server: the page at ``/``, JSON below ``/api``, nothing that changes a run.

    /api/runs                                 all runs below the folder
    /api/events                               server-sent events: the list has changed
    /api/runs/{run}                           figures, where the rollouts went, what is unreadable
    /api/runs/{run}/rollouts                  a page of the table, filtered
    /api/runs/{run}/timeline                  rollouts of one step by stage
    /api/runs/{run}/events                    server-sent events
    /api/runs/{run}/sessions                  live sessions of its local runtime
    /api/runs/{run}/rollouts/{n}              one rollout; n is its place in the file, or its id
    /api/runs/{run}/rollouts/{n}/tokens|log|export|page

``DashboardServer`` owns the runs that were opened and the socket.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import msgspec
from aiohttp import web

from ..errors import ConfigError
from ..local import is_loopback
from ..run import RunFolder, find_runs
from .guard import HEADERS, Guard
from .live import LIST_S, Runtime, stream
from .page import bundle, single_page
from .rollout import RolloutView
from .run import PAGE, Run
from .token import token_answer

STATIC = Path(__file__).parent / "static"
DEFAULT_PORT = 8586
SHUTDOWN_S = 2.0
MAX_PAGE = 1000
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}


class DashboardServer:
    """``async with DashboardServer(folder, port=0) as dashboard: dashboard.url``."""

    def __init__(
        self,
        base: Path,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
    ) -> None:
        if not is_loopback(host) and not token:
            raise ConfigError(
                f"{host} is not a loopback address: others could read what agents did. Give a token"
            )
        self.base, self.host, self.port, self.token = base, host, port, token
        self.runtime = Runtime()
        self._closing = asyncio.Event()
        self._runs: dict[Path, Run] = {}
        self._lock = threading.Lock()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[Guard(self.token).middleware])
        app.add_routes(self._routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        assert self._runner is not None
        await self._runner.cleanup()
        await self.runtime.close()

    def _routes(self) -> list[web.RouteDef]:
        run = "/api/runs/{run}"
        rollout = run + "/rollouts/{n}"
        return [
            web.get("/", self._page),
            web.get("/static/{name}", self._static),
            web.get("/api/runs", self._list),
            web.get("/api/events", self._list_events),
            web.get(run, self._json(lambda r: self._run(r).summary())),
            web.get(run + "/rollouts", self._json(self._table)),
            web.get(run + "/timeline", self._json(self._timeline)),
            web.get(run + "/events", self._events),
            web.get(run + "/sessions", self._sessions),
            web.get(rollout, self._json(lambda r: self._rollout(r).answer())),
            web.get(rollout + "/tokens", self._json(self._tokens)),
            web.get(rollout + "/log", self._log),
            web.get(rollout + "/export", self._export),
            web.get(rollout + "/page", self._saved_page),
        ]

    # --- what is asked for ------------------------------------------------------------------------

    def _run(self, request: web.Request) -> Run:
        name = request.match_info["run"]
        for folder in self._folders():
            if folder.path.name == name:
                return self._opened(folder)
        raise web.HTTPNotFound(text=f"there is no run {name!r} below {self.base}")

    def _folders(self) -> list[RunFolder]:
        """Runs below the folder, or the folder itself when it is a run."""
        own = RunFolder(self.base.resolve())
        return [own] if own.exists() else find_runs(self.base)

    def _opened(self, folder: RunFolder) -> Run:
        with self._lock:
            if folder.path not in self._runs:
                self._runs[folder.path] = Run(folder.path)
            return self._runs[folder.path]

    def _rollout(self, request: web.Request) -> RolloutView:
        run, name = self._run(request), request.match_info["n"]
        run.poll()
        place = int(name) if name.isdecimal() and len(name) < 10 else run.index.find(name)
        if place is None:
            raise web.HTTPNotFound(text=f"run {run.name} has no rollout {name!r}")
        try:
            return RolloutView(run, place)
        except ConfigError as error:
            raise web.HTTPNotFound(text=str(error)) from error

    # --- answers ----------------------------------------------------------------------------------

    def _json(
        self, make: Callable[[web.Request], Any]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            body = await asyncio.to_thread(lambda: encode(make(request)))
            return web.Response(body=body, content_type="application/json", headers=HEADERS)

        return handle

    async def _list(self, request: web.Request) -> web.Response:
        def make(_: web.Request) -> dict[str, Any]:
            seen = self._counts()
            runs = [self._opened(folder).brief() for folder in self._folders()]
            return {"base": str(self.base), "runs": runs, "seen": seen}

        return await self._json(make)(request)

    def _table(self, request: web.Request) -> dict[str, Any]:
        query = request.query
        return self._run(request).rollouts(
            phase=query.get("phase", ""),
            step=number(query, "step"),
            outcome=query.get("outcome", ""),
            fate=query.get("fate", ""),
            text=query.get("text", ""),
            sort=query.get("sort", "-n"),
            offset=number(query, "offset") or 0,
            limit=min(number(query, "limit") or PAGE, MAX_PAGE),
        )

    def _timeline(self, request: web.Request) -> dict[str, Any]:
        query = request.query
        return self._run(request).timeline(query.get("phase", ""), number(query, "step"))

    def _tokens(self, request: web.Request) -> dict[str, Any]:
        return token_answer(self._rollout(request), number(request.query, "row") or 0)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        run = await asyncio.to_thread(self._run, request)
        return await stream(request, run.counts, self._closing)

    async def _list_events(self, request: web.Request) -> web.StreamResponse:
        return await stream(request, self._counts, self._closing, LIST_S)

    def _counts(self) -> dict[str, Any]:
        return {f.path.name: self._opened(f).counts() for f in self._folders()}

    async def _sessions(self, request: web.Request) -> web.Response:
        run = await asyncio.to_thread(self._run, request)
        await asyncio.to_thread(run.poll)
        body = encode(await self.runtime.sessions(run))
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _log(self, request: web.Request) -> web.Response:
        view = await asyncio.to_thread(self._rollout, request)
        log = await self.runtime.log(view.run, view.head.session_id)
        body = encode({"log": log})
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _export(self, request: web.Request) -> web.Response:
        view = await asyncio.to_thread(self._rollout, request)
        body = await asyncio.to_thread(lambda: encode(view.export()))
        headers = HEADERS | saved_as(view, "json")
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _saved_page(self, request: web.Request) -> web.Response:
        view = await asyncio.to_thread(self._rollout, request)
        log = await self.runtime.log(view.run, view.head.session_id)
        text = await asyncio.to_thread(single_page, view, log)
        headers = HEADERS | saved_as(view, "html")
        return web.Response(text=text, content_type="text/html", headers=headers)

    # --- the page ---------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        return await self._file("index.html")

    async def _static(self, request: web.Request) -> web.Response:
        return await self._file(request.match_info["name"])

    async def _file(self, name: str) -> web.Response:
        path = STATIC / name
        if path.parent != STATIC or not path.is_file() or path.suffix not in TYPES:
            raise web.HTTPNotFound(text="there is no such file")
        # its modules in one answer: a dozen requests after each other take longer than the view
        body = bundle("app").encode() if name == "app.js" else path.read_bytes()
        kind = TYPES[path.suffix]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)


_encoder = msgspec.json.Encoder(enc_hook=str)


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


def saved_as(view: RolloutView, suffix: str) -> dict[str, str]:
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in view.head.rollout_id)
    name = f"{safe or 'rollout'}.{suffix}"
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def number(query: Any, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise web.HTTPBadRequest(text=f"{name} must be a whole number, not {text!r}") from None
