"""The data plane: InvokeAgentRuntime and StopRuntimeSession, and what all its operations share.

An invocation is bytes in, bytes out: the body goes to the agent's ``POST /invocations`` and its
answer comes back as it is produced, chunk by chunk. What the agent says other than 2xx, and every
way in which it can fail to say anything, is 424 RuntimeClientError, as on AWS; here the sentence
also tells what the agent said. A caller who goes away does not end the work.

``command.py`` and ``websocket.py`` are the other two ways into a session; they, too, come in by
``admit`` and work inside ``working``, which provisions on demand and counts as activity.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

from .. import local
from ..errors import IsolationError
from ..rollout import ROLLOUT
from . import body as bodies
from . import wire
from .answer import Answer, Answers
from .awsquota import Meter
from .body import MAX_BODY_BYTES, WHOLE_BYTES, Body, Spool
from .check import check_token, read_small
from .connector import CONNECT_S
from .deployment import Deployments
from .registry import DEFAULT_ENDPOINT
from .session import Session, SessionKey, Sessions, log_excerpt

logger = logging.getLogger(__name__)

ANSWER_LIMIT_S = 3600.0
"""AWS's bound of one streaming connection."""
SAID_CHARS = 500
STOPS_KEPT = 10_000
MAX_HEADER_CHARS = 4096
"""Of a caller's own header that the agent is to get."""
MAX_CHARS = {
    "Content-Type": 256,
    "Accept": 256,
    "Mcp-Session-Id": 1024,
    "Mcp-Protocol-Version": 1024,
    "Mcp-Method": 1024,
    "Mcp-Name": 1024,
    "X-Amzn-Bedrock-AgentCore-Runtime-User-Id": 1024,
    "X-Amzn-Trace-Id": 128,
    "traceparent": 128,
    "tracestate": 512,
    "baggage": 8192,
}
"""Of the service's model; boto3 does not check them."""
FORWARDED = (
    "Accept",
    "Mcp-Session-Id",
    "Mcp-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "X-Amzn-Bedrock-AgentCore-Runtime-User-Id",
    "X-Amzn-Trace-Id",
    "traceparent",
    "tracestate",
    "baggage",
)
RETURNED = (
    "Content-Type",
    "Content-Encoding",
    "Mcp-Session-Id",
    "Mcp-Protocol-Version",
    "X-Amzn-Trace-Id",
    "traceparent",
    "tracestate",
    "baggage",
)


