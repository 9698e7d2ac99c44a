"""rllm's gateway protocol, for open gateways: traces instead of rows.

rllm opens sessions with ids of its own choice, lets the agent call, and reads one trace record a
call, with its messages, from the journal. Its sampling parameters win over the agent's. What its
own gateway answers for things that do not exist (no traces, nothing deleted) is answered here too.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from msgspec import Raw

from ..errors import ConfigError
from ..trajectory.turn import Turn
from .dialects import BY_NAME
from .engines import make_engine
from .fault import Refusal, bad_request
from .session import OpenSession, Session
from .weights import WeightsChange, change_weights

if TYPE_CHECKING:
    from .admin import Opened
    from .route import Pool
    from .server import Gateway

OURS = frozenset(OpenSession.__struct_fields__) - {"session_id"}
"""Fields that only this gateway's own ``POST /sessions`` has."""


class RllmSession(msgspec.Struct):
    """Body of rllm's ``POST /sessions``; fields that it adds later are ignored."""

    session_id: str | None = None
    sampling_params: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    @property
    def sampling(self) -> dict[str, Any]:
        return {k: v for k, v in (self.sampling_params or {}).items() if v is not None}

    def spec(self) -> OpenSession:
        group = (self.metadata or {}).get("group_id")
        return OpenSession(
            session_id=self.session_id,
            sampling=self.sampling,
            overwrite=True,
            group_id=str(group) if group is not None else None,
        )


class Worker(msgspec.Struct):
    """Body of rllm's ``POST /admin/workers``."""

    url: str
    worker_id: str | None = None
    api_path: str = "/v1"
    model_name: str | None = None
    weight: int = 1


class Window(msgspec.Struct):
    """Which of the traces or sessions: from a time on, at most so many."""

    since: float | None = None
    limit: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Window:
        try:
            return msgspec.convert(dict(query), cls, strict=False)
        except msgspec.ValidationError as error:
            raise bad_request(f"the query is not valid: {error}") from None


