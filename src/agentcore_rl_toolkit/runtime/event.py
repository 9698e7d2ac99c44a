"""What happens in the runtime, as server-sent events with resume ids.

One bounded ring holds the newest events; a connection is only a cursor into it. So a slow reader
costs no memory, and one that fell out of the ring, or comes from an earlier start of the server, is
told ``reset``: it may have missed something and has to list. Events are encoded once, when
published. Order of a connection: [reset], hello, then events.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from aiohttp import web

RING_EVENTS = 10_000
RING_BYTES = 64 * 1024 * 1024
"""Results ride along in their events, so the count alone would not bound the memory."""
INLINE_BYTES = 64 * 1024
KEEP_ALIVE_S = 15.0
WRITE_BYTES = 256 * 1024


class Event(NamedTuple):
    number: int
    text: bytes
    """Everything but the id line."""
    bucket: str | None
    key: str


class Events:
    def __init__(self, ring_events: int = RING_EVENTS, ring_bytes: int = RING_BYTES) -> None:
        self.epoch = secrets.token_hex(6)
        self.ring: deque[Event] = deque()
        self.ring_events, self.ring_bytes = ring_events, ring_bytes
        self.count = 0
        """Number of the newest event; the first one has 1."""
        self.closed = False
        self.readers = 0
        self._bytes = 0
        self._changed = asyncio.Event()

    # --- publishing ---------------------------------------------------------------------------

    def session(self, session_id: str, runtime_id: str, state: str, reason: str = "") -> None:
        data = {
            "session_id": session_id,
            "runtime_id": runtime_id,
            "state": state,
            "reason": reason,
        }
        self._publish("session", [json.dumps(data).encode()])

    def result(
        self,
        bucket: str,
        key: str,
        size: int,
        etag: str,
        session_id: str | None,
        content_type: str,
        body: bytes | None,
    ) -> None:
        """``body``: the object's bytes when they are at hand."""
        head = {"bucket": bucket, "key": key, "size": size, "etag": etag, "session_id": session_id}
        lines = [json.dumps(head).encode()]
        if body is not None and may_inline(content_type, body):
            lines.append(body)
        self._publish("result", lines, bucket, key)

    def _publish(
        self, kind: str, lines: list[bytes], bucket: str | None = None, key: str = ""
    ) -> None:
        text = b"event: " + kind.encode() + b"\n"
        text += b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"
        self.count += 1
        self.ring.append(Event(self.count, text, bucket, key))
        self._bytes += len(text)
        while len(self.ring) > self.ring_events or self._bytes > self.ring_bytes:
            self._bytes -= len(self.ring.popleft().text)
        self._wake()

    def close(self) -> None:
        """Ends every connection."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- reading ------------------------------------------------------------------------------

    def resume(self, last_id: str) -> tuple[int, bool]:
        """The number to go on after, and whether something may have been missed."""
        if not last_id:
            return self.count, False
        epoch, _, number = last_id.rpartition("-")
        known = epoch == self.epoch and number.isdecimal() and len(number) < 20
        known = known and int(number) <= self.count
        if not known or self.lost(int(number)):
            return self.count, True
        return int(number), False

    def lost(self, after: int) -> bool:
        oldest = self.ring[0].number if self.ring else self.count + 1
        return after + 1 < oldest

    def after(self, number: int) -> Iterator[Event]:
        """Newer events, oldest first; walks only the new part of the ring."""
        new = min(self.count - number, len(self.ring))
        return (self.ring[i] for i in range(len(self.ring) - new, len(self.ring)))

    def encode(self, event: Event) -> bytes:
        return f"id: {self.epoch}-{event.number}\n".encode() + event.text

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """``GET /_art/events?bucket=B&prefix=P``."""
        bucket, prefix = request.query.get("bucket"), request.query.get("prefix", "")
        cursor, missed = self.resume(request.headers.get("Last-Event-ID", ""))
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        self.readers += 1
        try:
            await response.write(self._greeting(cursor, missed))
            while not self.closed:
                changed = self._changed
                if self.lost(cursor):
                    cursor = self.count
                    await response.write(self._greeting(cursor, missed=True))
                batch, cursor = self._batch(cursor, bucket, prefix)
                if batch:
                    await response.write(batch)
                elif cursor == self.count and not self.closed:
                    await self._wait(changed, response)
        except ConnectionError:
            pass  # the reader left
        finally:
            self.readers -= 1
        return response

    def _greeting(self, cursor: int, missed: bool) -> bytes:
        where = f"id: {self.epoch}-{cursor}\n"
        reset = f"{where}event: reset\ndata: {{}}\n\n" if missed else ""
        return f"{reset}{where}event: hello\ndata: {{}}\n\n".encode()

    def _batch(self, cursor: int, bucket: str | None, prefix: str) -> tuple[bytes, int]:
        parts, size = [], 0
        for event in self.after(cursor):
            cursor = event.number
            if wanted(event, bucket, prefix):
                parts.append(self.encode(event))
                size += len(parts[-1])
                if size >= WRITE_BYTES:
                    break
        return b"".join(parts), cursor

    async def _wait(self, changed: asyncio.Event, response: web.StreamResponse) -> None:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await changed.wait()
        except TimeoutError:
            await response.write(b": keep-alive\n\n")


def may_inline(content_type: str, body: bytes) -> bool:
    return (
        len(body) <= INLINE_BYTES
        and content_type.partition(";")[0].strip().lower() == "application/json"
        and b"\n" not in body
        and b"\r" not in body
    )


def wanted(event: Event, bucket: str | None, prefix: str) -> bool:
    if event.bucket is None:
        return True
    return (bucket is None or event.bucket == bucket) and event.key.startswith(prefix)
