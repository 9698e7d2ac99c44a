"""The runtime's hold on a command that runs beside an agent: whoever lets go ends it.

``inside/command.py`` is the other end. The command is described in a file in memory, because a
packet could not hold the longest.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

from .channel import Channel, Closed
from .inside import wire

END_S = 12.0
"""For the end of a whole process tree; the other end gives up after 10 s."""


class Leash:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._exit = asyncio.ensure_future(self._receive())

    @property
    def done(self) -> bool:
        return self._exit.done()

    async def _receive(self) -> int:
        try:
            message, descriptors = await self._channel.receive()
        except Closed:
            raise OSError("the session ended, or killed what kept the command") from None
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(message.get("exit"), int):
            return int(message["exit"])
        raise OSError(str(message.get("error")))

    async def wait(self) -> int:
        """The exit code, negative for a signal. OSError when it could not be run, or is lost."""
        return await asyncio.shield(self._exit)

    async def end(self) -> None:
        """Ends the command with all that it started."""
        try:
            await self._channel.send({"do": "end"})
            async with asyncio.timeout(END_S):
                await self.wait()
        except (OSError, Closed, TimeoutError):
            pass

    def let_go(self) -> None:
        """Ends it, too, without waiting for that. May be called twice."""
        self._channel.close()
        if self._exit.done() and not self._exit.cancelled():
            self._exit.exception()  # nobody may have asked
        else:
            self._exit.cancel()


async def launch(session: Channel, argv: Sequence[str], out: int, errors: int) -> Leash:
    """``out`` and ``errors`` are write ends of pipes, and stay the caller's."""
    ours, theirs = wire.pair()
    spec = os.memfd_create("command", os.MFD_CLOEXEC)
    try:
        os.write(spec, json.dumps(list(argv)).encode())
        await session.send({"do": "run"}, [spec, out, errors, theirs.fileno()])
    except Closed as error:
        ours.close()
        raise OSError("the session has ended") from error
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(spec)
        theirs.close()
    return Leash(Channel(ours))
