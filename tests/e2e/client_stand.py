"""A gateway in front of the scripted engine, for clients that run as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.session import OpenSession

from .fakes import FakeScript

CLIENT_S = 90.0


class Stand:
    """One session at a gateway, and what came of it."""

    def __init__(self, gateway: Gateway, engine: Any, opened: Any) -> None:
        self.gateway, self.engine, self.base_url = gateway, engine, opened.base_url
        self._session_id = opened.session_id

    async def run(self, *command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
        """Runs a client that can reach nothing but this machine; its standard output."""
        nowhere = "http://127.0.0.1:9"
        own = {"PATH": os.environ["PATH"], "HOME": str(cwd), "NO_PROXY": "127.0.0.1"}
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env={**own, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, errors = await asyncio.wait_for(child.communicate(), CLIENT_S)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        assert child.returncode == 0, (out + errors).decode()[-3000:]
        return out.decode()

    async def finish(self) -> Any:
        """The session's rows; every token that was sampled is trained exactly once."""
        finished = await self.gateway.finish_session(self._session_id)
        trained = sum(int(row.loss_mask.sum()) for row in finished.rows)
        assert trained == finished.count.trained_tokens == sum(map(len, self.engine.said))
        return finished


@contextlib.asynccontextmanager
async def stand(
    folder: Path, say: Callable[[dict[str, Any], int], Any], model: str = "policy"
) -> AsyncIterator[Stand]:
    settings = GatewaySettings(run_dir=folder / "run", fsync=False)
    async with FakeScript(say) as engine:
        spec = ModelSpec.parse(f"{model}=vllm:{engine.url}#tiny")
        async with Gateway([spec], settings) as gateway:
            yield Stand(gateway, engine, await gateway.open_session(OpenSession()))
