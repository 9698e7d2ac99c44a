"""Construction, logging, forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentcore_rl_toolkit import AgentCoreRLApp, saver

from .conftest import Store, one, wait_for


def test_constructing_needs_no_credentials_and_leaves_logging_threads_and_sockets_alone(
    tmp_path: Path,
) -> None:
    script = """
import logging, os, threading
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)
from agentcore_rl_toolkit import AgentCoreRLApp
before = len(os.listdir("/proc/self/fd"))
app = AgentCoreRLApp()
app.rollout_entrypoint(lambda payload: {})
app.warm()
assert logging.getLogger().handlers == [handler], logging.getLogger().handlers
assert logging.getLogger().level == logging.WARNING
assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) == before
"""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_session_forked_from_a_warmed_app_uses_its_own_environment(
    store: Store, tmp_path: Path
) -> None:
    script = """
import os, sys
from agentcore_rl_toolkit import AgentCoreRLApp
app = AgentCoreRLApp()
app.after_fork(lambda: print("hook in child", os.getpid() != parent, flush=True))
app.warm()
parent = os.getpid()
app.s3_client  # even this one must not be inherited
pid = os.fork()
if pid == 0:
    os.environ.update(AWS_ENDPOINT_URL_S3=sys.argv[1], AWS_ACCESS_KEY_ID="in-session",
                      AWS_SECRET_ACCESS_KEY="local", AWS_REGION="us-west-2")
    client = app.s3_client
    print(client.meta.endpoint_url, client.meta.region_name, flush=True)
    client.put_object(Bucket="rollouts", Key="k", Body=b"{}", ContentType="application/json")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script, store.url], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["hook in child True", f"{store.url} us-west-2"]
    assert store.puts == ["/rollouts/k"]
    assert store.expected == [None], "the SDK's put, too, is sent at once"


def test_a_warmed_client_serves_a_fork_with_the_same_environment_and_no_other(
    store: Store, tmp_path: Path
) -> None:
    script = """
import os
from agentcore_rl_toolkit import AgentCoreRLApp
app = AgentCoreRLApp()
app.warm()
warmed = app._saver._warmed[1]
for change in ({}, {"AWS_REGION": "us-west-2"}):
    pid = os.fork()
    if pid == 0:
        os.environ.update(change)
        app.s3_client.put_object(Bucket="rollouts", Key="k", Body=b"{}")
        os._exit(0 if (app.s3_client is warmed) == (not change) else 1)
    assert os.waitpid(pid, 0)[1] == 0, change
"""
    env = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert store.puts == ["/rollouts/k"] * 2


def test_only_a_large_result_waits_for_leave_to_be_sent(live: Any, store: Store) -> None:
    def handler(payload: dict[str, Any]) -> dict[str, Any]:
        return {"rewards": 1.0, "text": "x" * payload["size"]}

    agent = live(handler)
    for number, size in enumerate((10, saver.SMALL_BYTES)):
        agent.rollout(size=size, rollout={"input_id": f"in-{number}"})
        wait_for(lambda number=number: len(store.expected) == number + 1)
    assert store.expected == [None, "100-continue"]


def test_an_assigned_s3_client_is_used(live: Any, store: Store) -> None:
    class Mine:
        def __init__(self) -> None:
            self.saved: list[dict[str, Any]] = []

        def put_object(self, **arguments: Any) -> None:
            self.saved.append(arguments)

        def close(self) -> None: ...

    app = AgentCoreRLApp()
    app.s3_client = mine = Mine()
    live(one, app).rollout()
    wait_for(lambda: mine.saved)
    assert mine.saved[0]["Bucket"] == "rollouts"
    assert store.puts == []


def test_the_base_arguments_are_taken_and_the_handler_stays_callable() -> None:
    app = AgentCoreRLApp(debug=True)
    assert app.debug
    assert app.rollout_entrypoint(one) is one
    assert one({}) == {"rewards": 1.0}


def test_a_plain_call_of_a_handler_that_needs_a_rollout_says_how_to_call_it(live: Any) -> None:
    status, answer = live(lambda payload: payload["_rollout"]["base_url"]).post({"prompt": "hi"})
    assert status == 500
    assert "art invoke --rollout" in answer["error"]
