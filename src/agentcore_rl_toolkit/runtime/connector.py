"""HTTP to the agent of one session, over connections that its compute makes.

No address and no listener of ours stand between: what a session listens on is in a network of its
own. Every request passes here first, also one on a connection that is open already, so this is
where a frozen session is thawed.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from .isolation.base import Compute

URL = "http://127.0.0.1:8080"
"""As the agent sees itself, whatever its network."""
KEEP_S = 3.0
"""Below uvicorn's 5 s: an idle connection is dropped by us before the agent drops it under us."""
CONNECT_S = 10.0


class SessionConnector(aiohttp.BaseConnector):
    def __init__(self, compute: Compute) -> None:
        super().__init__(limit=0, keepalive_timeout=KEEP_S)
        self._compute = compute

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        self._compute.thaw()
        return await super().connect(*args, **kwargs)

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
        sock = await self._compute.connect()
        try:
            _, protocol = await self._loop.create_connection(self._factory, sock=sock)
        except BaseException:
            sock.close()
            raise
        return protocol


def open_http(compute: Compute) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=SessionConnector(compute),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )
