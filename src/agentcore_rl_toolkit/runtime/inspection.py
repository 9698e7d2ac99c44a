"""Our own paths under ``/_art/``: what the runtime is, its events, its sessions and their logs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .. import __version__, local
from . import wire
from .data import check_session_id
from .sessionlog import log_path

if TYPE_CHECKING:
    from .server import RuntimeServer


class Inspection:
    def __init__(self, server: RuntimeServer) -> None:
        self.server = server

    async def handle(self, request: web.Request, segments: list[str]) -> web.StreamResponse:
        if request.method != "GET":
            raise wire.not_implemented(f"{request.method} {request.path}")
        match segments:
            case [""]:
                return wire.json_response(self.about())
            case ["events"]:
                return await self.server.events.handle(request)
            case ["sessions"]:
                table = self.server.sessions.table
                return wire.json_response({"sessions": [s.describe() for s in table.values()]})
            case ["sessions", session_id]:
                return self.session(session_id)
            case ["sessions", session_id, "log"]:
                return self.log(check_session_id(session_id))
        raise wire.not_found(f"the local runtime has nothing at {request.path}")

    def about(self) -> dict[str, Any]:
        driver = self.server.templates.driver(self.server.isolation)
        return {
            "service": "agentcore-rl-toolkit",
            "version": __version__,
            "region": local.REGION,
            "isolation": {"level": driver.level, "reason": driver.probe().reason},
            "pid": os.getpid(),
        }

    def session(self, session_id: str) -> web.Response:
        session = self.server.sessions.named(session_id)
        if session is None:
            raise wire.not_found(f"no live session {session_id}")
        return wire.json_response(session.describe())

    def log(self, session_id: str) -> web.StreamResponse:
        path = log_path(self.server.home.logs, session_id)
        if not path.is_file():
            raise wire.not_found(f"session {session_id} has no log here")
        return web.FileResponse(path, headers={"Content-Type": "text/plain; charset=utf-8"})
