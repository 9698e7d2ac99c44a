"""``art shell``: a shell inside a live session, on a terminal or fed by a pipe.

On a terminal every key goes to the session, and the window's size with it; the terminal is put
back however it ends. The command's exit code is the shell's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .. import local
from ..errors import RuntimeServiceError
from .sessions import Endpoint, find

OUT, ERRORS = 1, 2


def shell(
    session: Annotated[str, typer.Argument(help="Its id, or the beginning of it.")],
    endpoint: Endpoint = None,
) -> None:
    """Open a shell inside a live session; it ends with 'exit' or the end of the input."""
    url = local.find_endpoint(endpoint)
    name = find(url, session)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with raw_terminal() if terminal else contextlib.nullcontext():
        code = asyncio.run(converse(f"{url}/_art/sessions/{name}/shell", terminal))
    raise typer.Exit(code)


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def converse(url: str, terminal: bool) -> int:
    import aiohttp

    cols, rows = shutil.get_terminal_size()
    url += f"?rows={rows}&cols={cols}" if terminal else ""
    async with aiohttp.ClientSession() as http:
        try:
            connection = await http.ws_connect(url, headers=local.sign(url), heartbeat=30.0)
        except aiohttp.WSServerHandshakeError as error:
            raise RuntimeServiceError(f"the shell was refused ({error.status})") from error
        except aiohttp.ClientError as error:
            raise RuntimeServiceError(f"the runtime cannot be reached: {error}") from error
        async with connection:
            typing = asyncio.create_task(send_input(connection, terminal))
            try:
                return await show_output(connection)
            finally:
                typing.cancel()


async def show_output(connection: Any) -> int:
    async for message in connection:
        if isinstance(message.data, bytes):
            stream = sys.stderr if message.data[0] == ERRORS else sys.stdout
            stream.buffer.write(message.data[1:])
            stream.buffer.flush()
        elif isinstance(message.data, str):
            code = int(json.loads(message.data)["exit"])
            return code if code >= 0 else 255
    return 255  # the session, or the runtime, has gone


async def send_input(connection: Any, terminal: bool) -> None:
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    # A thread: what standard input is decides whether a loop could wait for it.
    threading.Thread(target=read_input, args=(loop, keys), daemon=True).start()
    if terminal:
        resized = lambda: asyncio.ensure_future(resize(connection))  # noqa: E731
        loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        while data := await keys.get():
            await connection.send_bytes(data)
        await connection.send_str(json.dumps({"eof": True}))
        await asyncio.Event().wait()
    except ConnectionError:
        pass
    finally:
        if terminal:
            loop.remove_signal_handler(signal.SIGWINCH)


def read_input(loop: asyncio.AbstractEventLoop, keys: asyncio.Queue[bytes]) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # the loop has ended, or the input
        while True:
            data = os.read(sys.stdin.fileno(), 65536)
            loop.call_soon_threadsafe(keys.put_nowait, data)
            if not data:
                return


async def resize(connection: Any) -> None:
    cols, rows = shutil.get_terminal_size()
    with contextlib.suppress(ConnectionError):
        await connection.send_str(json.dumps({"resize": [rows, cols]}))
