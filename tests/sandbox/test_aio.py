from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import AgentError
from agentcore_rl_toolkit.sandbox import AsyncSandboxClient

from ..runtime.conftest import ASGI_AGENT, Aws


async def until(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 60
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.02)


async def test_commands_and_files_from_an_event_loop(aws: Aws, arn: str) -> None:
    async with AsyncSandboxClient(arn, endpoint_url=aws.url) as client:
        boxes = await asyncio.gather(*(client.start() for _ in range(3)))
        said = await asyncio.gather(*(box.exec(["echo", box.session_id]) for box in boxes))
        assert [one.stdout.strip() for one in said] == [box.session_id for box in boxes]
        await boxes[0].upload(b"\x00\xff", "/tmp/x")
        assert await boxes[0].download("/tmp/x") == b"\x00\xff"
        with pytest.raises(AgentError):
            await boxes[1].exec("exit 1", check=True)
        async with boxes[2]:
            pass
        assert boxes[2].session_id not in aws.sessions()
    assert not {box.session_id for box in boxes} & aws.sessions().keys()


async def test_a_cancelled_command_is_ended(aws: Aws, arn: str) -> None:
    async with AsyncSandboxClient(arn, endpoint_url=aws.url) as client:
        box = await client.start()
        call = asyncio.create_task(box.exec("echo $$ > /tmp/pid; sleep 60"))
        await until(
            lambda: aws.sessions()[box.session_id]["in_flight"] == 1, "the command has begun"
        )
        while not (pid := (await box.exec("cat /tmp/pid")).stdout.strip()):
            await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: aws.sessions()[box.session_id]["in_flight"] == 0, "it is over")
        assert not (await box.exec(["test", "-d", f"/proc/{pid}"])).ok


async def test_a_cancelled_start_leaves_no_session(aws: Aws, tmp_path: Path) -> None:
    agent = (ASGI_AGENT / "rl_app.py").read_text()
    slow = agent.replace("import asyncio", "import asyncio, time\ntime.sleep(3)", 1)
    (tmp_path / "rl_app.py").write_text(slow)
    arn = aws.deploy(tmp_path, environmentVariables={"ART_ZYGOTE": "0"})
    async with AsyncSandboxClient(arn, endpoint_url=aws.url) as client:
        sid = "s" * 40
        start = asyncio.create_task(client.start(sid))
        await until(lambda: sid in aws.sessions(), "it is being started")
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await until(lambda: sid not in aws.sessions(), "it is gone")