class DataPlane:
    def __init__(
        self, deployments: Deployments, sessions: Sessions, meter: Meter | None = None
    ) -> None:
        self.deployments, self.sessions = deployments, sessions
        self.meter = meter or Meter()
        self.answers = Answers()
        self._stops: OrderedDict[tuple[SessionKey, str], None] = OrderedDict()
        """Stops that were answered, by client token."""

    # --- what every operation begins with -----------------------------------------------------

    def admit(self, request: web.Request, runtime_id: str, session_id: str) -> SessionKey:
        self.meter.request(runtime_id)
        for name, most in MAX_CHARS.items():
            if len(request.headers.get(name, "")) > most:
                raise wire.invalid(f"{name} is longer than {most} characters", name)
        check_account(request.query.get("accountId"))
        key = SessionKey(runtime_id, qualifier_of(request), check_session_id(session_id))
        self.deployments.find(key.runtime_id, key.qualifier)
        return key

    @contextlib.asynccontextmanager
    async def working(self, key: SessionKey, request: web.Request) -> AsyncIterator[Session]:
        """The live session, made when there is none; the time inside is activity."""
        session = self.sessions.table.get(key) or await self._provision(key, request)
        if not session.life.live:
            raise wire.retry_conflict()
        session.life.begin()
        try:
            yield session
        finally:
            session.life.end(time.monotonic())

    async def _provision(self, key: SessionKey, request: web.Request) -> Session:
        self.meter.new_session(len(self.sessions.table))
        deployed = await self.deployments.live(key.runtime_id, key.qualifier)
        if key in self.sessions.table:  # somebody else came first while this one waited
            raise wire.retry_conflict()
        try:
            return await self.sessions.provision(
                key, deployed.agent, deployed.timeouts, lambda: request.transport is None
            )
        except IsolationError as error:
            raise wire.runtime_error(f"The session could not be started: {error}") from error

    # --- InvokeAgentRuntime -------------------------------------------------------------------

    async def invoke(self, request: web.Request, runtime_id: str) -> web.StreamResponse:
        session_id = session_id_of(request)
        try:
            return await self._invoke(request, self.admit(request, runtime_id, session_id))
        except wire.WireError as error:
            return error.response(session_id)

    async def _invoke(self, request: web.Request, key: SessionKey) -> web.StreamResponse:
        if (request.content_length or 0) > self.max_body_bytes:
            raise bodies.too_large(self.max_body_bytes)
        # Without an id nothing can be recognised as a repetition: then the id is ours.
        invocation = (key, request.headers.get("amz-sdk-invocation-id") or str(uuid.uuid4()))
        if earlier := self.answers.find(invocation):
            logger.info("session=<%s> | invocation repeated, not run again", key.session_id)
            return await repeat(request, earlier)
        answer = self.answers.open(invocation)
        try:
            response = await self._first(request, key, answer)
        except wire.WireError as error:
            answer.finish(error)
            raise
        except BaseException:
            answer.finish(wire.internal("the first request with this invocation id failed"))
            raise
        finally:
            if answer.reached:
                self.answers.keep(invocation)
            else:
                self.answers.drop(invocation)
        return response

    @property
    def max_body_bytes(self) -> int:
        return min(self.meter.quotas.payload_bytes or MAX_BODY_BYTES, MAX_BODY_BYTES)

    async def _first(
        self, request: web.Request, key: SessionKey, answer: Answer
    ) -> web.StreamResponse:
        body = await bodies.read(request, self.max_body_bytes)
        async with self.working(key, request) as session:
            with contextlib.ExitStack() as held:
                if session.egress is not None and session.egress.active:
                    body = await self._permit(session, body, held)
                return await self._relay(request, session, body, answer)

    async def _permit(self, session: Session, body: Body, held: contextlib.ExitStack) -> Body:
        """What a session may reach stands in its payload: read before it is passed on."""
        assert session.egress is not None
        if isinstance(body, bytes):
            await session.egress.permit(body)
        else:
            spool = Spool(self.sessions.logs, ROLLOUT.encode())
            held.callback(spool.close)
            await spool.fill(body)
            if (view := spool.view()) is not None:
                with view:
                    await session.egress.permit(view)
            body = spool.pieces()
        if not session.life.live:
            raise await broke_off(session, ConnectionError("the session ended"))
        return body

    async def _relay(
        self, request: web.Request, session: Session, body: Body, answer: Answer
    ) -> web.StreamResponse:
        assert session.http is not None
        limit_s = self.meter.quotas.sync_s or ANSWER_LIMIT_S
        try:
            async with (
                asyncio.timeout(limit_s) as until_head,
                session.http.post(
                    session.base_url + "/invocations",
                    data=body,
                    headers=self.agent_headers(request, session),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=ANSWER_LIMIT_S),
                ) as agent,
            ):
                until_head.reschedule(None)
                if not 200 <= agent.status < 300:
                    answer.reached = True
                    raise await refusal(agent)
                return await pass_on(request, agent, session.session_id, answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise await broke_off(session, error, limit_s) from error

    def agent_headers(self, request: web.Request, session: Session) -> dict[str, str]:
        allowed = self.deployments.allowed_headers(session.key.runtime_id, session.agent.version)
        return agent_headers(request, session.session_id, allowed)

    # --- StopRuntimeSession -------------------------------------------------------------------

    async def stop(self, request: web.Request, runtime_id: str) -> web.Response:
        session_id = request.headers.get(wire.SESSION_HEADER) or ""
        key = self.admit(request, runtime_id, session_id)
        token = (key, client_token(await read_small(request)))
        if token not in self._stops:
            await self._stop(key)
            if token[1]:
                self._stops[token] = None
                if len(self._stops) > STOPS_KEPT:
                    self._stops.popitem(last=False)
        return wire.json_response({}, headers={wire.SESSION_HEADER: session_id})

    async def _stop(self, key: SessionKey) -> None:
        session = self.sessions.table.get(key)
        if session is None:
            raise wire.not_found(
                f"No active session {key.session_id} found for runtime {key.runtime_id}"
            )
        if not session.life.live:
            raise wire.retry_conflict()
        await self.sessions.end(session, "StopRuntimeSession")


def check_session_id(session_id: str) -> str:
    if not wire.SESSION_ID.fullmatch(session_id):
        raise wire.invalid(
            "runtimeSessionId must be 33 to 256 characters of a-z, A-Z, 0-9, '-' and '_' and begin "
            f"with a letter or digit; got {len(session_id)} characters",
            "runtimeSessionId",
        )
    return session_id


def check_account(account: str | None) -> None:
    if account is None:
        return
    if not re.fullmatch(r"[0-9]{12}", account):
        raise wire.invalid("accountId must be 12 digits", "accountId")
    if account != local.ACCOUNT:
        raise wire.not_found(f"The runtimes here are of account {local.ACCOUNT}, not {account}")


def client_token(body: bytes) -> str:
    """Of a stop; empty when a raw caller gives none."""
    try:
        members = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise wire.invalid("The body must be a JSON object") from error
    if not isinstance(members, dict):
        raise wire.invalid("The body must be a JSON object")
    return check_token(members)


def session_id_of(request: web.Request) -> str:
    """A raw caller may leave it to us; a presigned URL has it among its parameters."""
    given = request.headers.get(wire.SESSION_HEADER) or request.query.get(wire.SESSION_HEADER)
    return given or str(uuid.uuid4())


def qualifier_of(request: web.Request) -> str:
    return request.query.get("qualifier") or DEFAULT_ENDPOINT


# --- towards the agent ------------------------------------------------------------------------


def agent_headers(request: web.Request, session_id: str, allowed: frozenset[str]) -> dict[str, str]:
    given = request.headers
    headers = {name: given[name] for name in FORWARDED if name in given}
    for name, value in given.items():
        if name.lower() in allowed and not value.startswith("AWS4-"):
            if len(value) > MAX_HEADER_CHARS:
                raise wire.invalid(f"{name} is longer than {MAX_HEADER_CHARS} characters", name)
            headers[name] = value
    headers["Content-Type"] = given.get("Content-Type") or "application/json"
    headers[wire.SESSION_HEADER] = session_id
    headers[wire.REQUEST_HEADER] = str(uuid.uuid4())
    if request.content_length is not None:
        headers["Content-Length"] = str(request.content_length)
    return headers


# --- from the agent ---------------------------------------------------------------------------


async def pass_on(
    request: web.Request, agent: aiohttp.ClientResponse, session_id: str, answer: Answer
) -> web.StreamResponse:
    headers = {name: agent.headers[name] for name in RETURNED if name in agent.headers}
    headers.setdefault("Content-Type", "application/octet-stream")
    headers[wire.SESSION_HEADER] = session_id
    headers[wire.REQUEST_ID_HEADER] = str(uuid.uuid4())
    length = agent.content_length
    if length is not None and length <= WHOLE_BYTES:
        body = await agent.read()
        answer.head(agent.status, headers)
        answer.feed(body)
        answer.finish()
        return web.Response(status=agent.status, headers=headers, body=body)
    if length is not None:
        headers["Content-Length"] = str(length)
    answer.head(agent.status, headers)
    try:
        response = await stream(request, agent, answer)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        answer.finish(wire.runtime_error(f"The answer of the agent broke off: {error!r}"))
        return cut(request)
    answer.finish()
    return response


async def stream(
    request: web.Request, agent: aiohttp.ClientResponse, answer: Answer
) -> web.StreamResponse:
    """Goes on reading when the caller has left: its retry may be on the way."""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    listening = True
    try:
        await response.prepare(request)
    except ConnectionError:
        listening = False
    async for chunk in agent.content.iter_any():
        answer.feed(chunk)
        if listening:
            try:
                await response.write(chunk)
            except ConnectionError:
                listening = False
    return response


async def repeat(request: web.Request, answer: Answer) -> web.StreamResponse:
    answer.readers += 1
    try:
        await answer.until_head()
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        async for chunk in answer.body():
            await response.write(chunk)
        return response
    except ConnectionError:
        return cut(request)
    finally:
        answer.readers -= 1


def cut(request: web.Request) -> web.StreamResponse:
    """An answer that began and cannot be completed must not look complete."""
    if request.transport is not None:
        request.transport.abort()
    return web.StreamResponse()


async def refusal(agent: aiohttp.ClientResponse) -> wire.WireError:
    """What the caller hears of an answer that is not a success."""
    raw = await agent.content.read(64 * 1024)
    text = error_text(raw)
    message = (
        f"Received error ({agent.status}) from runtime. "
        "Please check your CloudWatch logs for more information."
    )
    if text:
        message += f" Agent said: {text[:SAID_CHARS]}"
    return wire.runtime_error(message)


def error_text(raw: bytes) -> str:
    text = raw.decode(errors="replace").strip()
    try:
        body: Any = json.loads(text)
    except ValueError:
        return text
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(body["error"])
    return text


async def broke_off(
    session: Session, error: BaseException, limit_s: float = CONNECT_S
) -> wire.WireError:
    if isinstance(error.__cause__, wire.WireError):  # raised by ``bounded`` while sending
        return error.__cause__
    if isinstance(error, TimeoutError):
        return wire.runtime_error(f"The agent did not answer within {limit_s:g} s.")
    # The connection falls a moment before the compute's end is noticed.
    await asyncio.wait({session.exited}, timeout=1.0)
    if session.exited.done():
        what = f"The session ended while it handled the request ({session.exited.result()})."
    else:
        said = error.message if isinstance(error, aiohttp.ClientResponseError) else repr(error)
        what = f"The agent closed the connection without a valid HTTP answer ({said})."
    return wire.runtime_error(what + log_excerpt(session))
