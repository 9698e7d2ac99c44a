"""Admin requests to a gateway of several workers: one answer for all of them.

Whoever gets the request asks the others and puts the answers together. What concerns one session
goes to its worker. New weights go in steps, each through all workers before the next, and only one
of them speaks to the engines.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from aiohttp import web

from ..fault import Refusal
from ..session import OpenSession
from ..weights import WeightsChange, change_weights
from .peers import owner_of, passed_on

if TYPE_CHECKING:
    from ..server import Gateway
    from .peers import Peers

SUMMED = ("in_flight", "served")
HEALTH_S = 2.0
"""How long a worker may take to say how it is."""
LARGEST = "_lag_"


class Fanout:
    def __init__(self, gateway: Gateway, peers: Peers) -> None:
        self._gateway, self._peers = gateway, peers

    async def handle(self, request: web.BaseRequest, path: str) -> web.StreamResponse | None:
        """The answer of all workers; None: this one answers alone."""
        if self._peers.is_internal(request):
            return await self._publish(request) if path == "admin/publish" else None
        head, _, rest = path.removeprefix("admin/").partition("/")
        match (request.method, head, rest):
            case ("POST", "sessions", ""):
                return await self._open(request)
            case ("GET", "sessions", ""):
                return await self._sessions(request)
            case (_, "sessions", _):
                return await self._session(request, rest.partition("/")[0])
            case ("POST", "weights", _):
                return await self._weights(request)
            case ("GET", "models", _):
                answers = await self._all(request)
                return _json({"models": merge_models([a["models"] for a in answers])})
            case (_, "engines", _):
                return _json(merge_models([[a] for a in await self._all(request)])[0])
            case ("GET", "metrics", _):
                return await self._metrics(request)
        return None

    # --- sessions -------------------------------------------------------------------------

    async def _open(self, request: web.BaseRequest) -> web.StreamResponse:
        """Placed by its id, which is given here when the caller gives none."""
        try:
            spec = msgspec.json.decode(await request.read() or b"{}", type=OpenSession)
        except msgspec.DecodeError:
            return await self._gateway.admin.answer(request)  # which says what is wrong
        chosen = spec.session_id is not None
        while True:
            session_id = spec.session_id if chosen else secrets.token_hex(12)
            assert session_id is not None, "chosen, or made above"
            spec.session_id = session_id
            owner = owner_of(session_id, self._peers.place.count)
            if owner == self._peers.place.index:
                return _json(await self._gateway.open_session(spec), 201)
            answer = await self._to(owner, request, msgspec.json.encode(spec))
            if chosen or answer.status != 409:
                return answer  # else it was opened by a worker that died before it could say so

    async def _session(self, request: web.BaseRequest, session_id: str) -> web.Response | None:
        owner = owner_of(session_id, self._peers.place.count)
        if owner == self._peers.place.index:
            return None
        return await self._to(owner, request, await request.read())

    async def _to(self, owner: int, request: web.BaseRequest, body: bytes) -> web.Response:
        headers = passed_on(request.headers)
        status, answer = await self._peers.ask(
            owner, request.method, request.path_qs, body, headers
        )
        return web.Response(status=status, body=answer, content_type="application/json")

    async def _sessions(self, request: web.BaseRequest) -> web.Response:
        answers = await self._all(request)
        return _json({"sessions": [one for answer in answers for one in answer["sessions"]]})

    # --- the gateway itself ---------------------------------------------------------------

    async def health(self, request: web.BaseRequest, mine: dict[str, Any]) -> dict[str, Any]:
        """Of all workers; one that does not answer at once is said to be missing."""
        if self._peers.is_internal(request):
            return mine
        asked = (self._health_of(index) for index in self._peers.others)
        return merge_health([mine, *await asyncio.gather(*asked)])

    async def _health_of(self, index: int) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(HEALTH_S):
                _, answer = await self._peers.ask(index, "GET", "/health", b"", {})
            found: dict[str, Any] = msgspec.json.decode(answer)
        except (TimeoutError, OSError, aiohttp.ClientError, msgspec.DecodeError, Refusal):
            return None
        return found

    async def _texts(self, request: web.BaseRequest) -> list[bytes]:
        """Every worker's answer to the same request, this one's first."""
        body, headers = await request.read(), passed_on(request.headers)
        mine = await self._gateway.admin.answer(request)
        asked = (
            self._peers.ask(i, request.method, request.path_qs, body, headers)
            for i in self._peers.others
        )
        said = mine.body if isinstance(mine, web.Response) else None
        out = [said if isinstance(said, bytes) else b""]
        for status, answer in await asyncio.gather(*asked):
            if status >= 400:
                raise Refusal(status, answer.decode("utf-8", "replace"), body=answer)
            out.append(answer)
        return out

    async def _all(self, request: web.BaseRequest) -> list[Any]:
        return [msgspec.json.decode(text) for text in await self._texts(request)]

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        texts = [text.decode() for text in await self._texts(request)]
        return web.Response(text=merge_metrics(texts), content_type="text/plain")

    async def _weights(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            change = msgspec.json.decode(await request.read() or b"{}", type=WeightsChange)
        except msgspec.DecodeError:
            return await self._gateway.admin.answer(request)  # which says what is wrong
        headers = passed_on(request.headers)
        steps = ("pause", "version", "resume") if change.action == "update" else (change.action,)
        if change.version is None and "version" in steps:
            steps = ("version",)  # refused, with its reason, before anything is paused
        pools = []
        try:
            for step in steps:
                one = msgspec.structs.replace(change, action=step)
                if step in ("pause", "resume") and change.action == "update":
                    one.version = None
                if step != "resume":
                    await self._tell(one, headers)
                gateway = self._gateway
                pools = await change_weights(one, gateway.models, gateway.relay)
                if step == "resume":
                    await self._tell(one, headers)
        except BaseException:
            if change.action in ("update", "pause"):
                resume = msgspec.structs.replace(change, action="resume", version=None)
                await self._tell(resume, headers)
                await change_weights(
                    msgspec.structs.replace(resume, engines=False),
                    self._gateway.models,
                    self._gateway.relay,
                )
            raise
        return _json({"models": [pool.status() for pool in pools]})

    async def _tell(self, change: WeightsChange, headers: dict[str, str]) -> None:
        """One step through the other workers; the engines hear of it from this one alone."""
        body = msgspec.json.encode(msgspec.structs.replace(change, engines=False))
        asked = (
            self._peers.ask(i, "POST", "/admin/weights", body, headers) for i in self._peers.others
        )
        for status, answer in await asyncio.gather(*asked):
            if status >= 400:
                raise Refusal(status, answer.decode("utf-8", "replace"), body=answer)

    # --- notices --------------------------------------------------------------------------

    async def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Passes a notice on, for those who listen at another worker."""
        body = msgspec.json.encode({"kind": kind, "data": data})
        headers = {"authorization": f"Bearer {self._gateway.settings.admin_token}"}
        asked = (
            self._peers.ask(i, "POST", "/admin/publish", body, headers) for i in self._peers.others
        )
        await asyncio.gather(*asked, return_exceptions=True)  # hints: the store has the truth

    async def _publish(self, request: web.BaseRequest) -> web.Response:
        notice = msgspec.json.decode(await request.read())
        self._gateway.events.publish(notice["kind"], notice["data"])
        return _json({})


