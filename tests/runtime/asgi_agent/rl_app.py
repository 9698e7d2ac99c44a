"""A light agent for tests of the runtime: bare ASGI, does what its payload says.

{"status": 500, "body": "text"}    answers so
{"die": code}                      ends its process in mid-request
{"wait": name}                     answers once another call said {"open": name}
{"stream": [parts], "wait": name}  first part at once, the others after the gate opens
{"size": n}                        answers n bytes
{"busy": true | false}             what /ping says from now on
{"say": "text"}                    prints it, and goes on as below
anything else                      echoes headers, body, pid and the number of calls
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import uvicorn

calls = 0
busy = False
gates: dict[str, asyncio.Event] = {}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/ping":
        await answer(send, {"status": "HealthyBusy" if busy else "Healthy"})
        return
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    await invoked(scope, b"".join(parts), send)


async def invoked(scope: Any, body: bytes, send: Any) -> None:
    global calls, busy
    calls += 1
    payload = json.loads(body) if body[:1] == b"{" else {}
    if "die" in payload:
        os._exit(payload["die"])
    if "open" in payload:
        gates.setdefault(payload["open"], asyncio.Event()).set()
    gate = gates.setdefault(payload["wait"], asyncio.Event()) if "wait" in payload else None
    if "say" in payload:
        print(payload["say"], flush=True)
    if "busy" in payload:
        busy = payload["busy"]
    if "stream" in payload:
        await stream(payload["stream"], gate, send)
        return
    if gate is not None:
        await gate.wait()
    if "size" in payload:
        await answer(send, b"x" * payload["size"])
    elif "status" in payload:
        await answer(send, payload["body"].encode(), payload["status"])
    else:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        shown = {"headers": headers, "length": len(body), "pid": os.getpid(), "calls": calls}
        await answer(send, {**shown, "env": dict(os.environ), "body": body[:1000].decode()})


async def stream(parts: list[str], gate: asyncio.Event | None, send: Any) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number, part in enumerate(parts):
        if number == 1 and gate is not None:
            await gate.wait()
        data = f"data: {part}\n\n".encode()
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body"})


async def answer(send: Any, body: Any, status: int = 200) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(raw))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


if __name__ == "__main__":
    print("agent starts", flush=True)
    uvicorn.run(app, port=8080, log_level="warning")
