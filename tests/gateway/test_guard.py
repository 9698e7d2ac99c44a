"""What a gateway stands from strangers: pages of a browser, odd keys, bodies without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

CALL = b'{"model":"policy","messages":[{"role":"user","content":"hi"}]}'


async def send(door: Any, head: str | bytes, body: bytes = b"") -> int:
    """The status of a raw request: no client library lets such headers pass."""
    head = head if isinstance(head, bytes) else head.encode("latin-1")
    reader, writer = await asyncio.open_connection("127.0.0.1", door.gateway.port)
    try:
        writer.write(head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        line = await asyncio.wait_for(reader.readline(), 20)
        return int(line.split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


PAGES = [
    pytest.param("Host: 127.0.0.1\r\nOrigin: https://attacker.invalid", id="another page"),
    pytest.param("Host: 127.0.0.1\r\nOrigin: null", id="a page in a sandbox"),
    pytest.param("Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site", id="an image of a page"),
    pytest.param("Host: attacker.invalid", id="a name that was rebound to loopback"),
    pytest.param("Host: [bad", id="a host that is none"),
]


@pytest.mark.parametrize("headers", PAGES)
async def test_an_open_gateway_answers_no_web_page_on_any_path(
    make_door: Any, headers: str
) -> None:
    door = await make_door(open=True)
    assert await send(door, f"GET /sessions HTTP/1.1\r\n{headers}") == 403
    call = "POST /sessions/chosen/v1/chat/completions HTTP/1.1"
    assert await send(door, f"{call}\r\n{headers}\r\nContent-Type: text/plain", CALL) == 403
    assert door.gateway.sessions.by_key("chosen") is None, "no session was opened"


async def test_an_open_gateway_answers_for_loopback_and_for_its_public_address(
    make_door: Any,
) -> None:
    door = await make_door(open=True, public_url="https://gateway.example:8443")
    for host in ("127.0.0.1:80", "localhost", "[::1]:9", "gateway.example:8443"):
        assert await send(door, f"GET /sessions HTTP/1.1\r\nHost: {host}") == 200


KEYS = [
    pytest.param(b"Authorization: Bearer \xff\xfe", id="bytes that are no text"),
    pytest.param(b"x-api-key: \xed\xa0\x80", id="half of a surrogate pair"),
    pytest.param(b"Authorization: Bearer " + b"a" * 8000, id="a long one"),
    pytest.param(b"Authorization: Basic Og==", id="another scheme"),
    pytest.param(b"X-None: ", id="none"),
]


@pytest.mark.parametrize("key", KEYS)
async def test_what_is_no_key_is_401_everywhere(door: Any, key: bytes) -> None:
    for line in (b"GET /sessions", b"GET /v1/models", b"POST /v1/chat/completions"):
        head = line + b" HTTP/1.1\r\nHost: localhost\r\n" + key
        assert await send(door, head, CALL if line.startswith(b"POST") else b"") == 401


async def test_a_session_is_found_by_its_key_and_never_by_its_id(door: Any) -> None:
    opened = await door.open(session_id="known-to-others")
    for guess in ("known-to-others", opened["key"][:-1], opened["key"] + "a", "", "%00"):
        head = f"POST /sessions/{guess}/v1/chat/completions HTTP/1.1\r\nHost: localhost"
        assert await send(door, head, CALL) in (401, 404)
    head = f"POST /sessions/{opened['key']}/v1/chat/completions HTTP/1.1\r\nHost: localhost"
    assert await send(door, head, CALL) == 200


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses", "completions"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000, id="nothing but brackets"),
        pytest.param(
            b'{"model":"policy","max_tokens":9,"messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            id="messages",
        ),
        pytest.param(
            CALL[:-1] + b',"tools":' + b'[{"a":' * 20_000 + b"1" + b"}]" * 20_000 + b"}", id="tools"
        ),
    ],
)
async def test_a_body_that_is_nested_without_end_is_400(door: Any, path: str, body: bytes) -> None:
    opened = await door.open()
    head = f"POST /sessions/{opened['key']}/v1/{path} HTTP/1.1\r\nHost: localhost"
    assert await send(door, head, body) == 400
