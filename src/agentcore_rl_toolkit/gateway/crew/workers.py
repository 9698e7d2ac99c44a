"""A gateway of several processes behind one port: the parent that keeps them running.

The parent accepts, looks at the head of a connection's first request without taking it, and hands
the connection to the worker that the session's key names; it never touches a request. A worker
that dies is started again and takes its sessions over from its journal, and connections that are
meant for it wait meanwhile, so clients see one broken call and no refused one.

Owns the listening socket, the processes and the folder of their sockets. When the parent goes, its
workers end by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

from ...errors import ConfigError, GatewayError
from ...local import home
from ..recover import check_writers
from ..setting import GatewaySettings, ModelSpec
from .peers import Place, owner_of
from .worker import CONNECTION, READY, Plan

logger = logging.getLogger(__name__)

START_S = 120.0
STOP_S = 30.0
PEEK_BYTES = 16 << 10
FIRST_BYTES_S = 75.0
"""How long an accepted connection may say nothing."""
QUICK_S = 5.0
MAX_QUICK_DEATHS = 5
"""A worker that dies at once, so many times in a row, will not live."""

_KEY_IN_PATH = re.compile(rb"^[A-Z]+ /sessions/([^/ ?]+)/")
_KEY_IN_HEADER = re.compile(rb"\r\n(?:authorization: *bearer|x-api-key:) *([^\r ]+)", re.IGNORECASE)


def name_in(head: bytes) -> str | None:
    """The session key, or id, that a request's first bytes name."""
    found = _KEY_IN_PATH.search(head) or _KEY_IN_HEADER.search(head)
    return found.group(1).decode("latin-1") if found else None


class Worker:
    """One process, and its successors."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        self._channel: socket.socket | None = None
        self._ready = asyncio.Event()
        self._waiting: deque[socket.socket] = deque()
        self._quick = 0

    @property
    def index(self) -> int:
        return self.plan.place.index

    async def start(self) -> None:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise GatewayError(f"several workers need Linux ({error}): use one") from error
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"{__package__}.worker", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
            )
        self._channel = ours
        ours.send(pickle.dumps(self.plan))
        async with asyncio.timeout(START_S):
            said = await loop.sock_recv(ours, len(READY))
        if said != READY:
            raise GatewayError(f"worker {self.index} did not start; see its log")
        self._ready.set()
        self._flush()

    async def keep(self) -> None:
        """Replaces the process whenever it dies."""
        while True:
            assert self.process is not None, "started before it is kept"
            born = time.monotonic()
            code = await self.process.wait()
            self._lost()
            self._quick = self._quick + 1 if time.monotonic() - born < QUICK_S else 0
            if self._quick >= MAX_QUICK_DEATHS:
                raise GatewayError(f"worker {self.index} died {self._quick} times at once")
            logger.warning("worker=<%d> code=<%s> | died, starting again", self.index, code)
            self.restarts += 1
            await asyncio.sleep(0.5 * self._quick)
            try:
                await self.start()
            except (GatewayError, TimeoutError, OSError):
                logger.exception("worker=<%d> | did not start", self.index)
                if self.process.returncode is None:
                    self.process.kill()

    def give(self, connection: socket.socket) -> None:
        """Hands a connection over, now or when the worker is back."""
        self._waiting.append(connection)
        if self._ready.is_set():
            self._flush()

    def _flush(self) -> None:
        channel = self._channel
        while self._waiting and channel is not None and self._ready.is_set():
            connection = self._waiting[0]
            try:
                socket.send_fds(channel, [CONNECTION], [connection.fileno()])
            except BlockingIOError:
                asyncio.get_running_loop().call_later(0.005, self._flush)
                return
            except OSError:
                return  # it has died: its successor gets them
            self._waiting.popleft().close()

    def _lost(self) -> None:
        self._ready.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def stop(self) -> None:
        process = self.process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._lost()
        for connection in self._waiting:
            connection.close()


class Workers:
    """``async with Workers(models, settings, 4) as workers: workers.url``"""

    def __init__(
        self, models: Iterable[ModelSpec], settings: GatewaySettings | None, count: int
    ) -> None:
        self.settings = settings or GatewaySettings()
        self.models, self.count = list(models), count
        if count < 1:
            raise ConfigError("a gateway needs at least one worker")
        if self.settings.open:
            raise ConfigError("an open gateway has one worker: leave out --workers or --open")
        self.run_dir = self.settings.run_dir or home() / "gateway"
        self.workers: list[Worker] = []
        self.port = 0
        self._listener: socket.socket | None = None
        self._folder: Path | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._secret = secrets.token_urlsafe(24)
        self.failed: asyncio.Future[None] | None = None
        """Ends with an error when a worker cannot be kept alive."""

    @property
    def url(self) -> str:
        return f"http://{self.settings.host}:{self.port}"

    async def start(self) -> Workers:
        turns = self.run_dir / "turns"
        turns.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="art-gw-"))
        try:
            self._listener = self._bind()
            self.workers = [Worker(self._plan(index)) for index in range(self.count)]
            check_writers(turns, {worker.plan.place.journal for worker in self.workers})
            await asyncio.gather(*(worker.start() for worker in self.workers))
        except BaseException:
            await self.stop()
            raise
        self.failed = asyncio.get_running_loop().create_future()
        for worker in self.workers:
            self._spawn(worker.keep())
        self._spawn(self._accept(self._listener))
        logger.info("url=<%s> workers=<%d> | gateway listens", self.url, self.count)
        return self

    def _bind(self) -> socket.socket:
        listener = socket.create_server(
            (self.settings.host, self.settings.port), backlog=4096, reuse_port=False
        )
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        return listener

    def _plan(self, index: int) -> Plan:
        assert self._folder is not None, "made by start"
        place = Place(index, self.count, self._folder, self._secret, self.port)
        level = logging.getLogger().getEffectiveLevel()
        return Plan(self.models, self.settings, place, level)

    async def stop(self) -> None:
        """May be called twice."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def __aenter__(self) -> Workers:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- connections ------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many open files, or a client that left at once
                logger.warning("| could not accept: %s", error)
                await asyncio.sleep(0.05)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._spawn(self._place(connection))

    async def _place(self, connection: socket.socket) -> None:
        """Gives a connection to the worker that its first request is for."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(connection.fileno(), readable.set)
        try:
            async with asyncio.timeout(FIRST_BYTES_S):
                await readable.wait()
            head = connection.recv(PEEK_BYTES, socket.MSG_PEEK)
        except (OSError, TimeoutError):
            head = b""
        finally:
            loop.remove_reader(connection.fileno())
        if not head:
            connection.close()
            return
        self._choose(head).give(connection)

    def _choose(self, head: bytes) -> Worker:
        name = name_in(head)
        if name is not None and name != self.settings.admin_token:
            return self.workers[owner_of(name, self.count)]
        self._turn += 1
        return self.workers[self._turn % self.count]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)


async def serve_workers(
    models: Iterable[ModelSpec],
    settings: GatewaySettings | None = None,
    *,
    count: int,
    ready: Callable[[Workers], None] | None = None,
) -> None:
    """Serves until cancelled or told to end; ``ready`` is called once all workers listen."""
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Workers(models, settings, count) as workers:
        if ready is not None:
            ready(workers)
        assert workers.failed is not None, "made by start"
        failed = workers.failed
        waiting = asyncio.ensure_future(stop.wait())
        waiting.add_done_callback(lambda _: failed.cancel())
        try:
            await failed
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
        finally:
            waiting.cancel()
