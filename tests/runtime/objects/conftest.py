"""The object server on a port of its own, in a thread, and boto3 to go with it."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from aiohttp import web
from botocore.config import Config

from agentcore_rl_toolkit.runtime.objects import (
    ROUTE,
    RUNNER_OPTIONS,
    ObjectServer,
    ObjectStore,
    Scope,
    StoredObject,
)


class Service:
    """``with Service(folder) as service:`` serves ``folder`` at ``service.url``."""

    def __init__(self, folder: Path, **store_options: Any) -> None:
        self.folder = folder
        self.store_options = store_options
        self.scope: Scope | None = None
        """Given to every request while it is set."""
        self.puts: list[StoredObject] = []
        self.refused: list[str] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def on_loop(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Sends the path as it is; underscores in header names stand for dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            head = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, head)
            response = connection.getresponse()
            content = response.read()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, content
        finally:
            connection.close()

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.store = ObjectStore(self.folder, **self.store_options)
        self.server = ObjectServer(
            self.store, self.puts.append, lambda scope, what: self.refused.append(what)
        )

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self.server.handle(request, self.scope)

        app = web.Application()
        app.router.add_route("*", ROUTE, handle)
        runner = web.AppRunner(app, **RUNNER_OPTIONS)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port: int = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()
        self.store.close()


def s3_client(url: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"max_attempts": 1}),
    )


@pytest.fixture(scope="session")
def serve() -> type[Service]:
    """To start services by hand, on a folder of one's choice."""
    return Service


@pytest.fixture(scope="session")
def connect() -> Callable[[str], Any]:
    return s3_client


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """With one bucket, ``bkt``."""
    with Service(tmp_path / "objects") as running:
        running.on_loop(lambda: running.store.create_bucket("bkt"))
        yield running


@pytest.fixture
def s3(service: Service) -> Iterator[Any]:
    client = s3_client(service.url)
    yield client
    client.close()
