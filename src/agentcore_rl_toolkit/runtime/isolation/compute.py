"""A running session as the runtime holds it: a handle on its first process, and a channel to it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence

from . import usage, waiting
from .base import Stats
from .cgroup import WAITING, Group
from .channel import Channel, Closed
from .inside import tree, wire
from .leash import Leash, launch

logger = logging.getLogger(__name__)

END_S = 3.0
"""How long the session's init may take to end its tree before it is killed itself."""
SPARE_SOCKETS = 2
"""Asked for at least: the next connection then need not wait for the session's init."""
REDIAL_S = 0.02


class SessionCompute:
    """One for every level that is made of processes."""

    def __init__(
        self,
        handle: int,
        channel: Channel,
        ingress: tuple[str, int],
        *,
        listens_within_s: float,
        own_network: bool,
        own_processes: bool,
        group: Group,
        clean_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._ingress, self._listens_within_s = ingress, listens_within_s
        self.pid = usage.host_pid(handle)
        """0 when it ended before anybody looked."""
        self._handle, self._channel = handle, channel
        self._own_network, self._own_processes = own_network, own_processes
        self._group = group
        self._clean_up = clean_up
        self._reason = ""
        self.way = ""
        """How it came to be: "pool", "fork" or "exec"."""
        self.answered = False
        """Whether its agent has answered /ping already."""
        self._spare: list[socket.socket] = []
        """Sockets made inside and not used yet."""
        self._wanted = 0
        self._stocking = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._asked = 0
        self._stopped: frozenset[int] = frozenset()
        """Its processes, while it is frozen."""
        loop = asyncio.get_running_loop()
        self._dead = loop.create_future()
        loop.add_reader(handle, self._died)
        self._joined: asyncio.Future[None] | None = None
        self._gone = asyncio.ensure_future(self._finish())

    @property
    def ended(self) -> bool:
        return self._dead.done()

    def _died(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        if not self._dead.done():
            self._dead.set_result(None)

    @property
    def _there(self) -> bool:
        """Whether ``pid`` may be asked about: 0 is somebody else, for a control group ourselves."""
        return self._handle >= 0 and self.pid > 0

    def bound(self) -> None:
        """Into its control group, in the background. Once its agent is there: what is forked by
        somebody else does not come with its init."""
        if self._there:
            self._joined = asyncio.ensure_future(self._join())

    async def _join(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(WAITING, self._group.join, self.pid)
        except OSError as error:
            logger.error("pid=<%d> error=<%s> | cannot be bounded", self.pid, error)
            self._reason = self._reason or f"its limits could not be set: {error}"
            self._signal(signal.SIGKILL)

    async def _finish(self) -> str:
        await self._dead
        if self._joined is not None:
            await self._joined
        for message in self._channel.drain():
            if isinstance(message.get("ended"), str):
                self._reason = self._reason or message["ended"]
        self._channel.close()
        for sock in self._spare:
            sock.close()
        os.close(self._handle)
        self._handle, self._stopped = -1, frozenset()
        if self._group.ran_out():
            self._reason = f"out of memory (limit {self._group.limits.memory_mb} MB)"
        self._group.remove_later()
        await self._clean_up()
        return self._reason or "killed"

    async def wait(self) -> str:
        return await asyncio.shield(self._gone)

    async def kill(self) -> None:
        await self.end("stopped")

    async def end(self, reason: str) -> None:
        """``kill``, with the reason that ``wait`` then gives."""
        if self._gone.done():
            return
        self._reason = self._reason or reason
        if self._own_processes:
            # First process of its process namespace: the kernel ends the others with it.
            self._signal(signal.SIGKILL)
        else:
            await self._ask_to_end()
        await self.wait()

    async def _ask_to_end(self) -> None:
        try:
            await self._channel.send({"do": "end"})
            await asyncio.wait_for(asyncio.shield(self._dead), END_S)
        except (Closed, TimeoutError):
            # Stopped or stuck: what it leaves goes to the zygote, which sweeps.
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._handle >= 0:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    async def run(self, argv: Sequence[str], out: int, errors: int) -> Leash:
        self.thaw()
        return await launch(self._channel, argv, out, errors)

    async def listen_inside(self, port: int) -> socket.socket | None:
        return (await self._ask({"listen": port}))[0] if self._own_network else None

    async def connect(self) -> socket.socket:
        self.thaw()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._listens_within_s
        while True:
            sock = await self._take_socket() if self._own_network else socket.socket()
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, self._ingress)
                return sock
            except ConnectionRefusedError:
                sock.close()
                if loop.time() >= deadline:
                    raise
            except BaseException:
                sock.close()
                raise
            await asyncio.sleep(REDIAL_S)  # it has not come to listening yet

    async def _take_socket(self) -> socket.socket:
        """One that was made inside. Many that are wanted at once are asked for together."""
        self._wanted += 1
        try:
            while not self._spare:
                async with self._stocking:
                    if not self._spare:
                        count = min(max(self._wanted, SPARE_SOCKETS), wire.MAX_DESCRIPTORS)
                        self._spare += await self._ask({"sockets": count})
            return self._spare.pop()
        finally:
            self._wanted -= 1

    async def _ask(self, request: wire.Message) -> list[socket.socket]:
        """Sockets of the session's network, from its init."""
        async with self._asking:
            self._asked += 1
            try:
                await self._channel.send({**request, "n": self._asked})
                while True:
                    message, descriptors = await self._channel.receive()
                    if message.get("n") == self._asked and descriptors:
                        return [socket.socket(fileno=one) for one in descriptors]
                    for descriptor in descriptors:
                        os.close(descriptor)
                    if isinstance(message.get("ended"), str):
                        self._reason = self._reason or message["ended"]
                    elif message.get("n") == self._asked:
                        raise OSError(f"inside the session: {message.get('error')}")
            except Closed as error:
                raise OSError("the session has ended") from error

    @property
    def frozen(self) -> bool:
        return bool(self._stopped)

    def freeze(self) -> bool:
        """All but its init, which sleeps until it is asked for something."""
        if not self._stopped and self._there:
            self._stopped = tree.stop_below(self.pid)
        return self.frozen

    def thaw(self) -> None:
        stopped, self._stopped = self._stopped, frozenset()
        if self._there:
            tree.go_on_below(self.pid, stopped)

    def at_rest(self) -> bool:
        # Nobody sees what comes to it through the machine's own network.
        return self._own_network and self._there and waiting.for_others(self.pid)

    def cpu_s(self) -> float:
        return usage.cpu_s(self.pid) if self._there else 0.0

    def stats(self) -> Stats:
        if not self._there:
            return Stats(0, 0, 0.0)
        measured = usage.measure(self.pid)
        # The group has the files in memory, too, but nothing from before it was joined.
        memory = max(measured.memory_bytes, self._group.memory_bytes() or 0)
        return measured._replace(memory_bytes=memory)
