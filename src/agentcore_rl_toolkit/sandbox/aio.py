"""The same for programs with an event loop: every call is one of ``Sandbox`` in a thread.

Cancelling a call has the same effect as Ctrl-C has there: a command is ended with all that it
started, a sandbox that was being started is stopped.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

from .client import START_S, SandboxClient
from .execution import ExecResult, Execution
from .sandbox import Command, Sandbox, finish

T = TypeVar("T")


class AsyncSandboxClient:
    """Takes what ``SandboxClient`` takes. ``max_concurrent``: calls that are under way at once."""

    def __init__(self, runtime_arn: str, *, max_concurrent: int = 128, **options: Any) -> None:
        self.client = SandboxClient(runtime_arn, max_connections=max_concurrent, **options)
        self._threads = ThreadPoolExecutor(max_concurrent, thread_name_prefix="art-sandbox")

    async def start(
        self, session_id: str | None = None, *, timeout: float = START_S
    ) -> AsyncSandbox:
        call = functools.partial(self.client.start, session_id, timeout=timeout)
        started = self._threads.submit(call)
        try:
            return AsyncSandbox(await asyncio.wrap_future(started), self._threads)
        except asyncio.CancelledError:
            started.add_done_callback(_close_unwanted)
            raise

    async def close(self) -> None:
        """Ends every sandbox of this client."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.client.close()
        self._threads.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())


class AsyncSandbox:
    """Made by ``AsyncSandboxClient.start``."""

    def __init__(self, sandbox: Sandbox, threads: ThreadPoolExecutor) -> None:
        self.sandbox, self._threads = sandbox, threads

    @property
    def session_id(self) -> str:
        return self.sandbox.session_id

    async def exec(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        check: bool = False,
    ) -> ExecResult:
        running: list[Execution] = []

        def call() -> ExecResult:
            execution = self.sandbox.stream(command, cwd=cwd, env=env, timeout=timeout)
            running.append(execution)
            return finish(execution, check)

        try:
            return await self._run(call)
        except asyncio.CancelledError:
            for execution in running:
                execution.abort()
            raise

    async def upload(self, source: bytes | str | os.PathLike[str], path: str) -> None:
        await self._run(functools.partial(self.sandbox.upload, source, path))

    async def download(self, path: str, target: str | os.PathLike[str] | None = None) -> bytes:
        return await self._run(functools.partial(self.sandbox.download, path, target))

    async def close(self) -> None:
        await self._run(self.sandbox.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _close_unwanted(started: Future[Sandbox]) -> None:
    if not started.cancelled() and started.exception() is None:
        started.result().close()
