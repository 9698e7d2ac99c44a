"""The workers of one gateway as one of them sees the others.

A session lives in one worker, named by its key and, as well, by its id: both say the same number.
A request that reaches another worker is relayed to its owner over a unix socket, unchanged and as
it streams. While a worker is being replaced what is meant for it waits; a call that it took along
when it died is sent again as the retry that it is, unless the client has seen part of an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from aiohttp import web

from ..fault import Refusal

if TYPE_CHECKING:
    from ..route import Models

SECRET_HEADER = "x-art-worker"
RETRY_HEADER = "x-stainless-retry-count"
HOP_HEADERS = frozenset(
    {"host", "connection", "keep-alive", "content-length", "transfer-encoding", SECRET_HEADER}
)
BACK_S = 60.0
"""How long a request waits for a worker to come back."""
POLL_S = 0.2
CATCH_UP = aiohttp.ClientTimeout(total=2.0)


@dataclass(frozen=True)
class Place:
    """Which of how many workers this is, and how to reach the others."""

    index: int
    count: int
    folder: Path
    """Of the workers' sockets; nobody else can read it."""
    secret: str
    port: int
    """The one that clients use."""

    @property
    def journal(self) -> str:
        return f"gateway-{self.index}"

    def socket(self, index: int) -> Path:
        return self.folder / f"{index}.sock"


def owner_of(name: str, count: int) -> int:
    """The worker that a key or a session id belongs to."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % count


class Peers:
    def __init__(self, place: Place) -> None:
        self.place = place
        self._clients: dict[int, aiohttp.ClientSession] = {}

    @property
    def others(self) -> list[int]:
        return [i for i in range(self.place.count) if i != self.place.index]

    def is_internal(self, request: web.BaseRequest) -> bool:
        """Sent by another worker: not to be passed on again."""
        given = request.headers.get(SECRET_HEADER, "")
        return hmac.compare_digest(
            given.encode(errors="surrogateescape"), self.place.secret.encode()
        )

    def is_mine(self, name: str) -> bool:
        return owner_of(name, self.place.count) == self.place.index

    def mint_key(self) -> str:
        """A new session key that names this worker."""
        while not self.is_mine(key := "sk-art-" + secrets.token_urlsafe(24)):
            pass
        return key

    def _client(self, index: int) -> aiohttp.ClientSession:
        client = self._clients.get(index)
        if client is None:
            connector = aiohttp.UnixConnector(str(self.place.socket(index)), limit=0)
            client = self._clients[index] = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                read_bufsize=1 << 18,
            )
        return client

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def catch_up(self, models: Models, token: str) -> None:
        """What a worker that replaces another must know of its models: versions and pauses."""
        for index in self.others:
            if not self.place.socket(index).exists():
                continue
            headers = {SECRET_HEADER: self.place.secret, "authorization": f"Bearer {token}"}
            try:
                async with self._client(index).get(
                    "http://worker/admin/models", headers=headers, timeout=CATCH_UP
                ) as reply:
                    told = msgspec.json.decode(await reply.read())["models"]
            except (aiohttp.ClientError, TimeoutError, OSError, KeyError):
                continue
            for model in told:
                pool = models.pools.get(model["model"])
                if pool is not None:
                    pool.version = model["version"]
                    if model["paused"]:
                        pool.gate.clear()
            return

    # --- one request to one worker ------------------------------------------------------------

    async def send(
        self, index: int, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """A worker's reply; waits for a worker that is being replaced."""
        deadline, headers = time.monotonic() + BACK_S, dict(headers)
        headers[SECRET_HEADER] = self.place.secret
        while True:
            try:
                return await self._client(index).request(
                    method, f"http://worker{path}", data=body, headers=headers
                )
            except (aiohttp.ClientConnectorError, FileNotFoundError):
                pass
            except (aiohttp.ClientConnectionError, ConnectionError):
                headers = as_retry(headers)
            if time.monotonic() > deadline:
                raise Refusal(503, "the worker of this session does not come back")
            await asyncio.sleep(0.05)

    async def ask(
        self, index: int, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        reply = await self.send(index, method, path, body, headers)
        async with reply:
            return reply.status, await reply.read()

    async def forward(self, request: web.BaseRequest, index: int) -> web.StreamResponse:
        """Relays a request to its owner; a client that goes away takes the relayed call along."""
        work = asyncio.ensure_future(self._copy(request, index))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=POLL_S)
                if not work.done() and (
                    request.transport is None or request.transport.is_closing()
                ):
                    raise ConnectionResetError("the client disconnected")
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        return work.result()

    async def _copy(self, request: web.BaseRequest, index: int) -> web.StreamResponse:
        body = await request.read()
        reply = await self.send(
            index, request.method, request.path_qs, body, passed_on(request.headers)
        )
        async with reply:
            response = web.StreamResponse(status=reply.status, headers=passed_on(reply.headers))
            await response.prepare(request)
            try:
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
            except aiohttp.ClientError:
                # part of the answer is out: a broken connection is the only honest end
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_HEADERS}


def as_retry(headers: Mapping[str, str]) -> dict[str, str]:
    """The same request, saying that it was sent before."""
    out = {name: value for name, value in headers.items() if name.lower() != RETRY_HEADER}
    count = next((v for k, v in headers.items() if k.lower() == RETRY_HEADER), "0")
    out[RETRY_HEADER] = str(int(count) + 1 if count.isdecimal() else 1)
    return out
