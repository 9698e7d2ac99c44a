"""The runtime's side of a zygote: one keeper process, and a control socket to what is below it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import IO, TypeVar

from ...errors import IsolationError
from .base import Agent
from .channel import Channel, Closed, Received
from .inside import wire

CONTRACT_PORT = 8080
"""Where an agent listens that binds a port itself."""
_INSIDE = Path(__file__).parent / "inside"
_T = TypeVar("_T")


class CannotFork(Exception):
    """The agent runs, but not from a zygote; the message says why."""

    def __init__(self, why: str, *, binds: bool = False) -> None:
        super().__init__(why)
        self.binds = binds


class Zygote:
    """One keeper process, and the zygote below it."""

    def __init__(self, process: subprocess.Popen[bytes], control: Channel, output: IO[bytes]):
        self._process, self._control, self._output = process, control, output
        self._spawning = asyncio.Lock()

    @classmethod
    async def start(cls, agent: Agent, config: wire.Message, env: dict[str, str]) -> Zygote:
        ours, theirs = wire.pair()
        output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the zygote
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - a vfork, quicker than a thread hop
                [agent.python, str(_INSIDE), "keep", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        except OSError as error:
            ours.close()
            output.close()
            raise IsolationError(f"cannot start {agent.python}: {error}") from error
        finally:
            theirs.close()
        zygote = cls(process, Channel(ours), output)
        try:
            await zygote._await_ready(agent, config)
        except BaseException:
            await zygote.close()
            raise
        return zygote

    @property
    def alive(self) -> bool:
        return self._control.open

    async def _await_ready(self, agent: Agent, config: wire.Message) -> None:
        name = f"{agent.entry} of {agent.runtime_id} version {agent.version}"
        try:
            await self._control.send(config)
            message, _ = await within(agent.init_timeout_s, self._control.receive())
        except TimeoutError:
            raise IsolationError(
                f"{name} did not come to app.run() within {agent.init_timeout_s:g} s: is the "
                f"machine busy, or does it load much at import?{self.said()}"
            ) from None
        except Closed:
            raise IsolationError(
                f"{name} ended its process, or was killed, while it was imported.{self.said()}"
            ) from None
        if "ready" not in message:
            self._refuse(name, message)

    def _refuse(self, name: str, message: wire.Message) -> None:
        if "failed" in message:
            raise IsolationError(f"{name} does not import:\n{message['failed']}")
        if "ended" in message:
            raise IsolationError(
                f"{name} ended (exit code {message['ended']}) without serving. "
                f"Its last line is usually app.run().{self.said()}"
            )
        if "unsafe" in message:
            raise CannotFork("; ".join(str(item) for item in message["unsafe"]))
        if "binds" in message:
            raise CannotFork(f"it binds port {CONTRACT_PORT} itself", binds=True)
        raise IsolationError(f"{name}: {message.get('error', 'no reason given')}")

    def said(self) -> str:
        """The end of what the agent's code printed while it was imported."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(self._output.tell() - 4000, 0))
        text = self._output.read().decode(errors="replace").strip()
        return f" It said:\n{text}" if text else ""

    async def fork(self, request: wire.Message, descriptors: list[int]) -> int:
        """A pidfd of the new session's first process."""
        async with self._spawning:
            await self._control.send(request, descriptors)
            # Shielded: an answer that nobody waits for would be taken for the next one's.
            answer = asyncio.ensure_future(self._control.receive())
            try:
                message, received = await asyncio.shield(answer)
            except asyncio.CancelledError:
                answer.add_done_callback(_close_unclaimed)
                raise
        if len(received) != 1:
            raise IsolationError(str(message.get("error", "the zygote gave no handle")))
        return received[0]

    async def close(self) -> None:
        self._control.drain()
        self._control.close()
        try:
            await asyncio.to_thread(self._process.wait, 15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._output.close()


def _close_unclaimed(answer: asyncio.Future[Received]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        for descriptor in answer.result()[1]:
            os.close(descriptor)


async def within(seconds: float, what: Awaitable[_T]) -> _T:
    async with asyncio.timeout(seconds):
        return await what
