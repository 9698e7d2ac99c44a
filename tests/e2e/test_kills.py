"""Every part that can die is killed with -9 in the middle of a batch, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import boto3
import pytest

from agentcore_rl_toolkit import RolloutClient, local
from agentcore_rl_toolkit.errors import SessionLostError

from .conftest import ECHO, Stack, wait_until


def client_of(stack: Stack, arn: str, **extra: Any) -> RolloutClient:
    return RolloutClient(
        agent_runtime_arn=arn,
        s3_bucket="rollouts",
        exp_id="kills",
        endpoint_url=stack.url,
        tps_limit=200,
        **extra,
    )


def sessions(stack: Stack) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{stack.url}/_art/sessions") as answer:
        return [s for s in json.load(answer)["sessions"] if s["state"] in ("active", "idle")]


def kill_one_session(stack: Stack) -> None:
    wait_until(lambda: sessions(stack), "a session is running")
    os.kill(sessions(stack)[0]["pid"], signal.SIGKILL)


def test_a_killed_session_is_reported_at_once_and_its_neighbours_finish(stack: Stack) -> None:
    arn = stack.deploy(ECHO)
    with client_of(stack, arn) as client:
        payloads = [{"sleep": 3, "return": {"rewards": i}} for i in range(4)]
        killer = threading.Thread(target=kill_one_session, args=(stack,))
        killer.start()
        items = list(client.run_batch(payloads, 4, timeout=60))
        killer.join()
        report = client.report()
    lost = [item for item in items if not item.success]
    assert [item.failure.kind for item in lost] == ["session_lost"]
    assert items[0] is lost[0], "the loss is told long before the others end"
    assert report.submitted == 4 == report.succeeded + sum(report.failed.values())


def test_a_killed_session_is_run_again_where_retry_allows(stack: Stack) -> None:
    arn = stack.deploy(ECHO)
    with client_of(stack, arn, retry=1) as client:
        payloads = [{"sleep": 1, "return": {"rewards": i}} for i in range(4)]
        killer = threading.Thread(target=kill_one_session, args=(stack,))
        killer.start()
        items = list(client.run_batch(payloads, 4, timeout=60))
        killer.join()
        report = client.report()
    assert sorted(item.result["rewards"] for item in items) == [0, 1, 2, 3]
    assert (report.succeeded, report.attempts) == (4, 5)


def test_a_killed_runtime_leaves_no_process_and_the_batch_ends_after_its_restart(
    stack: Stack,
) -> None:
    arn = stack.deploy(ECHO)

    def kill_and_restart() -> None:
        wait_until(lambda: len(sessions(stack)) >= 3, "sessions are running")
        stack.kill()
        wait_until(lambda: not stack.session_processes(), "its sessions are gone with it")
        stack.start()

    with client_of(stack, arn, retry=2) as client:
        payloads = [{"sleep": 1, "return": {"rewards": i}} for i in range(6)]
        killer = threading.Thread(target=kill_and_restart)
        killer.start()
        items = list(client.run_batch(payloads, 3, timeout=60))
        killer.join()
        report = client.report()
    assert sorted(item.result["rewards"] for item in items) == list(range(6))
    assert (report.submitted, report.succeeded, report.running) == (6, 6, 0)


def test_a_killed_zygote_is_told_at_once_and_the_next_rollout_runs(stack: Stack) -> None:
    """Its sessions die with it, those of another agent do not notice."""
    arn, other = stack.deploy(ECHO), stack.deploy(ECHO.parent / "openai_agent")

    def kill_zygote() -> None:
        wait_until(lambda: len(sessions(stack)) == 3, "both agents have sessions")
        mine = [s["pid"] for s in sessions(stack) if s["runtime_id"] in arn]
        parents = {int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in mine}
        assert len(parents) == 1, "one zygote for both"
        os.kill(parents.pop(), signal.SIGKILL)

    plain = boto3.client(
        "bedrock-agentcore", endpoint_url=stack.url, region_name="us-east-1", **local.CREDENTIALS
    )
    bystander = str(uuid.uuid4())
    with client_of(stack, arn) as client, contextlib.closing(plain):
        with contextlib.suppress(plain.exceptions.RuntimeClientError):  # it finds no model
            plain.invoke_agent_runtime(
                agentRuntimeArn=other, runtimeSessionId=bystander, payload=b"{}"
            )
        killer = threading.Thread(target=kill_zygote)
        killer.start()
        items = list(client.run_batch([{"sleep": 30}, {"sleep": 30}], 2, timeout=60))
        killer.join()
        assert [item.failure.kind for item in items] == ["session_lost"] * 2
        again = client.invoke({"return": {"rewards": 1}})
        assert again.result(timeout=60)["rewards"] == 1
    assert bystander in {session["session_id"] for session in sessions(stack)}


def test_a_killed_evaluation_resumes_and_leaves_no_session(stack: Stack, tmp_path: Path) -> None:
    arn = stack.deploy(ECHO)
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    rows = [{"sleep": 0.5, "return": {"rewards": i}} for i in range(8)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "eval", str(data)]
    command += ["--agent", arn, "--concurrency", "3", "--out", str(out)]

    first = subprocess.Popen(command, env=stack.env, stderr=subprocess.DEVNULL)
    wait_until(lambda: out.is_file() and out.read_bytes().count(b"\n") >= 2, "two rows are done")
    first.kill()
    first.wait()
    done_before = out.read_bytes().count(b"\n")

    second = subprocess.run(command, env=stack.env, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    entries = [json.loads(line) for line in out.read_text().splitlines() if line]
    assert sorted(entry["index"] for entry in entries) == list(range(8)), "none lost, none twice"
    assert all(entry["success"] for entry in entries)
    assert done_before < 8
    wait_until(lambda: not sessions(stack), "no session of the killed run is left")
    assert not out.with_name("out.jsonl.inflight").exists()


def test_a_runtime_that_stays_dead_is_told_long_before_the_timeout(stack: Stack) -> None:
    arn = stack.deploy(ECHO)
    with client_of(stack, arn) as client:
        future = client.invoke({"sleep": 60})
        wait_until(lambda: client._watcher.live, "events flow")
        stack.kill()
        with pytest.raises(SessionLostError, match="art runtime serve"):
            future.result(timeout=60)
