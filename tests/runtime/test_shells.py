"""AWS's interactive shells, spoken to by the shell of AWS's own SDK and by raw frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from bedrock_agentcore.runtime.shell.protocol import ShellChannel
from bedrock_agentcore.runtime.shell.session import ShellSession

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime import shells
from agentcore_rl_toolkit.runtime.awsquota import AwsQuotas
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import Aws, until

SESSION = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
NAME = "X-Amzn-Bedrock-AgentCore-Shell-Id"


def address(aws: Aws, arn: str, **query: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return f"{aws.url}/runtimes/{quote(arn, safe='')}/ws/shells?{asked}"


class Local:
    """Stands for the SDK's client, whose own addresses are all on amazonaws.com."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws

    def connect_shell(
        self, arn: str, *, session_id: str, endpoint_name: str | None, shell_id: str
    ) -> tuple[str, dict[str, str]]:
        url = address(self.aws, arn, shellId=shell_id).replace("http", "ws", 1)
        return url, {SESSION: session_id}


def shell_of(aws: Aws, arn: str, session_id: str, name: str | None = None) -> ShellSession:
    client: Any = Local(aws)
    return ShellSession(client, arn, session_id=session_id, shell_id=name)


async def sees(shell: ShellSession, text: str) -> str:
    shown = ""
    async with asyncio.timeout(20):
        async for frame in shell:
            if frame.channel == ShellChannel.STDOUT:
                shown += frame.text
            if text in shown:
                return shown
    raise AssertionError(shown)


@pytest.fixture
def live(aws: Aws, asgi_arn: str, sid: str) -> Iterator[str]:
    aws.ask(asgi_arn, {}, sid)
    yield sid
    with contextlib.suppress(aws.data.exceptions.ResourceNotFoundException):
        aws.stop(asgi_arn, sid)


async def test_the_sdk_s_shell_runs_commands_and_gets_the_exit_code(
    aws: Aws, asgi_arn: str, live: str
) -> None:
    async with shell_of(aws, asgi_arn, live) as shell:
        await shell.resize(101, 37)
        await shell.send("stty size; echo $((40 + 2))\n")
        shown = await sees(shell, "42")
        assert "37 101" in shown
        await shell.send("exit 3\n")
        async with asyncio.timeout(20):
            async for _ in shell:
                pass
    assert shell.exit_code == 3
    assert shell.session_id == live


async def test_a_shell_makes_its_session_and_a_clean_exit_is_zero(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    async with shell_of(aws, asgi_arn, sid) as shell:
        await shell.send("exit\n")
        async with asyncio.timeout(20):
            async for _ in shell:
                pass
    assert shell.exit_code == 0
    assert sid in aws.sessions()
    aws.stop(asgi_arn, sid)


async def test_a_shell_outlives_its_connection(aws: Aws, asgi_arn: str, live: str) -> None:
    async with shell_of(aws, asgi_arn, live, "mine") as shell:
        await shell.send("kept=yes; echo be$((3 - 1))fore\n")
        await sees(shell, "be2fore")
    async with shell_of(aws, asgi_arn, live, "mine") as shell:
        await shell.send("echo still $kept $((1 + 1))\n")
        shown = await sees(shell, "still yes 2")
    assert "be2fore" in shown, "what was shown before is shown again"
    async with shell_of(aws, asgi_arn, live, "other") as shell:
        await shell.send('echo "other<$kept>" $((1 + 1))\n')
        await sees(shell, "other<> 2")


async def test_whoever_comes_later_has_the_shell(aws: Aws, asgi_arn: str, live: str) -> None:
    async with shell_of(aws, asgi_arn, live, "one") as first:
        await first.send("echo $((1 + 1))\n")
        await sees(first, "2")
        async with shell_of(aws, asgi_arn, live, "one") as second:
            async with asyncio.timeout(20):
                async for _ in first:
                    pass
            assert first.kicked
            await second.send("echo $((40 + 2))\n")
            await sees(second, "42")


async def test_the_end_of_the_session_is_told(aws: Aws, asgi_arn: str, live: str) -> None:
    async with shell_of(aws, asgi_arn, live) as shell:
        await shell.send("echo $((1 + 1))\n")
        await sees(shell, "2")
        await asyncio.to_thread(aws.stop, asgi_arn, live)
        async with asyncio.timeout(20):
            async for _ in shell:
                pass
    assert shell.exit_code is None


# --- raw frames -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def opened(
    aws: Aws, arn: str, session_id: str, **query: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(address(aws, arn, **query), headers={SESSION: session_id}) as made,
    ):
        yield made


async def closing(connection: aiohttp.ClientWebSocketResponse) -> int | None:
    async with asyncio.timeout(20):
        async for _ in connection:
            pass
    return connection.close_code