class Rllm:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._metadata: dict[str, dict[str, Any]] = {}
        self._added: dict[str, Worker] = {}
        """By the name of their engine."""

    async def handle(self, request: web.BaseRequest, path: str) -> object | None:
        """The answer to one of rllm's own calls; None when it is not one of them."""
        match (request.method, *path.split("/")):
            case "POST", "sessions":
                return await self._open(await request.read())
            case "GET", "sessions":
                return self._list(Window.of(request.query))
            case "GET", "sessions", session_id:
                return self._info(self._gateway.sessions.by_id(session_id))
            case "GET", "sessions", session_id, "traces":
                return self._traces(session_id, Window.of(request.query))
            case "DELETE", "sessions", session_id:
                return {"deleted": await self._delete(session_id)}
            case "POST", "sessions", "batch_delete":
                wanted = (await _read(request)).get("session_ids") or []
                return {"deleted": sum([await self._delete(str(one)) for one in wanted])}
            case "POST", "traces", "query":
                return self._query(await _read(request))
            case "GET", "traces", *rest:
                return self._trace("/".join(rest))
            case method, "admin", *rest:
                return await self._admin(request, method, rest)
            case "GET", "health", "workers":
                found = self._workers()
                healthy = sum(1 for worker in found if worker["healthy"])
                return {"workers": found, "healthy": healthy, "total": len(found)}
        return None

    async def _admin(self, request: web.BaseRequest, method: str, path: list[str]) -> object | None:
        match (method, *path):
            case "POST", "flush":
                await self._gateway.flush()
                return {"status": "flushed"}
            case "POST", "reload":
                await self._gateway.flush()
                return {"status": "ok"}
            case "GET", "weight_version":
                return self._version()
            case "POST", "weight_version":
                return await self._set_version(await _read(request))
            case "GET", "workers":
                return self._workers()
            case "POST", "workers":
                return await self._add_worker(await request.read())
            case "DELETE", "workers", worker_id:
                return self._remove_worker(worker_id)
        return None

    # --- sessions -------------------------------------------------------------------------

    async def _open(self, body: bytes) -> dict[str, Any] | None:
        """Opens a session, or takes over one that a call has opened; None: not rllm's body."""
        try:
            fields = msgspec.json.decode(body or b"{}", type=dict[str, Any])
            wanted = msgspec.convert(fields, RllmSession)
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is not valid: {error}") from None
        if OURS & fields.keys():
            return None
        session, told = self._find(wanted.session_id) if wanted.session_id else None, {}
        if session is None or session.sealed:
            opened = await self._gateway.open_session(wanted.spec())
            session, told = self._gateway.sessions.by_id(opened.session_id), _fields(opened)
        elif wanted.sampling:
            session.spec.overwrite = True
            session.sampling = {k: Raw(msgspec.json.encode(v)) for k, v in wanted.sampling.items()}
        session_id = session.session_id
        if wanted.metadata:
            self._metadata[session_id] = wanted.metadata
        base_url = told.get("base_url") or self._gateway.base_url(session_id)
        url = f"/sessions/{session_id}/v1"
        return {**told, "session_id": session_id, "url": url, "base_url": base_url}

    def _find(self, session_id: str) -> Session | None:
        try:
            return self._gateway.sessions.by_id(session_id)
        except Refusal:
            return None

    def _info(self, session: Session) -> dict[str, Any]:
        return {
            **session.status(),
            "trace_count": len(_kept(session)),
            "created_at": session.opened,
            "metadata": self._metadata.get(session.session_id, {}),
        }

    def _list(self, window: Window) -> list[dict[str, Any]]:
        since = window.since or 0.0
        found = [s for s in self._gateway.sessions if s.opened >= since]
        found.sort(key=lambda session: session.opened, reverse=True)
        return [self._info(session) for session in found[: window.limit]]

    async def _delete(self, session_id: str) -> int:
        """How many traces went."""
        self._metadata.pop(session_id, None)
        session = self._find(session_id)
        if session is None:
            return 0
        count = len(_kept(session))
        await self._gateway.delete_session(session_id)
        return count

    # --- traces ---------------------------------------------------------------------------

    def _traces(self, session_id: str, window: Window) -> list[dict[str, Any]]:
        """Read one by one: a request repeats its whole history."""
        session = self._find(session_id)
        if session is None:
            return []
        graph = session.graph
        turns = (graph.turn(turn_id) for turn_id in _kept(session))
        found = (turn for turn in turns if turn.started >= (window.since or 0.0))
        return [trace(session, turn) for turn in itertools.islice(found, window.limit)]

    def _trace(self, turn_id: str) -> dict[str, Any]:
        session = self._gateway.sessions.by_id(turn_id.rpartition("/")[0])
        if turn_id not in _kept(session):
            raise Refusal(404, f"no trace {turn_id!r}", retry=False)
        return trace(session, session.graph.turn(turn_id))

    def _query(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        window = Window(body.get("since"), body.get("limit"))
        wanted = body.get("session_ids") or []
        return [t for session_id in wanted for t in self._traces(str(session_id), window)]

    # --- workers and weights --------------------------------------------------------------

    async def _set_version(self, body: dict[str, Any]) -> dict[str, Any]:
        version = body.get("weight_version", body.get("version"))
        if version is None:
            raise bad_request("'weight_version' is missing", "weight_version")
        change = WeightsChange(version=str(version), action="version")
        await change_weights(change, self._gateway.models, self._gateway.relay)
        return self._version()

    def _version(self) -> dict[str, Any]:
        pools = self._gateway.models.pools.values()
        versions = [pool.version for pool in pools if pool.version is not None]
        return {"weight_version": (_number(versions[0]) if versions else None) or 0}

    @property
    def _pool(self) -> Pool:
        """rllm serves one model: the first that is trained."""
        pools = list(self._gateway.models.pools.values())
        return next((pool for pool in pools if pool.train), pools[0])

    def _workers(self) -> list[dict[str, Any]]:
        found = []
        for slot in self._pool.slots.values():
            told = self._added.get(slot.name) or Worker(slot.engine.url)
            worker = {
                "worker_id": told.worker_id or slot.name,
                "url": slot.engine.url,
                "api_path": "/v1",
                "model_name": told.model_name,
                "weight": told.weight,
                "healthy": slot.healthy,
                "active_requests": slot.in_flight,
            }
            found.append(worker)
        return found

    async def _add_worker(self, body: bytes) -> dict[str, Any]:
        try:
            worker = msgspec.json.decode(body or b"{}", type=Worker)
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is not valid: {error}", "url") from None
        if worker.api_path != "/v1":
            raise bad_request("only engines that serve /v1 can be added", "api_path")
        url = worker.url.rstrip("/").removesuffix("/v1")
        try:
            slot = self._pool.add(make_engine(f"vllm:{url}", model=worker.model_name))
        except ConfigError as error:
            raise bad_request(str(error), "url") from None
        self._added[slot.name] = worker
        await self._pool.probe_slot(slot)
        worker_id = worker.worker_id or slot.name
        return {"worker_id": worker_id, "url": slot.engine.url, "api_path": "/v1"}

    def _remove_worker(self, worker_id: str) -> dict[str, str]:
        names = {told.worker_id: name for name, told in self._added.items()}
        name = names.get(worker_id, worker_id)
        self._pool.remove(name)
        self._added.pop(name, None)
        return {"removed": worker_id}


def _fields(opened: Opened) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(opened)
    return fields


def _kept(session: Session) -> list[str]:
    """Ids of the turns that have traces, in order."""
    return [head.turn_id for head in session.graph.heads() if head.error is None]


def trace(session: Session, turn: Turn) -> dict[str, Any]:
    ids = session.graph.ids(turn.turn_id)
    version = turn.versions[-1][0] if turn.versions else None
    return {
        "trace_id": turn.turn_id,
        "session_id": turn.session_id,
        "model": turn.model,
        "messages": _messages(session, turn),
        "prompt_token_ids": ids[: turn.n_prompt].tolist(),
        "response_message": msgspec.Raw(turn.response or b"{}"),
        "completion_token_ids": turn.sampled_ids().tolist(),
        "logprobs": turn.sampled_logprobs().tolist() if turn.logprobs else None,
        "routing_matrices": _experts(turn),
        "finish_reason": turn.finish_reason,
        "weight_version": _number(version) if version is not None else None,
        "latency_ms": round((turn.total_s or 0.0) * 1000, 3),
        "token_counts": {"prompt": turn.n_prompt, "completion": turn.n_sampled},
        "timestamp": turn.started,
        "metadata": {"delivered": session.graph.is_delivered(turn.turn_id)},
        "raw_request": None,
        "raw_response": None,
    }


def _experts(turn: Turn) -> list[str] | None:
    if turn.routed_experts is None:
        return None
    return [base64.b64encode(turn.routed_experts).decode()]


def _messages(session: Session, turn: Turn) -> list[msgspec.Raw]:
    """Of the request, which the first choice of a call holds, in chat shape."""
    if not turn.request and turn.choice and turn.retry_key is not None:
        first = session.graph.find_retry(turn.retry_key)
        turn = session.graph.turn(first.turn_id) if first is not None else turn
    if not turn.request or turn.dialect not in BY_NAME:
        return []
    return [msgspec.Raw(one) for one in BY_NAME[turn.dialect].parse(turn.request).messages or ()]


def _number(version: str) -> int | None:
    """rllm counts its weights; a version that is no number is none to it."""
    return int(version) if version.isdigit() else None


async def _read(request: web.BaseRequest) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not valid: {error}") from None
