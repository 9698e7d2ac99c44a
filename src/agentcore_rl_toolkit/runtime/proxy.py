"""A forward proxy for one session: CONNECT and absolute-form requests, to permitted hosts only.

The proxy resolves names itself and connects to the address it has checked, so a permitted name
that points at this machine or at a link-local address leads nowhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from .relay import Streams, join
from .rest import Traffic

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
DIAL_S = 20.0
_HOP = ("proxy-connection", "proxy-authorization", "connection", "keep-alive")


class Refused(Exception):
    """With the status line's text."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Proxy:
    def __init__(
        self, permits: Callable[[str, int], bool], session_id: str, traffic: Traffic | None = None
    ) -> None:
        self._permits, self._session_id = permits, session_id
        self._traffic = traffic or Traffic()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request or tunnel."""
        try:
            head = await _head(reader)
            host, port, forward = _understand(head)
            if not self._permits(host, port):
                logger.warning(
                    "session=<%s> host=<%s> port=<%d> | egress refused",
                    self._session_id,
                    host,
                    port,
                )
                raise Refused("403 Forbidden", f"this session may not reach {host}:{port}")
            with self._traffic.dialling():
                upstream = await _dial(host, port)
        except Refused as refused:
            body = f"{refused.why}\n".encode()
            writer.write(
                f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
            return
        if forward:
            upstream[1].write(forward)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await join((reader, writer), upstream, self._traffic)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise Refused("400 Bad Request", "no complete request head") from None
    if len(head) > MAX_HEAD_BYTES:
        raise Refused("431 Request Header Fields Too Large", "request head too large")
    return head


def _understand(head: bytes) -> tuple[str, int, bytes]:
    """Host, port, and what to send on: nothing for a tunnel."""
    lines = head[:-4].decode("latin-1").split("\r\n")
    try:
        method, target, version = lines[0].split(" ")
        tunnel = method == "CONNECT"
        url = urlsplit(f"//{target}" if tunnel else target)
        host, port = url.hostname, url.port or (443 if tunnel else 80)
    except ValueError:
        raise Refused("400 Bad Request", "not a proxy request") from None
    # The name is written to the log, which a terminal may show.
    if not host or not host.isprintable() or not (tunnel or url.scheme == "http"):
        raise Refused("400 Bad Request", "a proxy wants CONNECT or an absolute http:// target")
    if tunnel:
        return host, port, b""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [line for line in lines[1:] if line.partition(":")[0].lower() not in _HOP]
    # One request a connection: the next one might be meant for another host.
    request = [f"{method} {path} {version}", *kept, "Connection: close", "", ""]
    return host, port, "\r\n".join(request).encode("latin-1")


async def _dial(host: str, port: int) -> Streams:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(DIAL_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(info[4][0]) for info in found if _outside(str(info[4][0]))]
            if not addresses:
                raise Refused("403 Forbidden", f"{host} is an address of this machine")
            return await asyncio.open_connection(addresses[0], port)
    except (OSError, TimeoutError) as error:
        raise Refused("502 Bad Gateway", f"cannot reach {host}:{port}: {error}") from error


def _outside(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    return not (ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast)
