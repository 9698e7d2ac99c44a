"""Where a handler's time goes, told by the agent itself: the whole call, and its rewards in it.

A ``Clock`` belongs to one rollout and reaches the rewards through the context, also through
``asyncio.to_thread``; a thread that the handler starts without its context is not seen. Time in
which several rewards run, inside or beside each other, counts once. Without a clock, in production
or in a notebook, nothing is measured.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CLOCK: contextvars.ContextVar[Clock | None] = contextvars.ContextVar("art_clock", default=None)


class Clock:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._rewards = 0
        self._since = 0.0
        self._reward_s = 0.0

    def read(self) -> dict[str, float]:
        """As it is stored with the result."""
        spent = time.monotonic() - self._began
        return {"handler_s": round(spent, 6), "reward_s": round(self._reward_s, 6)}

    def __enter__(self) -> None:
        with self._lock:
            if not self._rewards:
                self._since = time.monotonic()
            self._rewards += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._rewards -= 1
            if not self._rewards:
                self._reward_s += time.monotonic() - self._since


@contextmanager
def running() -> Iterator[Clock]:
    """A clock that runs, for the rewards that this context computes."""
    clock = Clock()
    token = _CLOCK.set(clock)
    try:
        yield clock
    finally:
        _CLOCK.reset(token)


def timed(reward: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of its own kind, counted as reward where a clock runs."""
    if inspect.iscoroutinefunction(reward):

        @functools.wraps(reward)
        async def later(*args: Any, **kwargs: Any) -> Any:
            clock = _CLOCK.get()
            if clock is None:
                return await reward(*args, **kwargs)
            with clock:
                return await reward(*args, **kwargs)

        return later

    @functools.wraps(reward)
    def now(*args: Any, **kwargs: Any) -> Any:
        clock = _CLOCK.get()
        if clock is None:
            return reward(*args, **kwargs)
        with clock:
            return reward(*args, **kwargs)

    return now