async def test_the_first_frame_and_the_headers_confirm(aws: Aws, asgi_arn: str, live: str) -> None:
    for known in (False, True):
        async with opened(aws, asgi_arn, live, shellId="seen") as connection:
            first = await connection.receive_bytes()
            told = json.loads(first[1:])
            assert (first[0], told["status"]) == (3, "Success")
            assert told["metadata"] == {"shellId": "seen", "reconnected": known}
            headers = connection._response.headers
            assert (headers[SESSION], headers[NAME]) == (live, "seen")
            await connection.send_bytes(b"\x05")
            async with asyncio.timeout(20):
                while (await connection.receive_bytes())[0] != 5:
                    pass


async def test_a_close_frame_ends_the_shell(aws: Aws, asgi_arn: str, live: str) -> None:
    async with opened(aws, asgi_arn, live, shellId="over") as connection:
        await connection.send_bytes(b"\xff")
        assert await closing(connection) == 1000
    async with opened(aws, asgi_arn, live, shellId="over") as connection:
        told = json.loads((await connection.receive_bytes())[1:])
        assert told["metadata"]["reconnected"] is False


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        pytest.param(["text"] * 5, 1003, id="text"),
        pytest.param([b"\x00" + b"x" * 65_537], 1009, id="too large"),
        pytest.param([b"\x04wide"], 1007, id="a resize that is none"),
        pytest.param([b"\x04{}"], 1007, id="a resize without a size"),
    ],
)
async def test_what_is_no_frame_closes_the_connection(
    aws: Aws, asgi_arn: str, live: str, frames: list[str | bytes], code: int
) -> None:
    async with opened(aws, asgi_arn, live) as connection:
        for frame in frames:
            sent = connection.send_str(frame) if isinstance(frame, str) else None
            await (sent or connection.send_bytes(frame))  # type: ignore[arg-type]
        assert await closing(connection) == code


async def test_frames_over_the_quota_close_the_connection(
    tmp_path: Path, connect: Callable[..., Aws], sid: str
) -> None:
    with RuntimeThread(home=tmp_path, quotas=AwsQuotas(frames=2)) as runtime:
        aws = connect(runtime.url)
        async with opened(aws, await asyncio.to_thread(aws.deploy), sid) as connection:
            for _ in range(50):
                with contextlib.suppress(ConnectionError):
                    await connection.send_bytes(b"\x05")
            assert await closing(connection) == 1008


@pytest.mark.parametrize("query", [{"shellId": "a/b"}, {"shellId": "-a"}, {"shellId": "x" * 129}])
async def test_a_name_that_is_none_is_refused(
    aws: Aws, asgi_arn: str, sid: str, query: dict[str, str]
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with opened(aws, asgi_arn, sid, **query):
            pass
    assert refused.value.status == 400
    assert sid not in aws.sessions()


async def test_a_runtime_that_is_not_ready_is_a_validation_error(
    aws: Aws, tmp_path: Path, sid: str
) -> None:
    (tmp_path / "rl_app.py").write_text("import no_such_module_of_ours\n")
    runtime_id = aws.create(tmp_path)
    assert (await asyncio.to_thread(aws.settled, runtime_id))["status"] == "CREATE_FAILED"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with opened(aws, local.runtime_arn(runtime_id), sid):
            pass
    assert refused.value.status == 400


async def test_the_eleventh_shell_of_a_runtime_is_refused(aws: Aws, sid: str) -> None:
    arn = await asyncio.to_thread(aws.deploy)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(shells.MAX_SHELLS):
            await stack.enter_async_context(opened(aws, arn, sid, shellId=f"n{number}"))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with opened(aws, arn, sid, shellId="more"):
                pass
        assert refused.value.status == 424
    until(lambda: aws.sessions()[sid]["processes"] > shells.MAX_SHELLS, "they outlive their caller")
    aws.stop(arn, sid)
    async with opened(aws, arn, str(uuid.uuid4()), shellId="again"):
        pass


async def test_a_plain_request_is_told_that_it_takes_upgrades(aws: Aws, asgi_arn: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(address(aws, asgi_arn)) as answer:
        assert answer.status == 400


def test_ends_are_told_as_kubernetes_does() -> None:
    assert shells.ended(0)["status"] == "Success"
    killed = shells.ended(-9)
    assert killed["details"]["causes"] == [
        {"reason": "ExitCode", "message": "137"},
        {"reason": "Signal", "message": "9"},
    ]
    assert shells.ended(None)["reason"] == "InternalError"


def test_a_runtime_that_stops_ends_its_shells(
    tmp_path: Path, connect: Callable[..., Aws], sid: str
) -> None:
    async def leave_one(aws: Aws, arn: str) -> None:
        async with opened(aws, arn, sid, shellId="left") as connection:
            await connection.receive_bytes()

    with RuntimeThread(home=tmp_path) as runtime:
        aws = connect(runtime.url)
        arn = aws.deploy()
        asyncio.run(leave_one(aws, arn))
        until(lambda: aws.sessions()[sid]["in_flight"] == 0, "the caller has left")
