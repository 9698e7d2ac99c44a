"""Runs the agent's script as ``__main__``, exactly as ``python rl_app.py`` would, but for one
thing: where it would start serving with uvicorn, it serves on the listener that it is given.

An agent that binds the contract's port itself (no uvicorn, or uvicorn in an own way) is found
out by that bind.
"""

from __future__ import annotations

import importlib
import os
import runpy
import socket
import sys
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

TICK_S = 1.0
"""Of a server that counts its requests or calls back: uvicorn's own would be a tenth of it."""

WARM = (
    "anyio._backends._asyncio",
    "asyncio",
    "concurrent.futures.thread",
    "encodings.idna",
    "uvicorn.lifespan.on",
)
"""Modules that serving imports late: in the zygote once instead of in every session."""

_real_bind = socket.socket.bind


class BindsItself(BaseException):
    """The script asks for the contract's port. Not an Exception: no agent catches it by chance."""


class ServesItself(BaseException):
    """The script runs a uvicorn server in an event loop of its own, which no fork survives."""


def run(
    folder: str, entry: str, port: int, obtain: Callable[[dict[str, Any]], socket.socket]
) -> None:
    """Returns when the script does. ``obtain`` is called where it would start to serve."""
    _catch_bind(port)
    _catch_uvicorn(obtain)
    path = os.path.join(folder, entry)
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")


def describe(error: BaseException | None) -> dict[str, Any]:
    """Why the script never came to serve, as a message for the runtime."""
    if isinstance(error, BindsItself):
        return {"binds": True}
    if isinstance(error, ServesItself):
        return {"unsafe": ["it runs its server in an event loop of its own"]}
    if error is None or isinstance(error, SystemExit):
        return {"ended": str(error.code) if error is not None else "0"}
    frames = error.__traceback__
    ours = os.path.dirname(__file__)
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith((ours, "<frozen")):
        frames = frames.tb_next
    return {"failed": "".join(traceback.format_exception(type(error), error, frames))[-16000:]}


def _catch_bind(port: int) -> None:
    def bind(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and len(address) > 1 and address[1] == port:
            raise BindsItself
        _real_bind(self, address)

    socket.socket.bind = bind  # type: ignore[method-assign, assignment]


def let_bind() -> None:
    """In a session every port is its own."""
    socket.socket.bind = _real_bind  # type: ignore[method-assign]


def _catch_uvicorn(obtain: Callable[[dict[str, Any]], socket.socket]) -> None:
    try:
        from uvicorn import Server
    except ImportError:
        return
    real_run, real_serve = Server.run, Server.serve

    def run_parked(self: Any, sockets: Any = None) -> Any:
        facts = _warm(self)
        listener = obtain(facts)
        Server.serve = real_serve
        return real_run(self, sockets=[listener])

    async def serve_unparked(self: Any, sockets: Any = None) -> None:
        raise ServesItself

    Server.run, Server.serve = run_parked, serve_unparked
    slow_down(Server)


def slow_down(server: Any) -> None:
    """uvicorn looks ten times a second whether to stop: a core, with a thousand idle sessions.
    Here whoever sets ``should_exit`` wakes it, and the date in its answers is made when it is
    asked for. So a timer in an idle agent's loop is the agent's own, and seen as work."""

    def get(self: Any) -> bool:
        return bool(self.__dict__.get("should_exit"))

    def set_(self: Any, value: bool) -> None:
        self.__dict__["should_exit"] = value
        wake = self.__dict__.get("_art_wake")
        if value and wake is not None:
            wake()

    async def main_loop(self: Any) -> None:
        import asyncio

        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._art_wake = lambda: loop.call_soon_threadsafe(woken.set)
        _date_when_asked(self.server_state)
        counts = self.config.limit_max_requests or self.config.callback_notify
        while not await self.on_tick(0):
            timer = loop.call_later(TICK_S, woken.set) if counts else None
            await woken.wait()
            if timer is not None:
                timer.cancel()
            woken.clear()

    server.should_exit = property(get, set_)
    server.main_loop = main_loop


def _date_when_asked(state: Any) -> None:
    def get(self: Any) -> list[tuple[bytes, bytes]]:
        now = formatdate(time.time(), usegmt=True).encode()
        kept = self.__dict__["default_headers"]
        return [(name, now if name == b"date" else value) for name, value in kept]

    def set_(self: Any, value: list[tuple[bytes, bytes]]) -> None:
        self.__dict__["default_headers"] = value

    state.__class__ = type("Dated", (type(state),), {"default_headers": property(get, set_)})


def _warm(server: Any) -> dict[str, Any]:
    """Pays once for what every session would pay; never fails, it is only a saving."""
    facts: dict[str, Any] = {}
    for name in WARM:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    try:
        server.config.load()
        if hasattr(server.config, "get_loop_factory"):
            server.config.get_loop_factory()
        warm = getattr(server.config.app, "warm", None)
        if callable(warm):
            warm()
    except Exception as error:  # noqa: BLE001 - the session will say it better
        facts["warm"] = repr(error)
    return facts
