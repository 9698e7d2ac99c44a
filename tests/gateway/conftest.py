"""A gateway in front of a scripted engine, and a small client of its admin API."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec


def _load(name: str, path: Path | None = None) -> Any:
    """A fake beside this file, importable by name from every test."""
    path = path or Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FakeVLLM = _load("fake_vllm").FakeVLLM
_load("fake_tokens")
_load("golden_make", Path(__file__).parents[1] / "golden" / "make.py")


class Door:
    """What a trainer does with a gateway."""

    def __init__(self, gateway: Gateway, http: aiohttp.ClientSession) -> None:
        self.gateway, self.http = gateway, http
        self._clients: list[AsyncOpenAI] = []

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.gateway.settings.admin_token}"}
        async with self.http.request(
            method, self.gateway.url + path, json=body, headers=headers
        ) as reply:
            data = await reply.json(content_type=None)
            assert reply.status < 400, data
            return data

    async def open(self, **spec: Any) -> dict[str, Any]:
        return dict(await self.admin("POST", "/sessions", spec))

    async def finish(self, opened: dict[str, Any]) -> dict[str, Any]:
        return dict(await self.admin("POST", f"/sessions/{opened['session_id']}/finish", {}))

    def client(self, opened: dict[str, Any], **options: Any) -> AsyncOpenAI:
        options = {"base_url": opened["base_url"], "api_key": "EMPTY", "max_retries": 0} | options
        client = AsyncOpenAI(**options)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture
async def engine() -> AsyncIterator[Any]:
    async with FakeVLLM() as fake:
        yield fake


Make = Callable[..., Awaitable[Door]]


@pytest.fixture
async def make_door(tmp_path: Path, engine: Any) -> AsyncIterator[Make]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(models: list[Any] | None = None, **settings: Any) -> Door:
            wanted = GatewaySettings(run_dir=tmp_path / "run", fsync=False)
            wanted = dataclasses.replace(wanted, **settings)
            specs = models or [ModelSpec.parse(f"policy=vllm:{engine.url}#tiny")]
            gateway = await stack.enter_async_context(Gateway(specs, wanted))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            door = Door(gateway, http)
            stack.push_async_callback(door.close)
            return door

        yield make


@pytest.fixture
async def door(make_door: Make) -> Door:
    return await make_door()


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    async def wait(condition: Callable[[], Any], timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            await asyncio.sleep(0.005)

    return wait
