"""One worker process of a gateway: ``python -m agentcore_rl_toolkit.gateway.crew.worker FD``.

The descriptor is its channel to the parent: first the plan of what to serve, then clients'
connections. It says ``ready`` once, when it has taken over what its journal has. It ends when the
parent says so, and when the parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import pickle
import shutil
import signal
import socket
import sys
from dataclasses import dataclass

from ...loop import new_loop
from ..server import Gateway
from ..setting import GatewaySettings, ModelSpec
from .peers import Place

MAX_PLAN_BYTES = 128 << 10
MAX_FDS = 64
READY = b"ready"
CONNECTION = b"c"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What the parent tells a worker."""

    models: list[ModelSpec]
    settings: GatewaySettings
    place: Place
    log_level: int = logging.WARNING


async def run(plan: Plan, channel: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is the parent's to answer
    adopting: set[asyncio.Task[None]] = set()
    orphaned = False

    async with Gateway(plan.models, plan.settings, plan.place) as gateway:

        def receive() -> None:
            nonlocal orphaned
            try:
                data, fds, _, _ = socket.recv_fds(channel, len(CONNECTION), MAX_FDS)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data, fds = b"", []
            if not data:
                orphaned = True
                stop.set()
            for fd in fds:
                task = loop.create_task(gateway.adopt(accepted(fd)))
                adopting.add(task)
                task.add_done_callback(adopting.discard)

        channel.setblocking(False)
        loop.add_reader(channel.fileno(), receive)
        with contextlib.suppress(OSError):
            channel.send(READY)
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        await stop.wait()
        loop.remove_reader(channel.fileno())
    if orphaned:
        shutil.rmtree(plan.place.folder, ignore_errors=True)  # nobody else is left to do it


def accepted(fd: int) -> socket.socket:
    connection = socket.socket(fileno=fd)
    connection.setblocking(False)
    return connection


def main(fd: int) -> None:
    with socket.socket(fileno=fd) as channel:
        plan: Plan = pickle.loads(channel.recv(MAX_PLAN_BYTES))
        logging.basicConfig(level=plan.log_level)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run(plan, channel))


if __name__ == "__main__":
    main(int(sys.argv[1]))
