"""A gateway for synchronous programs: its own loop in its own thread.

The trainer's thread never runs the loop, so a long step does not stall agents.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from ..loop import new_loop
from .route import Pool
from .server import Gateway
from .setting import GatewaySettings, ModelSpec

T = TypeVar("T")


class GatewayThread:
    """``with GatewayThread([ModelSpec.parse("policy=vllm:http://…")]) as gateway: gateway.url``"""

    def __init__(
        self, models: Iterable[ModelSpec | Pool], settings: GatewaySettings | None = None
    ) -> None:
        self.gateway = Gateway(models, settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def admin_token(self) -> str:
        return self.gateway.settings.admin_token

    def start(self) -> GatewayThread:
        loop = self._loop = new_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        try:
            self.call(self.gateway.start())
        except BaseException:
            self.stop()
            raise
        return self

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Runs a coroutine on the gateway's loop and waits for it."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the gateway's thread is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def stop(self) -> None:
        """May be called twice."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        try:
            self.call(self.gateway.stop())
        finally:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def __enter__(self) -> GatewayThread:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
