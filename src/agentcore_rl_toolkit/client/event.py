"""The local runtime's events: results and deaths of sessions, as they happen.

``Parser`` splits server-sent events on newline bytes only, because a token may hold U+2028.
``Stream`` keeps one connection open in one thread, resumes after the last event it saw, and says
``hello`` after every connection, so that its owner lists once: what was missed is found then.
A runtime that was there and whose port stays closed is told as ``gone``.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import local

logger = logging.getLogger(__name__)

SERVICE = "agentcore-rl-toolkit"
CONNECT_S = 5.0
SILENCE_S = 45.0
"""Three missed keep-alives: the connection is dead."""
AGAIN_S, AGAIN_MAX_S = 0.2, 5.0
GONE_S = 10.0
"""A runtime whose port has been closed for so long is not being restarted: it is dead."""


class Event(NamedTuple):
    kind: str
    data: bytes
    id: str


class Parser:
    def __init__(self) -> None:
        self._rest = b""
        self._kind, self._id = "message", ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> Event | None:
        line = line.removesuffix(b"\r")
        if not line:
            event = Event(self._kind, b"\n".join(self._data), self._id) if self._data else None
            self._kind, self._data = "message", []
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._kind = value.decode(errors="replace")
        elif field == b"id":
            self._id = value.decode(errors="replace")
        return None


class Stream:
    def __init__(
        self, endpoint: str, bucket: str, prefix: str, on_event: Callable[[Event], None]
    ) -> None:
        self._url = urllib.parse.urlsplit(endpoint)
        self._query = urllib.parse.urlencode({"bucket": bucket, "prefix": prefix})
        self._on_event = on_event
        self.bucket, self.prefix = bucket, prefix
        self.credentials: Any = None
        self.live = False
        self._last_id = ""
        self._closed = threading.Event()
        self._sock: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="art-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def covers(self, bucket: str, key: str) -> bool:
        return self.live and bucket == self.bucket and key.startswith(self.prefix)

    def close(self) -> None:
        self._closed.set()
        self.live = False
        sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended by itself
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(1.0)

    def get(self, path: str) -> Any:
        """One of the runtime's own documents; None when it is not there."""
        connection = self._connect(CONNECT_S)
        try:
            path = self._url.path.rstrip("/") + path
            connection.request("GET", path, headers=self._signed(path))
            response = connection.getresponse()
            return json.loads(response.read()) if response.status == 200 else None
        finally:
            connection.close()

    def _signed(self, path: str) -> dict[str, str]:
        url = f"{self._url.scheme}://{self._url.netloc}{path}"
        return local.sign(url, found=self.credentials)

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = (
            http.client.HTTPSConnection
            if self._url.scheme == "https"
            else http.client.HTTPConnection
        )
        return kind(self._url.hostname or "127.0.0.1", self._url.port, timeout=timeout_s)

    def _run(self) -> None:
        pause = AGAIN_S
        refused: float | None = None
        while not self._closed.is_set():
            started = time.monotonic()
            try:
                about = self.get("/_art/")
                if not isinstance(about, dict) or about.get("service") != SERVICE:
                    raise OSError("another service answers there")
                self._read()
                refused = None
            except (OSError, ValueError, http.client.HTTPException) as error:
                logger.debug("endpoint=<%s> | no events: %s", self._url.netloc, error)
                if not isinstance(error, ConnectionRefusedError) or not self._last_id:
                    refused = None
                elif refused is None:
                    refused = started
                elif started - refused > GONE_S:
                    self._on_event(Event("gone", b"", ""))
            if self.live:
                self.live = False
                self._on_event(Event("closed", b"", ""))
            pause = AGAIN_S if time.monotonic() - started > 10 else min(AGAIN_MAX_S, pause * 2)
            self._closed.wait(pause)

    def _read(self) -> None:
        connection = self._connect(SILENCE_S)
        try:
            headers = {"Accept": "text/event-stream"}
            if self._last_id:
                headers["Last-Event-ID"] = self._last_id
            path = f"{self._url.path.rstrip('/')}/_art/events?{self._query}"
            connection.request("GET", path, headers=headers | self._signed(path))
            self._sock = connection.sock
            if self._closed.is_set():
                return
            response = connection.getresponse()
            if response.status != 200:
                raise OSError(f"events answered {response.status}")
            parser = Parser()
            while not self._closed.is_set() and (chunk := response.read1(65536)):
                for event in parser.feed(chunk):
                    self._take(event)
        finally:
            self._sock = None
            connection.close()

    def _take(self, event: Event) -> None:
        self._last_id = event.id or self._last_id
        if event.kind == "hello":
            self.live = True
        try:
            self._on_event(event)
        except Exception:
            logger.exception("event=<%s> | could not be handled", event.kind)
