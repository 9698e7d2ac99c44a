"""Small agents, deployed for real, and a client that talks to a session's address."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation import Agent, Compute, SessionSpec, Template

ASGI = """
import json, os, sys, traceback
import uvicorn

COUNTER = {"value": 0}

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"] == "/ping":
        answer = {"status": "Healthy"}
    else:
        space = dict(globals())
        try:
            exec(body.decode(), space)
            answer = {"value": space.get("value")}
        except BaseException as error:
            answer = {"error": type(error).__name__, "message": str(error)}
    data = json.dumps(answer, default=str).encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(data)).encode())]})
    await send({"type": "http.response.body", "body": data})

def run():
    uvicorn.run(app, host="127.0.0.1", port=8080, log_level="warning")
"""
"""An agent that runs the Python it is sent and answers the variable ``value``."""

PLAIN = ASGI + "\nif __name__ == '__main__':\n    run()\n"


async def call(compute: Compute, path: str, body: str = "") -> dict[str, Any]:
    reader, writer = await asyncio.open_connection(sock=await compute.connect())
    try:
        data = body.encode()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        answer = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
        await writer.wait_closed()
    parsed: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return parsed


async def ping(compute: Compute) -> str:
    return str((await call(compute, "/ping"))["status"])


async def run_inside(compute: Compute, code: str) -> Any:
    """The variable ``value`` after the code has run in the session; its error is raised."""
    answer = await call(compute, "/run", code)
    if "error" in answer:
        raise RuntimeError(f"{answer['error']}: {answer['message']}")
    return answer["value"]


async def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition never came true"
        await asyncio.sleep(0.01)


class Workshop:
    """Writes agents, prepares them, and closes every template at the end."""

    def __init__(self, folder: Path, level: str) -> None:
        self.folder, self.level = folder, level
        self.templates: list[Template] = []
        self._count = 0

    def agent(self, source: str = PLAIN, **changes: Any) -> Agent:
        self._count += 1
        folder = self.folder / f"agent{self._count}"
        folder.mkdir()
        (folder / "rl_app.py").write_text(source)
        values: dict[str, Any] = {
            "runtime_id": f"test-{self._count:010d}",
            "version": "1",
            "folder": folder,
            "entry": "rl_app.py",
            "python": sys.executable,
            "pool": 0,
        }
        if packages := os.environ.get("PYTHONPATH"):
            changes["env"] = {"PYTHONPATH": packages, **changes.get("env", {})}
        return Agent(**{**values, **changes})

    async def template(self, source: str = PLAIN, **changes: Any) -> Template:
        return await self.prepare(self.agent(source, **changes))

    async def prepare(self, agent: Agent) -> Template:
        template = await isolation.select(self.level).prepare(agent)
        self.templates.append(template)
        return template

    def spec(self, **env: str) -> SessionSpec:
        self._count += 1
        name = f"session-{self._count}"
        return SessionSpec(name, env, self.folder / f"{name}.log")

    async def close(self) -> None:
        for template in self.templates:
            await template.close()


def _levels() -> list[str]:
    """Those that ``auto`` may choose; ``test_microvm`` has the other."""
    usual = {name: one for name, one in isolation.drivers().items() if name != "microvm"}
    return [name for name, driver in usual.items() if driver.probe().available]


@pytest.fixture(params=_levels())
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def workshop(tmp_path: Path, level: str) -> AsyncIterator[Workshop]:
    shop = Workshop(tmp_path, level)
    yield shop
    await shop.close()


Ask = Callable[[Compute, str], Awaitable[Any]]
