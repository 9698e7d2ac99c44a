"""The runtime on a system that is not Linux, which here is Linux without what only Linux has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.config import Config

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.isolation import ps

HERE = Path(__file__).parent
ENV = {
    **os.environ,
    "PYTHONPATH": str(HERE / "elsewhere"),
    # The name of this file has the system's in it.
    "_PYTHON_SYSCONFIGDATA_NAME": sysconfig._get_sysconfigdata_name(),  # type: ignore[attr-defined]
    **{"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
}
ART = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main"]
AGENT = """
import os, subprocess, sys
from agentcore_rl_toolkit import AgentCoreRLApp

app = AgentCoreRLApp()


@app.rollout_entrypoint
def handler(payload):
    if payload.get("child"):
        child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        open("child", "w").write(str(child.pid))
    places = {"cwd": os.getcwd(), "home": os.environ["HOME"]}
    return {"rewards": 1.0, "platform": sys.platform, **places}


app.run()
"""


class Served(NamedTuple):
    process: subprocess.Popen[str]
    announced: str
    url: str
    arn: str

    def client(self, name: str) -> Any:
        return boto3.client(
            name,
            endpoint_url=self.url,
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}),
            **local.credentials(self.url),
        )

    def invoke(self, session: str, **payload: Any) -> dict[str, Any]:
        data = self.client("bedrock-agentcore")
        answer = data.invoke_agent_runtime(
            agentRuntimeArn=self.arn, runtimeSessionId=session, payload=json.dumps(payload)
        )
        found: dict[str, Any] = json.loads(answer["response"].read())
        data.close()
        return found

    def rollout(self, session: str, **payload: Any) -> dict[str, Any]:
        """A whole one: the result as its caller finds it in the bucket."""
        block = {"exp_id": "plain", "input_id": session, "s3_bucket": local.DEFAULT_BUCKET}
        key = self.invoke(session, **payload, _rollout=block)["result_key"]
        s3 = self.client("s3")
        found: list[bytes] = []

        def there() -> bool:
            listed = s3.list_objects_v2(Bucket=local.DEFAULT_BUCKET, Prefix=key)
            if listed["KeyCount"]:
                found.append(s3.get_object(Bucket=local.DEFAULT_BUCKET, Key=key)["Body"].read())
            return bool(found)

        _until(there)
        s3.close()
        result: dict[str, Any] = json.loads(found[0])
        return result

    def sessions(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/_art/sessions", timeout=10) as answer:
            return {one["session_id"]: one for one in json.load(answer)["sessions"]}


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition never came true"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "app").mkdir()
    (folder / "app" / "rl_app.py").write_text(AGENT)
    command = [*ART, "runtime", "serve", "--port", "0", "--home", str(folder / "home")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV)
    assert process.stdout is not None
    try:
        said = ""
        while "export AWS_ENDPOINT_URL=" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        url = said.rpartition("AWS_ENDPOINT_URL=")[2].split()[0]
        # Sessions get it, too: what runs in them must not need Linux either.
        variables = {name: ENV[name] for name in ("PYTHONPATH", "_PYTHON_SYSCONFIGDATA_NAME")}
        control = control_client(url)
        made = register(control, "plain", folder / "app", "rl_app.py", variables)
        control.close()
        yield Served(process, said, url, made["agentRuntimeArn"])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def session_id() -> str:
    return str(uuid.uuid4())


def test_at_the_start_it_says_that_there_is_no_wall(served: Served) -> None:
    assert "isolation  process: plain processes" in served.announced
    assert "no wall" in served.announced


def test_a_rollout_runs_in_a_process_with_its_own_places(served: Served) -> None:
    name = session_id()
    result = served.rollout(name)
    assert (result["rewards"], result["platform"]) == (1.0, "darwin")
    assert result["cwd"] != result["home"]
    described = served.sessions()[name]
    assert described["isolation"] == "process, plain"
    assert described["processes"] == 1
    assert os.getpgid(described["pid"]) == described["pid"]


def test_a_stop_takes_what_the_agent_started_with_it(served: Served) -> None:
    name = session_id()
    work = Path(served.rollout(name, child=True)["cwd"])
    agent, child = served.sessions()[name]["pid"], int((work / "child").read_text())
    assert _runs(child)
    data = served.client("bedrock-agentcore")
    data.stop_runtime_session(agentRuntimeArn=served.arn, runtimeSessionId=name)
    data.close()
    assert name not in served.sessions()
    _until(lambda: not _runs(agent) and not _runs(child))
    _until(lambda: not work.exists())


def test_a_killed_session_is_missed_and_revived_by_the_next_call(served: Served) -> None:
    name = session_id()
    served.rollout(name)
    killed = served.sessions()[name]["pid"]
    os.kill(killed, signal.SIGKILL)
    _until(lambda: name not in served.sessions())
    assert served.rollout(session_id())["rewards"] == 1.0
    assert killed not in [one["pid"] for one in served.sessions().values()]


def test_a_command_runs_beside_the_agent(served: Served) -> None:
    name = session_id()
    served.rollout(name)
    data = served.client("bedrock-agentcore")
    answer = data.invoke_agent_runtime_command(
        agentRuntimeArn=served.arn,
        runtimeSessionId=name,
        body={"command": "sh -c 'echo $HOME; exit 3'", "timeout": 60},
    )
    events = [event["chunk"] for event in answer["stream"]]
    data.close()
    said = "".join(one["contentDelta"].get("stdout", "") for one in events if "contentDelta" in one)
    assert said.strip().endswith("/home")
    assert [one["contentStop"]["exitCode"] for one in events if "contentStop" in one] == [3]


def test_the_doctor_names_what_there_is() -> None:
    asked = [*ART, "doctor", "--json"]
    done = subprocess.run(asked, env=ENV, capture_output=True, text=True, timeout=60)
    found = {check["what"]: check for check in json.loads(done.stdout)}
    assert found["isolation process"]["state"] == "ok"
    assert found["isolation process"]["said"].startswith("plain processes")
    assert "(used by default)" in found["isolation process"]["said"]
    assert found["isolation namespace"]["said"] == "needs Linux, this is darwin"
    assert found["memory"]["state"] == "note"


def test_what_a_network_of_its_own_is_needed_for_is_refused(served: Served, tmp_path: Path) -> None:
    (tmp_path / "rl_app.py").write_text(AGENT)
    control, refused = control_client(served.url), "network level 'none' needs isolation level"
    with pytest.raises(ConfigError, match=refused):
        register(control, "apart", tmp_path, "rl_app.py", {"ART_NETWORK": "none"})
    control.close()


def test_a_killed_runtime_leaves_no_session(served: Served) -> None:
    """The last: nothing serves after it."""
    name = session_id()
    served.rollout(name)
    pids = [one["pid"] for one in served.sessions().values()]
    served.process.kill()
    _until(lambda: not [pid for pid in pids if _runs(pid)])


@pytest.mark.parametrize(
    ("told", "seconds"), [("00:00:02", 2.0), ("0:01.25", 1.25), ("1-01:00:00", 90_000.0)]
)
def test_the_time_that_ps_tells_is_understood(told: str, seconds: float) -> None:
    assert ps._seconds(told) == seconds
