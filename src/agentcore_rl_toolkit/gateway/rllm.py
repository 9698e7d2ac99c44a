"""rllm's gateway protocol, for open gateways: traces instead of rows.

rllm opens sessions with ids of its own choice, lets the agent call, and reads one trace record a
call. Its sampling parameters win over the agent's. The messages of every turn are kept for this,
each distinct message once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from ..trajectory.turn import Turn
from .engines import make_engine
from .fault import Refusal, bad_request
from .session import OpenSession, Session
from .weights import WeightsChange, change_weights

if TYPE_CHECKING:
    from .server import Gateway


class RllmSession(msgspec.Struct):
    """Body of rllm's ``POST /sessions``; fields that it adds later are ignored."""

    session_id: str | None = None
    sampling_params: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    def spec(self) -> OpenSession:
        sampling = {k: v for k, v in (self.sampling_params or {}).items() if v is not None}
        group = (self.metadata or {}).get("group_id")
        return OpenSession(
            session_id=self.session_id,
            sampling=sampling,
            overwrite=True,
            group_id=str(group) if group is not None else None,
        )


class Rllm:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def handle(self, request: web.BaseRequest, path: str) -> object | None:
        """The answer to one of rllm's own calls; None when it is not one of them."""
        method, parts = request.method, path.split("/")
        if method == "GET" and len(parts) == 3 and (parts[0], parts[2]) == ("sessions", "traces"):
            return self.traces(self._gateway.sessions.by_id(parts[1]))
        if method == "GET" and parts[0] == "traces" and len(parts) > 1:
            return self._trace("/".join(parts[1:]))
        if method == "POST" and path == "sessions/batch_delete":
            return await self._batch_delete(await _read(request))
        if method == "POST" and path == "traces/query":
            return self._query(await _read(request))
        if path in ("admin/flush", "admin/reload") and method == "POST":
            await self._gateway.flush()
            return {"status": "flushed" if path.endswith("flush") else "ok"}
        if path == "admin/weight_version":
            return await self._version(await _read(request) if method == "POST" else None)
        if path.startswith("admin/workers"):
            return await self._workers(request, parts[2] if len(parts) > 2 else None)
        return None

    def traces(self, session: Session) -> list[dict[str, Any]]:
        return [trace(session, turn) for turn in session.graph.turns() if turn.error is None]

    def _trace(self, turn_id: str) -> dict[str, Any]:
        session = self._gateway.sessions.by_id(turn_id.rpartition("/")[0])
        for turn in session.graph.turns():
            if turn.turn_id == turn_id:
                return trace(session, turn)
        raise Refusal(404, f"no trace {turn_id!r}", retry=False)

    def _query(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = body.get("session_ids") or [s.session_id for s in self._gateway.sessions]
        return [t for one in wanted for t in self.traces(self._gateway.sessions.by_id(one))]

    async def _batch_delete(self, body: dict[str, Any]) -> dict[str, int]:
        known = {session.session_id for session in self._gateway.sessions}
        wanted = [one for one in body.get("session_ids") or [] if one in known]
        for session_id in wanted:
            await self._gateway.delete_session(session_id)
        return {"deleted": len(wanted)}

    async def _version(self, body: dict[str, Any] | None) -> dict[str, Any]:
        models = self._gateway.models
        if body is not None:
            version = body.get("weight_version", body.get("version"))
            if version is None:
                raise bad_request("'weight_version' is missing", "weight_version")
            change = WeightsChange(version=str(version), action="version")
            await change_weights(change, models, self._gateway.relay)
        versions = [pool.version for pool in models.pools.values() if pool.version is not None]
        return {"weight_version": _number(versions[0]) if versions else 0}

    async def _workers(self, request: web.BaseRequest, name: str | None) -> object:
        pool = next(iter(self._gateway.models.pools.values()))
        if request.method == "GET":
            return [_worker(slot.engine.url) for slot in pool.slots.values()]
        if request.method == "DELETE" and name is not None:
            pool.remove(name)
            return {"removed": name}
        url = str((await _read(request)).get("url", "")).rstrip("/").removesuffix("/v1")
        slot = pool.add(make_engine(f"vllm:{url}"))
        await slot.engine.probe()
        return _worker(slot.engine.url)


def _worker(url: str) -> dict[str, Any]:
    return {"worker_id": url.partition("//")[2], "url": url, "api_path": "/v1", "healthy": True}


def trace(session: Session, turn: Turn) -> dict[str, Any]:
    ids = session.graph.ids(turn.turn_id)
    version = turn.versions[-1][0] if turn.versions else None
    return {
        "trace_id": turn.turn_id,
        "session_id": turn.session_id,
        "model": turn.model,
        "messages": [msgspec.Raw(message) for message in session.messages_of(turn.turn_id)],
        "prompt_token_ids": ids[: turn.n_prompt].tolist(),
        "response_message": msgspec.Raw(turn.response or b"{}"),
        "completion_token_ids": turn.sampled_ids().tolist(),
        "logprobs": turn.sampled_logprobs().tolist() if turn.logprobs else None,
        "finish_reason": turn.finish_reason,
        "weight_version": _number(version) if version is not None else None,
        "latency_ms": round((turn.total_s or 0.0) * 1000, 3),
        "token_counts": {"prompt": turn.n_prompt, "completion": turn.n_sampled},
        "timestamp": turn.started,
        "metadata": {"delivered": session.graph.is_delivered(turn.turn_id)},
    }


def _number(version: str) -> int | str:
    return int(version) if version.isdigit() else version


async def _read(request: web.BaseRequest) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not valid: {error}") from None
