"""A shell in a live session, spoken to as ``art shell`` does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from .conftest import PROCESS, Aws, until


class Shell:
    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self.connection = connection
        self.out, self.errors = b"", b""
        self.exit: int | None = None

    async def type(self, text: str) -> None:
        await self.connection.send_bytes(text.encode())

    async def tell(self, **message: Any) -> None:
        await self.connection.send_str(json.dumps(message))

    async def sees(self, text: bytes) -> None:
        async with asyncio.timeout(15):
            while text not in self.out:
                assert await self.receive(), (self.out, self.errors, self.exit)

    async def interrupt(self, text: bytes) -> None:
        """Ctrl-C ends the program, not the shell; again, where it came before the program did."""
        async with asyncio.timeout(30):
            while text not in self.out:
                await self.type("\x03")
                await self.type("echo still $((1 + 1)) here\n")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.sees(text), 1)

    async def ends(self) -> int | None:
        async with asyncio.timeout(15):
            while await self.receive():
                pass
        return self.exit

    async def receive(self) -> bool:
        message = await self.connection.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            if message.data[0] == 1:
                self.out += message.data[1:]
            else:
                self.errors += message.data[1:]
        elif message.type is aiohttp.WSMsgType.TEXT:
            self.exit = json.loads(message.data)["exit"]
        return not self.connection.closed


@pytest.fixture(params=["auto", "process"])
def live(request: pytest.FixtureRequest, aws: Aws, asgi_arn: str, sid: str) -> Any:
    """A live session at the machine's best level and at the plainest."""
    arn = asgi_arn if request.param == "auto" else aws.deploy(environmentVariables=PROCESS)
    aws.ask(arn, {}, sid)
    yield sid
    aws.stop(arn, sid)


@contextlib.asynccontextmanager
async def opened(aws: Aws, session_id: str, **size: int) -> AsyncIterator[Shell]:
    url = f"{aws.url}/_art/sessions/{session_id}/shell"
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(url, params={name: str(value) for name, value in size.items()}) as made,
    ):
        yield Shell(made)


async def test_a_terminal_with_a_window_that_changes(aws: Aws, live: str) -> None:
    async with opened(aws, live, rows=33, cols=77) as shell:
        await shell.type("test -t 0 && stty size; echo $((40 + 2))\n")
        await shell.sees(b"33 77")
        await shell.sees(b"42")
        await shell.tell(resize=[11, 99])
        await shell.type("stty size\n")
        await shell.sees(b"11 99")
        await shell.type("sleep 100\n")
        await shell.interrupt(b"still 2 here")
        await shell.type("exit 3\n")
        assert await shell.ends() == 3


async def test_plain_input_and_output_until_the_end_of_input(aws: Aws, live: str) -> None:
    async with opened(aws, live) as shell:
        await shell.type("tr a-z A-Z <<< 'said'; echo wrong >&2; pwd\nread line; echo $line\nx y")
        await shell.tell(eof=True)
        assert await shell.ends() == 0
    assert shell.out.startswith(b"SAID\n")
    assert shell.errors == b"wrong\n"
    assert shell.out.endswith(b"x y\n"), "input is the shell's, not a terminal's: nothing is echoed"


async def test_much_output_arrives_whole(aws: Aws, live: str) -> None:
    async with opened(aws, live) as shell:
        await shell.type("head -c 5000000 /dev/zero; exit 0\n")
        assert await shell.ends() == 0
    assert len(shell.out) == 5_000_000


async def test_leaving_ends_all_that_was_started(aws: Aws, live: str) -> None:
    before = aws.sessions()[live]["processes"]
    async with opened(aws, live, rows=20, cols=80) as shell:
        await shell.type("(sleep 100 & sleep 200 & echo begun; wait)\n")
        await shell.sees(b"begun\r\n")
        assert aws.sessions()[live]["processes"] > before
        assert aws.sessions()[live]["in_flight"] == 1, "it counts as activity"
    await asyncio.to_thread(
        until, lambda: aws.sessions()[live]["processes"] <= before, "its processes are gone"
    )
    await asyncio.to_thread(
        until, lambda: aws.sessions()[live]["in_flight"] == 0, "it counts no longer"
    )


async def test_the_end_of_the_session_is_the_end_of_the_shell(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    await asyncio.to_thread(aws.ask, asgi_arn, {}, sid)
    async with opened(aws, sid, rows=20, cols=80) as shell:
        await shell.type("echo $((6 * 7))\n")
        await shell.sees(b"42")
        await asyncio.to_thread(aws.stop, asgi_arn, sid)
        assert await shell.ends() == -1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("nobody/shell", 404, id="no such session"),
        pytest.param("{}/shell?rows=0&cols=5", 400, id="no window has no rows"),
        pytest.param("{}/shell?rows=x&cols=5", 400, id="not a number"),
        pytest.param("{}/shell?rows=5", 400, id="half a window"),
    ],
)
async def test_refusals(aws: Aws, asgi_arn: str, sid: str, path: str, status: int) -> None:
    await asyncio.to_thread(aws.ask, asgi_arn, {}, sid)
    url = f"{aws.url}/_art/sessions/{path.format(sid)}"
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url)
        assert refused.value.status == status
        async with http.get(f"{aws.url}/_art/sessions/{sid}/shell") as plain:
            assert plain.status == 400
    await asyncio.to_thread(aws.stop, asgi_arn, sid)
