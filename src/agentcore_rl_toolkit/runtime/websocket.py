"""The WebSocket pass-through: ``/runtimes/{arn}/ws`` to the agent's own ``/ws``.

Both connections have the same subprotocol, messages and pings pass unchanged, and whichever side
closes, the other is closed with the same code and reason. While one is open its session is active.
The agent is connected first: what it refuses, the caller sees as an ordinary error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web

from . import wire
from .awsquota import AwsQuotas, Bucket
from .data import ANSWER_LIMIT_S, DataPlane, broke_off, session_id_of
from .session import Session

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Where AWS's 64 KB are not rehearsed."""
CLOSE_S = 5.0
UNSENDABLE = (1005, 1006, 1015)
"""They tell that there was no code, and may not be sent."""
Side = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


class WebSockets:
    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane

    async def handle(self, request: web.Request, runtime_id: str) -> web.StreamResponse:
        session_id = session_id_of(request)
        try:
            if not web.WebSocketResponse().can_prepare(request):
                raise wire.invalid("This path takes WebSocket upgrades only")
            key = self.plane.admit(request, runtime_id, session_id)
            async with self.plane.working(key, request) as session:
                return await self._connect(request, session)
        except wire.WireError as error:
            return error.response(session_id)

    async def _connect(self, request: web.Request, session: Session) -> web.StreamResponse:
        assert session.http is not None
        headers = self.plane.agent_headers(request, session)
        for name in ("Content-Type", "Content-Length"):
            headers.pop(name, None)
        quotas = self.plane.meter.quotas
        limit = quotas.frame_bytes or MAX_MESSAGE_BYTES
        try:
            agent = await session.http.ws_connect(
                session.base_url.replace("http", "ws", 1) + "/ws",
                protocols=offered(request),
                headers=headers,
                autoping=False,
                autoclose=False,
                max_msg_size=limit,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise wire.runtime_error(
                f"Received error ({error.status}) from runtime. The agent refused the WebSocket: "
                "does it have a handler of /ws?"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise await broke_off(session, error) from error
        try:
            caller = web.WebSocketResponse(
                protocols=[agent.protocol] if agent.protocol else [],
                autoping=False,
                autoclose=False,
                max_msg_size=limit,
                timeout=CLOSE_S,
            )
            caller.headers[wire.SESSION_HEADER] = session.session_id
            await caller.prepare(request)
            await join(caller, agent, quotas)
            return caller
        finally:
            await agent.close()


def offered(request: web.Request) -> list[str]:
    given = request.headers.getall("Sec-WebSocket-Protocol", [])
    return [name.strip() for line in given for name in line.split(",") if name.strip()]


async def join(caller: web.WebSocketResponse, agent: Any, quotas: AwsQuotas) -> None:
    """Until one of them closes, or an hour is over."""
    ways = [
        asyncio.create_task(pump(caller, agent, quotas.frames)),
        asyncio.create_task(pump(agent, caller, quotas.frames)),
    ]
    try:
        done, _ = await asyncio.wait(
            ways, timeout=ANSWER_LIMIT_S, return_when=asyncio.FIRST_COMPLETED
        )
        code, reason = (
            done.pop().result() if done else (int(WSCloseCode.POLICY_VIOLATION), b"time is up")
        )
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for side in (caller, agent):
        try:
            await side.close(code=code, message=reason)
        except (ConnectionError, aiohttp.ClientError):
            pass


async def pump(source: Side, target: Side, frames: float | None) -> tuple[int, bytes]:
    """Returns the code and the reason with which the source closed, or must be closed."""
    bucket = Bucket(frames, asyncio.get_running_loop().time()) if frames else None
    while True:
        message = await source.receive()
        if bucket is not None and not bucket.take(asyncio.get_running_loop().time()):
            return int(WSCloseCode.POLICY_VIOLATION), b"too many frames"
        try:
            match message.type:
                case WSMsgType.TEXT:
                    await target.send_str(message.data)
                case WSMsgType.BINARY:
                    await target.send_bytes(message.data)
                case WSMsgType.PING:
                    await target.ping(message.data)
                case WSMsgType.PONG:
                    await target.pong(message.data)
                case WSMsgType.CLOSE:
                    return sendable(message.data), (message.extra or "").encode()
                case WSMsgType.ERROR:
                    code = getattr(message.data, "code", None)
                    return int(code or WSCloseCode.PROTOCOL_ERROR), b""
                case _:  # gone without a word
                    code = source.close_code or 1006
                    return (int(WSCloseCode.INTERNAL_ERROR) if code in UNSENDABLE else code), b""
        except (ConnectionError, aiohttp.ClientError):
            return int(WSCloseCode.INTERNAL_ERROR), b"the other side is gone"


def sendable(code: int | None) -> int:
    return int(WSCloseCode.OK) if not code or code in UNSENDABLE else code