def merge_health(answers: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Sessions and calls added up, the worst of the rest; the first is this worker's own."""
    here = [answer for answer in answers if answer is not None]
    missing = len(answers) - len(here)
    ok = not missing and all(answer["status"] == "ok" for answer in here)
    merged = {**here[0], "status": "ok" if ok else "degraded"}
    for name in ("sessions", "in_flight"):
        merged[name] = sum(answer[name] for answer in here)
    merged["loop_lag_p99_s"] = max(answer["loop_lag_p99_s"] for answer in here)
    return {**merged, "workers_missing": missing}


def merge_models(answers: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Models as one gateway serves them: loads added up, healthy only if all say so."""
    merged = answers[0]
    for other in answers[1:]:
        theirs = {model["model"]: model for model in other}
        for model in merged:
            slots = {s["engine"]: s for s in theirs.get(model["model"], {}).get("engines", ())}
            for slot in model["engines"]:
                peer = slots.get(slot["engine"], {})
                for name in SUMMED:
                    slot[name] += peer.get(name, 0)
                slot["healthy"] = slot["healthy"] and peer.get("healthy", True)
    return merged


def merge_metrics(texts: list[str]) -> str:
    """Counters and gauges added up; of the loops' lag the worst."""
    values: dict[str, float] = {}
    lines: list[str] = []
    for number, text in enumerate(texts):
        for line in text.splitlines():
            if line.startswith("#"):
                lines += [line] if not number else []
                continue
            name, _, value = line.rpartition(" ")
            if name not in values:
                values[name] = float(value)
                lines.append(name)
            elif LARGEST in name:
                values[name] = max(values[name], float(value))
            else:
                values[name] += float(value)
    out = [line if line.startswith("#") else f"{line} {values[line]:.6g}" for line in lines]
    return "\n".join(out) + "\n"


def _json(data: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(data), content_type="application/json"
    )
