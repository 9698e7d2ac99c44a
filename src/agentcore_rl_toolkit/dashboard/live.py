"""What changes while somebody looks: new lines of a run, and the sessions of the local runtime.

The page is told *that* something changed and asks for what it shows; so a page that missed an event
is right again after the next. The runtime is asked only on loopback.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp import web

from .. import local
from .guard import HEADERS
from .run import MAX_LOG_BYTES, Run

POLL_S = 0.5
LIST_S = 2.0
KEEP_ALIVE_S = 15.0
ASK_S = 2.0


async def stream(
    request: web.Request,
    look: Callable[[], dict[str, Any]],
    closing: asyncio.Event,
    every_s: float = POLL_S,
) -> web.StreamResponse:
    """Server-sent events, ``change`` with what is seen when it differs, until one of us goes."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
    await response.prepare(request)
    told: object = None
    quiet = 0.0
    try:
        while not closing.is_set():
            now = await asyncio.to_thread(look)
            if now != told:
                told, quiet = now, 0.0
                await response.write(f"event: change\ndata: {json.dumps(now)}\n\n".encode())
            elif quiet >= KEEP_ALIVE_S:
                quiet = 0.0
                await response.write(b": here\n\n")
            quiet += every_s
            try:
                await asyncio.wait_for(closing.wait(), every_s)
            except TimeoutError:
                pass
    except ConnectionError:
        pass  # the page left
    return response


class Runtime:
    """The local runtime that a run used, or the one that this user has."""

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def sessions(self, run: Run | None) -> dict[str, Any]:
        url = endpoint_of(run)
        body = await self._get(f"{url}/_art/sessions") if url else None
        try:
            found = json.loads(body or "")["sessions"]
        except (ValueError, KeyError, TypeError):
            return {"endpoint_url": url, "reachable": False, "sessions": []}
        return {"endpoint_url": url, "reachable": True, "sessions": found}

    async def log(self, run: Run, session_id: str) -> str | None:
        """What the agent printed, its end; None when neither the run nor a runtime has it."""
        body = await asyncio.to_thread(run.log, session_id)
        if body is None and (url := endpoint_of(run)):
            path = f"/_art/sessions/{quote(session_id, safe='')}/log"
            body = await self._get(url + path)
        return None if body is None else body[-MAX_LOG_BYTES:].decode(errors="replace")

    async def _get(self, url: str) -> bytes | None:
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_S))
        try:
            async with self._http.get(url, headers=local.sign(url)) as answer:
                return await answer.read() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def endpoint_of(run: Run | None) -> str | None:
    """A run folder may say any address: only this machine is asked."""
    named = [e["endpoint_url"] for e in run.events if e.get("endpoint_url")] if run else []
    url = str(named[-1]) if named else local.find_endpoint()
    try:
        parts = urlsplit(url)
        own = parts.scheme in ("http", "https") and is_plain(parts.path)
        return url.rstrip("/") if own and local.is_loopback(parts.hostname or "") else None
    except ValueError:
        return None


def is_plain(path: str) -> bool:
    return path in ("", "/")
