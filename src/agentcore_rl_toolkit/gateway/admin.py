"""The control plane: sessions, models, engines, weights, metrics and notices.

Needs the admin token, except for ``/health``. Sealing comes before everything that ends a session:
a call that arrives later is refused, so no request can bring a deleted session back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiohttp import web

from .. import __version__
from ..errors import ConfigError
from ..run.frame import SessionClosed, SessionSealed
from ..trajectory.path import SessionCount
from ..trajectory.row import Row
from .crew.fanout import Fanout
from .engines import make_engine
from .fault import Refusal, bad_request
from .rllm import Rllm
from .session import OpenSession, Session
from .weights import WeightsChange, change_weights

if TYPE_CHECKING:
    from .route import Pool
    from .server import Gateway

T = TypeVar("T")
Handler = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]


class Finish(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /sessions/{id}/finish``."""

    timeout_s: float | None = None
    """How long to wait for calls in flight; None: the gateway's own setting."""
    metadata: dict[str, Any] = {}
    """Put on every row."""


class Opened(msgspec.Struct, frozen=True):
    """Answer of ``POST /sessions``."""

    session_id: str
    key: str
    base_url: str
    anthropic_base_url: str
    done_url: str


class Finished(msgspec.Struct, frozen=True):
    """What is left of a session that was finished."""

    status: dict[str, Any]
    count: SessionCount
    rows: list[Row]
    model_s: float
    """Spent in its model calls, all turns together."""


