"""One JSON object and a few file descriptors per packet, over a SOCK_SEQPACKET socket pair."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

MAX_BYTES = 128 * 1024
MAX_DESCRIPTORS = 16

Message = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Message, descriptors: list[int] | None = None) -> None:
    data = json.dumps(message).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"message of {len(data)} bytes; at most {MAX_BYTES}: a smaller environment"
        )
    socket.send_fds(sock, [data], descriptors or [])


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """The next message; None at the end. Descriptors are the caller's to close."""
    data, descriptors, _, _ = socket.recv_fds(
        sock, MAX_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
    )
    if not data:
        return None
    try:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("not an object")
    except ValueError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors
