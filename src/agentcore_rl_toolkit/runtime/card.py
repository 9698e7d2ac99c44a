"""GetAgentCard: what an agent says of itself at ``/.well-known/agent-card.json``, where A2A has it.

Asked in a session, as an invocation is, which is made when there is none.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
from aiohttp import web

from . import wire
from .connector import CONNECT_S
from .data import DataPlane, broke_off, refusal, session_id_of
from .session import Session

PATH = "/.well-known/agent-card.json"
MAX_CARD_BYTES = 1024 * 1024


class Cards:
    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane

    async def handle(self, request: web.Request, runtime_id: str) -> web.StreamResponse:
        session_id = session_id_of(request)
        try:
            key = self.plane.admit(request, runtime_id, session_id)
            async with self.plane.working(key, request) as session:
                card = await self._ask(request, session)
        except wire.WireError as error:
            return error.response(session_id)
        return wire.json_response(card, headers={wire.SESSION_HEADER: session_id})

    async def _ask(self, request: web.Request, session: Session) -> dict[str, Any]:
        assert session.http is not None
        headers = self.plane.agent_headers(request, session)
        for name in ("Content-Type", "Content-Length"):
            headers.pop(name, None)
        try:
            async with session.http.get(
                session.base_url + PATH,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=CONNECT_S),
            ) as agent:
                if agent.status != 200:
                    raise await refusal(agent)
                raw = await agent.content.read(MAX_CARD_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise await broke_off(session, error) from error
        try:
            card = json.loads(raw)
        except ValueError:
            card = None
        if not isinstance(card, dict):
            raise wire.runtime_error("The agent card is not a JSON object")
        return card
