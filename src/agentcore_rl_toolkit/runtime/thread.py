"""A runtime in a thread of its own, for programs and tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

from ..loop import new_loop
from .server import RuntimeServer


class RuntimeThread:
    """``with RuntimeThread(port=0, home=tmp) as runtime: runtime.url``; takes what RuntimeServer
    takes."""

    def __init__(self, *, port: int = 0, **options: Any) -> None:
        self.server = RuntimeServer(port=port, **options)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="art-runtime", daemon=True)

    @property
    def url(self) -> str:
        return self.server.url

    def start(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def stop(self) -> None:
        if self._loop is not None and self._ended is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs a function in the runtime's loop: its parts are not thread-safe."""
        assert self._loop is not None

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self.server.start()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that started it
            self._error = error
            return
        finally:
            self._ready.set()
        await self._ended.wait()
        await self.server.stop()
