"""A relay between two parts that misbehaves on order.

It reads whole requests (HTTP/1.1, one at a time on a connection), lets a rule decide what becomes
of each, and passes everything else byte for byte. Rules hold for a while and hit a share of the
requests; what they did is counted in ``done``.

    status        answered here with an error of the service, never sent on
    cut_request   the connection ends before the request is sent on
    cut_answer    it ends after some bytes of the answer
    lose_answer   the request is carried out, nothing of its answer comes back
    late          the answer comes seconds later
    slow          the answer trickles
    duplicate     the request arrives twice; the second answer goes nowhere
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import random
import time
from collections.abc import Mapping
from typing import Literal

Kind = Literal["status", "cut_request", "cut_answer", "lose_answer", "late", "slow", "duplicate"]
MAX_BYTES = 32 << 20
SLOW_BYTES, SLOW_S = 256, 0.02


@dataclasses.dataclass(frozen=True)
class Rule:
    kind: Kind
    share: float
    """Of the requests."""
    until: float
    """By the monotonic clock."""
    reply: bytes = b""
    """Of ``status``: the whole answer."""
    after: int = 0
    """Of ``cut_answer``: bytes that pass first."""
    seconds: float = 0.0
    """Of ``late``."""
    path: str = ""
    """Only requests whose path begins so."""


@dataclasses.dataclass(frozen=True)
class Request:
    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.partition(b"\r\n")[0].decode("latin-1")

    @property
    def path(self) -> str:
        return self.line.partition(" ")[2]

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == wanted:
                return value.strip().decode("latin-1")
        return None


def error_reply(status: int, body: str, headers: Mapping[str, str] | None = None) -> bytes:
    given = {"content-type": "application/json", **(headers or {}), "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    head = f"HTTP/1.1 {status} Fault\r\n{lines}content-length: {len(body.encode())}\r\n\r\n"
    return (head + body).encode()


class Link:
    """One relay; ``port`` is where it listens, ``target`` where it leads."""

    def __init__(self, name: str, target: int, seed: int) -> None:
        self.name, self.target, self.port = name, target, 0
        self.rules: list[Rule] = []
        self.done: collections.Counter[str] = collections.Counter()
        self.requests = 0
        self._random = random.Random(f"{seed}/{name}")
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._copies: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in [*self._connections, *self._copies]:
            task.cancel()
        await asyncio.gather(*self._connections, *self._copies, return_exceptions=True)

    def cut_all(self) -> None:
        """Every connection there is, in the middle of whatever it does."""
        self.done["cut_all"] += len(self._connections)
        for task in self._connections:
            task.cancel()

    def _chosen(self, request: Request) -> Rule | None:
        now = time.monotonic()
        self.rules = [rule for rule in self.rules if rule.until > now]
        for rule in self.rules:
            if self._random.random() < rule.share and applies(rule, request):
                return rule
        return None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            await end(writer)
            self._connections.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: Upstream | None = None
        try:
            while (request := await read_request(reader)) is not None:
                self.requests += 1
                rule = self._chosen(request)
                if rule is not None:
                    self.done[rule.kind] += 1
                    if rule.kind == "status":
                        writer.write(rule.reply)
                        await writer.drain()
                        return
                    if rule.kind == "cut_request":
                        return
                    if rule.kind == "duplicate":
                        self._copy(request)
                if upstream is None:
                    upstream = await Upstream.open(self.target, writer)
                await upstream.send(request, rule)
        finally:
            if upstream is not None:
                await upstream.close()

    def _copy(self, request: Request) -> None:
        task = asyncio.create_task(deliver(self.target, request))
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)


class Upstream:
    """The connection to the part, and the answers that come from it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        self._reader, self._writer, self._client = reader, writer, client
        self._rule: Rule | None = None
        self._passed = 0
        self._pump = asyncio.create_task(self._answers())

    @classmethod
    async def open(cls, port: int, client: asyncio.StreamWriter) -> Upstream:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer, client)

    async def send(self, request: Request, rule: Rule | None) -> None:
        self._rule, self._passed = rule, 0
        self._writer.write(request.head + request.body)
        await self._writer.drain()

    async def close(self) -> None:
        self._pump.cancel()
        self._writer.close()
        await asyncio.gather(self._pump, return_exceptions=True)
        await end(self._writer)

    async def _answers(self) -> None:
        try:
            while block := await self._reader.read(65536):
                await self._pass(block)
        except (OSError, EOFError):
            pass
        finally:
            self._client.close()

    async def _pass(self, block: bytes) -> None:
        rule = self._rule
        if rule is None or rule.kind == "duplicate":
            await self._give(block)
        elif rule.kind == "late":
            if self._passed == 0:
                await asyncio.sleep(rule.seconds)
            await self._give(block)
        elif rule.kind == "slow":
            for at in range(0, len(block), SLOW_BYTES):
                await self._give(block[at : at + SLOW_BYTES])
                await asyncio.sleep(SLOW_S)
        elif rule.kind == "cut_answer":
            await self._give(block[: max(0, rule.after - self._passed)])
            if self._passed >= rule.after:
                raise EOFError
        else:
            raise EOFError

    async def _give(self, block: bytes) -> None:
        self._passed += len(block)
        self._client.write(block)
        await self._client.drain()


def applies(rule: Rule, request: Request) -> bool:
    """A twin of a request may arrive only where somebody can tell that it is one."""
    if not request.path.startswith(rule.path):
        return False
    if rule.kind != "duplicate":
        return True
    return bool(request.header("idempotency-key")) or "/invocations" in request.line


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request = Request(head, b"")
    if (request.header("transfer-encoding") or "").lower() == "chunked":
        return Request(head, await _read_chunks(reader))
    length = int(request.header("content-length") or 0)
    if length > MAX_BYTES:
        raise EOFError
    return Request(head, await reader.readexactly(length))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)]
        if size == 0:
            return b"".join(parts)


async def deliver(port: int, request: Request) -> None:
    """A request whose answer nobody reads; the part is told that nobody else will come."""
    head = request.head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        writer.write(head + request.body)
        while await reader.read(65536):
            pass
    except OSError:
        pass
    finally:
        await end(writer)


async def end(writer: asyncio.StreamWriter) -> None:
    """With what was written, but without waiting for a peer that does not read."""
    writer.close()
    try:
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
