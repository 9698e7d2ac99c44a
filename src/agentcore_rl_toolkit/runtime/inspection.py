"""Our own paths under ``/_art/``: what the runtime is and counts, its events, sessions and logs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .. import __version__, local, prometheus
from . import openapi, shell, wire
from .session import Session
from .sessionlog import logs_of

if TYPE_CHECKING:
    from .server import RuntimeServer

FOLLOW_S = 0.1
"""How often a log that somebody follows is looked at."""
READ_BYTES = 256 * 1024
LOG_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,255}")
TEXT = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}


class Inspection:
    def __init__(self, server: RuntimeServer) -> None:
        self.server = server

    async def handle(self, request: web.Request, segments: list[str]) -> web.StreamResponse:
        match segments:
            case [""]:
                return wire.json_response(self.about())
            case ["events"]:
                return await self.server.events.handle(request)
            case ["metrics"]:
                text = self.server.metrics.text(self.server)
                return web.Response(
                    body=text.encode(), headers={"Content-Type": prometheus.CONTENT_TYPE}
                )
            case ["openapi.json"]:
                return web.Response(body=self.description, content_type="application/json")
            case ["sessions"]:
                table = self.server.sessions.table
                return wire.json_response({"sessions": [s.describe() for s in table.values()]})
            case ["sessions", session_id]:
                return wire.json_response(self.session(session_id).describe())
            case ["sessions", session_id, "log"]:
                return await self.log(request, session_id)
            case ["sessions", session_id, "shell"]:
                return await shell.handle(request, self.session(session_id), self.server.data)
        raise wire.not_found(f"the local runtime has nothing at {request.path}")

    @cached_property
    def description(self) -> bytes:
        return json.dumps(openapi.describe()).encode()

    def about(self) -> dict[str, Any]:
        driver = self.server.templates.driver(self.server.isolation)
        return {
            "service": "agentcore-rl-toolkit",
            "version": __version__,
            "region": local.REGION,
            "isolation": {"level": driver.level, "reason": driver.probe().reason},
            "pid": os.getpid(),
            "python": sys.executable,
        }

    def session(self, session_id: str) -> Session:
        session = self.server.sessions.named(session_id)
        if session is None:
            raise wire.not_found(f"no live session {session_id}")
        return session

    # --- logs ---------------------------------------------------------------------------------

    async def log(self, request: web.Request, session_id: str) -> web.StreamResponse:
        """``session_id`` may be the beginning of one."""
        if not LOG_NAME.fullmatch(session_id):
            raise wire.invalid("runtimeSessionId has letters, digits, '-' and '_'", "sessionId")
        found = logs_of(self.server.home.logs, session_id)
        if not found:
            raise wire.not_found(
                f"session {session_id} has no log here: 'art sessions' lists the live ones"
            )
        if len(found) > 1:
            raise wire.invalid(f"{len(found)} logs begin with {session_id}: say more of it")
        if request.query.get("follow") == "1":
            return await self._follow(request, found[0], session_id)
        return web.FileResponse(found[0], headers=TEXT)

    async def _follow(
        self, request: web.Request, path: Path, session_id: str
    ) -> web.StreamResponse:
        """What is there and what comes, until the session is gone."""
        response = web.StreamResponse(headers=TEXT)
        await response.prepare(request)
        with path.open("rb") as file:
            try:
                while not self.server.sessions.closing:
                    live = self.server.sessions.named(session_id) is not None
                    while piece := file.read(READ_BYTES):
                        await response.write(piece)
                    if not live or request.transport is None:
                        break
                    await asyncio.sleep(FOLLOW_S)
            except ConnectionError:
                pass  # the reader left
        return response
