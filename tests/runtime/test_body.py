from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.body import PIECE_BYTES, Spool

from .conftest import Aws


async def parts(*given: bytes) -> AsyncIterator[bytes]:
    for one in given:
        yield one


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param([b'{"_rollout": 1}'], True, id="there"),
        pytest.param([b"x" * 1000, b"y" * 10], False, id="not there"),
        pytest.param(
            [b"x" * (PIECE_BYTES - 3) + b'"_r', b'ollout"' + b"x" * 10], True, id="across"
        ),
        pytest.param([], False, id="nothing at all"),
    ],
)
async def test_a_spool_gives_back_what_it_got_and_knows_what_is_in_it(
    tmp_path: Path, given: list[bytes], found: bool
) -> None:
    spool = Spool(tmp_path, b"_rollout")
    await spool.fill(parts(*given))
    assert b"".join([one async for one in spool.pieces()]) == b"".join(given)
    view = spool.view()
    assert (view is not None) == found
    if view is not None:
        with view:
            assert bytes(view) == b"".join(given)
    spool.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def apart() -> Iterator[tuple[Aws, int]]:
    """A runtime in a process of its own, whose memory can be seen."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "agentcore_rl_toolkit.runtime", "--port", "0"]
        process = subprocess.Popen([*command, "--home", home], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            clients = Aws(process.stdout.readline().split()[-1], read_timeout=100)
            yield clients, process.pid
            clients.close()
            process.terminate()
            process.wait(30)


def most_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


@pytest.mark.slow
def test_bodies_of_100_mb_pass_both_ways_and_are_not_held(apart: tuple[Aws, int], sid: str) -> None:
    aws, pid = apart
    arn = aws.deploy()
    aws.ask(arn, {}, sid)
    before = most_mb(pid)
    assert aws.ask(arn, b"x" * 100_000_000, sid)["length"] == 100_000_000
    answer = aws.invoke(arn, {"size": 100_000_000}, sid)["response"]
    assert sum(len(piece) for piece in answer.iter_chunks(1 << 20)) == 100_000_000
    assert most_mb(pid) - before < 40
    block = {"base_url": "http://127.0.0.1:9/v1", "exp_id": "e", "input_id": "i"}
    named = json.dumps({"_rollout": {**block, "s3_bucket": "rollouts"}, "pad": "x" * 50_000_000})
    assert aws.ask(arn, named.encode(), sid)["length"] == len(named)