class EngineChange(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST`` and ``DELETE /admin/engines``."""

    model: str
    engine: str
    """``kind:url``; to remove, its host and port are enough."""
    timeout_s: float = 60.0
    """How long to wait for calls in flight when removing."""


class Admin:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._rllm = Rllm(gateway)
        self._fanout = Fanout(gateway, gateway.peers) if gateway.peers is not None else None
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "sessions"): self._open,
            ("GET", "sessions"): self._show,
            ("DELETE", "sessions"): self._delete,
            ("GET", "models"): self._models,
            ("GET", "metrics"): self._metrics,
            ("GET", "events"): self._events,
            ("POST", "weights"): self._weights,
            ("POST", "engines"): self._add_engine,
            ("DELETE", "engines"): self._drop_engine,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.strip("/")
        if path == "health":
            health = self._health()
            if self._fanout is not None:
                health = await self._fanout.health(request, health)
            return reply(health)
        self._gateway.check_admin(request)
        if self._fanout is not None:
            answered = await self._fanout.handle(request, path)
            if answered is not None:
                return answered
        return await self.answer(request)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """This worker's own answer."""
        path = request.path.strip("/")
        if self._gateway.settings.open:
            answer = await self._rllm.handle(request, path)
            if answer is not None:
                return reply(answer)
        head, _, rest = path.removeprefix("admin/").partition("/")
        if head == "sessions" and rest.endswith("/finish") and request.method == "POST":
            return await self._finish(request, rest.removesuffix("/finish"))
        handler = self._routes.get((request.method, head))
        if handler is None:
            raise Refusal(404, f"{request.method} /{path} is not served here", retry=False)
        return await handler(request, rest)

    # --- sessions -------------------------------------------------------------------------

    async def _open(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        if rest:
            raise Refusal(404, "POST /sessions opens a session", retry=False)
        spec = await read(request, OpenSession)
        return reply(await self.open(spec), status=201)

    async def open(self, spec: OpenSession) -> Opened:
        gateway = self._gateway
        if spec.caps == type(spec.caps)():
            spec.caps = gateway.settings.caps
        key = spec.session_id if gateway.settings.open else None
        if gateway.peers is not None:
            key = gateway.peers.mint_key()
        session, key = gateway.sessions.open(spec, key=key)
        try:
            await gateway.capture.write(session.frame())
        except BaseException:
            gateway.sessions.drop(session)
            raise
        base_url = gateway.base_url(key)
        return Opened(
            session_id=session.session_id,
            key=key,
            base_url=base_url,
            anthropic_base_url=base_url.removesuffix("/v1"),
            done_url=base_url.removesuffix("/v1") + "/done",
        )

    async def _show(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        sessions = self._gateway.sessions
        if not rest:
            return reply({"sessions": [session.status() for session in sessions]})
        return reply(sessions.by_id(rest).status())

    async def _finish(self, request: web.BaseRequest, session_id: str) -> web.StreamResponse:
        body = await read(request, Finish)
        finished = await self.finish(session_id, body.metadata, body.timeout_s)
        # long rows are a lot of JSON: not on the loop
        encoded = await asyncio.to_thread(finished_json, finished)
        return web.Response(body=encoded, content_type="application/json")

    async def finish(
        self, session_id: str, metadata: dict[str, Any], timeout_s: float | None = None
    ) -> Finished:
        """Seals, drains and returns the rows; the session can be read for a while longer."""
        session = self._gateway.sessions.by_id(session_id)
        await self.seal(session, self._gateway.settings.drain_s if timeout_s is None else timeout_s)
        graph = session.graph
        # turns are read back from the journal, as much as the session is long: not on the loop
        rows = await asyncio.to_thread(graph.rows, metadata)
        count = graph.count()
        await self.close(session, "finished")
        return Finished(session.status(), count, rows, count.model_s)

    async def close(self, session: Session, reason: str) -> None:
        """What is closed stays readable for a while, folded, and then leaves memory."""
        session.sealed = True
        if session.closed_at is None:
            self._gateway.sessions.close(session)
            await self._write_closed(session, reason)
        self._gateway.shelf.drop(session)
        session.park()

    async def seal(self, session: Session, timeout: float) -> None:
        """No new call, then the end of all that run: by themselves, else cancelled."""
        if not session.sealed:
            session.sealed = True
            await self._gateway.capture.write(
                SessionSealed(session_id=session.session_id, at=time.time())
            )
        deadline = time.monotonic() + timeout
        while session.calls and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for call in list(session.calls):
            call.cancel("the session was finished")
        while session.calls:
            await asyncio.sleep(0.01)

    async def _delete(self, request: web.BaseRequest, session_id: str) -> web.StreamResponse:
        await self.delete(self._gateway.sessions.by_id(session_id))
        return reply({"session_id": session_id, "deleted": 1})

    async def delete(self, session: Session) -> None:
        await self.seal(session, 0.0)
        if session.closed_at is None:
            await self._write_closed(session, "deleted")
        self._gateway.shelf.drop(session)
        self._gateway.sessions.drop(session)

    async def _write_closed(self, session: Session, reason: str) -> None:
        await self._gateway.capture.write(
            SessionClosed(session_id=session.session_id, at=time.time(), reason=reason)
        )

    async def done(self, request: web.BaseRequest, session: Session) -> web.StreamResponse:
        """An agent's notice that its result is stored; a hint for whoever waits."""
        notice = await read(request, dict[str, Any])
        session.done = {k: notice.get(k) for k in ("session_id", "result_key", "status_code")}
        data = {"gateway_session": session.session_id, **session.done}
        self._gateway.events.publish("done", data)
        if self._fanout is not None:
            await self._fanout.publish("done", data)
        return reply({"ok": True})

    # --- the gateway itself ---------------------------------------------------------------

    def _health(self) -> dict[str, Any]:
        gateway = self._gateway
        pools = gateway.models.pools.values()
        ok = all(any(slot.healthy for slot in pool.slots.values()) for pool in pools)
        return {
            "status": "ok" if ok else "degraded",
            "service": "agentcore-rl-toolkit gateway",
            "version": __version__,
            "sessions": len(gateway.sessions),
            "in_flight": len(gateway.relay.calls),
            "workers": gateway.peers.place.count if gateway.peers is not None else 1,
            "loop_lag_p99_s": round(gateway.metrics.lag(), 6),
        }

    def list_models(self, *, anthropic: bool = False) -> web.Response:
        pools = self._gateway.models.pools.values()
        if anthropic:
            return reply(anthropic_models(list(pools)))
        data = [
            {
                "id": pool.name,
                "object": "model",
                "created": pool.created,
                "owned_by": "agentcore-rl-toolkit",
            }
            for pool in pools
        ]
        return reply({"object": "list", "data": data})

    async def _models(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        return reply({"models": [p.status() for p in self._gateway.models.pools.values()]})

    async def _weights(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        gateway = self._gateway
        change = await read(request, WeightsChange)
        pools = await change_weights(change, gateway.models, gateway.relay)
        return reply({"models": [pool.status() for pool in pools]})

    async def _add_engine(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        change = await read(request, EngineChange)
        pool = self._gateway.models.find(change.model)
        try:
            slot = pool.add(make_engine(change.engine))
        except ConfigError as error:
            raise bad_request(str(error), "engine") from None
        await pool.probe_slot(slot)
        return reply(pool.status())

    async def _drop_engine(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        """Drains an engine: no new calls; removed once its last one ended."""
        change = await read(request, EngineChange)
        pool = self._gateway.models.find(change.model)
        slot = pool.drain(change.engine.rpartition("//")[2].partition("#")[0])
        deadline = time.monotonic() + change.timeout_s
        while slot.in_flight and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        pool.remove(slot.name)
        return reply(pool.status())

    async def _metrics(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        gateway = self._gateway
        text = gateway.metrics.text(
            sessions=len(gateway.sessions),
            sessions_alarmed=gateway.sessions.alarmed,
            calls_in_flight=len(gateway.relay.calls),
            tool_parse_failures=sum(pool.parse_failures for pool in gateway.models.pools.values()),
        )
        return web.Response(text=text, content_type="text/plain")

    async def _events(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        return await self._gateway.events.serve(request)


def anthropic_models(pools: list[Pool]) -> dict[str, Any]:
    """The list of models as Anthropic's API has it."""
    data = [
        {
            "type": "model",
            "id": pool.name,
            "display_name": pool.name,
            "created_at": datetime.fromtimestamp(pool.created, UTC).isoformat(),
        }
        for pool in pools
    ]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    return {"data": data, "has_more": False, "first_id": None, "last_id": None, **ends}


def finished_json(finished: Finished) -> bytes:
    return msgspec.json.encode(
        {
            **finished.status,
            "count": msgspec.to_builtins(finished.count),
            "rows": [row_json(row) for row in finished.rows],
        }
    )


def row_json(row: Row) -> dict[str, Any]:
    return {
        name: value.tolist() if hasattr(value, "tolist") else msgspec.to_builtins(value)
        for name, value in ((field, getattr(row, field)) for field in row.__struct_fields__)
    }


def reply(data: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(data), content_type="application/json"
    )


async def read(request: web.BaseRequest, kind: type[T]) -> T:
    """The body as ``kind``; an empty body is ``{}``."""
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not valid: {error}") from None
