"""The framing of ``application/vnd.amazon.eventstream``, as far as a server of events writes it.

    4 total length │ 4 length of headers │ 4 CRC-32 of those eight bytes
    headers        │ payload             │ 4 CRC-32 of everything before

A header is one byte of name length, the name, the type 7 (text), two bytes of length, the text.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

from .wire import WireError

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_TEXT = 7


def event(kind: str, body: dict[str, Any]) -> bytes:
    return frame(
        {":message-type": "event", ":event-type": kind, ":content-type": "application/json"},
        json.dumps(body, ensure_ascii=False).encode(errors="replace"),
    )


def exception(error: WireError) -> bytes:
    """A refusal after the answer has begun. The model names it as members: lower case first."""
    name = error.name[0].lower() + error.name[1:]
    headers = {":message-type": "exception", ":exception-type": name}
    body = {"message": error.message, **error.members}
    return frame({**headers, ":content-type": "application/json"}, json.dumps(body).encode())


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + packed + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    raw, text = name.encode(), value.encode()
    return struct.pack(f">B{len(raw)}sBH", len(raw), raw, _TEXT, len(text)) + text
