from __future__ import annotations

import datetime
import io
import json
import sys
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.deployment import memory_of
from agentcore_rl_toolkit.runtime.isolation import cgroup
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import ASGI_AGENT, PROCESS, ROLE, Aws, alive, until

Sid = Callable[[], str]

VERSIONED = """
import uvicorn
TEXT = b'"{text}"'
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": TEXT}})
if __name__ == "__main__":
    uvicorn.run(app, port=8080, log_level="warning")
"""


def write_agent(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rl_app.py").write_text(VERSIONED.format(text=text))
    return folder


def unique(prefix: str = "agent") -> str:
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def test_a_new_runtime_becomes_ready_with_a_default_endpoint(aws: Aws) -> None:
    name = unique()
    made = aws.control.create_agent_runtime(
        agentRuntimeName=name,
        description="adds numbers",
        networkConfiguration={"networkMode": "PUBLIC"},
        environmentVariables={"A": "b"},
        **aws.body(),
    )
    assert made["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert made["status"] == "CREATING"
    assert local.parse_arn(made["agentRuntimeArn"]).runtime_id == made["agentRuntimeId"]
    found = aws.settled(made["agentRuntimeId"])
    assert found["status"] == "READY"
    assert found["agentRuntimeName"] == name
    assert found["agentRuntimeVersion"] == "1"
    assert found["roleArn"] == ROLE
    assert found["environmentVariables"] == {"A": "b"}
    assert found["lifecycleConfiguration"] == {
        "idleRuntimeSessionTimeout": 900,
        "maxLifetime": 28800,
    }
    assert isinstance(found["createdAt"], datetime.datetime)
    endpoint = aws.control.get_agent_runtime_endpoint(
        agentRuntimeId=made["agentRuntimeId"], endpointName="DEFAULT"
    )
    assert (endpoint["liveVersion"], endpoint["status"]) == ("1", "READY")


def test_an_agent_that_dies_at_import_fails_to_be_created_and_says_why(
    aws: Aws, tmp_path: Path, sid: str
) -> None:
    (tmp_path / "rl_app.py").write_text("import no_such_module_here\n")
    runtime_id = aws.create(tmp_path)
    found = aws.settled(runtime_id)
    assert found["status"] == "CREATE_FAILED"
    assert "No module named 'no_such_module_here'" in found["failureReason"]
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match="no_such_module_here"):
        aws.invoke(local.runtime_arn(runtime_id), {}, sid)


def test_an_invoke_right_after_create_waits_until_the_agent_is_prepared(aws: Aws, sid: str) -> None:
    arn = local.runtime_arn(aws.create())
    assert aws.ask(arn, {}, sid)["calls"] == 1
    aws.stop(arn, sid)


def test_an_update_makes_a_version_and_live_sessions_keep_theirs(
    aws: Aws, tmp_path: Path, new_session: Sid
) -> None:
    arn = aws.deploy(write_agent(tmp_path / "agent", "old"))
    runtime_id = local.parse_arn(arn).runtime_id
    before, after = new_session(), new_session()
    assert aws.ask(arn, {}, before) == "old"
    folder = write_agent(tmp_path / "agent", "new")
    made = aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body(folder))
    assert (made["agentRuntimeVersion"], made["status"]) == ("2", "UPDATING")
    aws.settled(runtime_id)
    assert aws.ask(arn, {}, after) == "new"
    assert aws.ask(arn, {}, before) == "old"
    aws.stop(arn, before)
    assert aws.ask(arn, {}, before) == "new"
    versions = aws.control.list_agent_runtime_versions(agentRuntimeId=runtime_id)
    assert [v["agentRuntimeVersion"] for v in versions["agentRuntimes"]] == ["1", "2"]
    for one in (before, after):
        aws.stop(arn, one)


def test_an_update_that_does_not_import_leaves_the_old_version_serving(
    aws: Aws, tmp_path: Path, sid: str
) -> None:
    arn = aws.deploy(write_agent(tmp_path / "agent", "old"))
    runtime_id = local.parse_arn(arn).runtime_id
    (tmp_path / "agent" / "rl_app.py").write_text("1 / 0\n")
    aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body(tmp_path / "agent"))
    found = aws.settled(runtime_id)
    assert found["status"] == "UPDATE_FAILED"
    assert "ZeroDivisionError" in found["failureReason"]
    assert aws.ask(arn, {}, sid) == "old"
    aws.stop(arn, sid)
    folder = write_agent(tmp_path / "agent", "mended")
    aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body(folder))
    assert aws.settled(runtime_id)["status"] == "READY"
    assert aws.ask(arn, {}, sid) == "mended"
    aws.stop(arn, sid)


def test_an_unused_versions_template_is_closed(
    shared_runtime: RuntimeThread, aws: Aws, tmp_path: Path, sid: str
) -> None:
    arn = aws.deploy(write_agent(tmp_path / "agent", "old"))
    runtime_id = local.parse_arn(arn).runtime_id
    aws.ask(arn, {}, sid)
    aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body(tmp_path / "agent"))
    aws.settled(runtime_id)

    def held() -> list[str]:
        entries = shared_runtime.server.templates._entries
        return shared_runtime.call(lambda: [v for r, v in entries if r == runtime_id])

    assert held() == ["1", "2"]  # the session of version 1 still runs
    aws.stop(arn, sid)
    until(lambda: held() == ["2"], "the old template is closed")


def test_deleting_a_runtime_ends_its_sessions_and_removes_its_files(
    shared_runtime: RuntimeThread, aws: Aws, sid: str
) -> None:
    arn = aws.deploy()
    runtime_id = local.parse_arn(arn).runtime_id
    aws.ask(arn, {}, sid)
    pid = aws.host_pid(sid)
    assert aws.control.delete_agent_runtime(agentRuntimeId=runtime_id)["status"] == "DELETING"
    assert not alive(pid)
    assert not (shared_runtime.server.home.agents / runtime_id).exists()
    with pytest.raises(aws.control.exceptions.ResourceNotFoundException):
        aws.control.get_agent_runtime(agentRuntimeId=runtime_id)
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException):
        aws.invoke(arn, {}, sid)


def test_one_old_version_can_be_deleted_and_a_served_one_cannot(aws: Aws) -> None:
    runtime_id = local.parse_arn(aws.deploy()).runtime_id
    aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body())
    aws.settled(runtime_id)
    delete = aws.control.delete_agent_runtime
    with pytest.raises(aws.control.exceptions.ConflictException):
        delete(agentRuntimeId=runtime_id, agentRuntimeVersion="2")
    delete(agentRuntimeId=runtime_id, agentRuntimeVersion="1")
    found = aws.control.list_agent_runtime_versions(agentRuntimeId=runtime_id)
    assert [v["agentRuntimeVersion"] for v in found["agentRuntimes"]] == ["2"]


def test_a_name_can_be_registered_once(aws: Aws) -> None:
    name = unique()
    aws.create(name=name)
    with pytest.raises(aws.control.exceptions.ConflictException, match=name):
        aws.create(name=name)


def test_the_same_client_token_registers_once(aws: Aws) -> None:
    name, token = unique(), str(uuid.uuid4())
    ids = {aws.create(name=name, clientToken=token) for _ in range(3)}
    assert len(ids) == 1
    runtime_id = ids.pop()
    aws.settled(runtime_id)
    update = aws.control.update_agent_runtime
    body = aws.body(clientToken=str(uuid.uuid4()))
    made = {update(agentRuntimeId=runtime_id, **body)["agentRuntimeVersion"] for _ in range(3)}
    assert made == {"2"}
    aws.settled(runtime_id)


def test_a_client_token_with_other_parameters_is_refused(aws: Aws) -> None:
    token = str(uuid.uuid4())
    name = unique()
    runtime_id = aws.create(name=name, clientToken=token)
    for other in ({"name": unique()}, {"name": name, "description": "another"}):
        with pytest.raises(aws.control.exceptions.ValidationException) as refused:
            aws.create(clientToken=token, **other)
        assert refused.value.response["reason"] == "IdempotentParameterMismatchException"
    assert aws.create(name=name, clientToken=token) == runtime_id
    aws.settled(runtime_id)
    again = str(uuid.uuid4())
    made = [
        aws.control.update_agent_runtime(
            agentRuntimeId=runtime_id, clientToken=again, **aws.body()
        )["agentRuntimeVersion"]
        for _ in range(2)
    ]
    assert made == ["2", "2"]
    with pytest.raises(aws.control.exceptions.ValidationException):
        aws.control.update_agent_runtime(
            agentRuntimeId=runtime_id, clientToken=again, **aws.body(description="other")
        )


def test_a_page_token_that_was_never_given_out_is_refused(aws: Aws) -> None:
    with pytest.raises(aws.control.exceptions.ValidationException, match="nextToken"):
        aws.control.list_agent_runtimes(nextToken="made-up!")
    with pytest.raises(aws.control.exceptions.ValidationException, match="maxResults"):
        aws.control.list_agent_runtimes(maxResults=101)


def test_endpoints_have_tags_of_their_own(aws: Aws) -> None:
    runtime_id = aws.create(tags={"of": "runtime"})
    aws.settled(runtime_id)
    made = aws.control.create_agent_runtime_endpoint(
        agentRuntimeId=runtime_id, name="prod", tags={"of": "endpoint"}
    )
    arn = made["agentRuntimeEndpointArn"]
    aws.control.tag_resource(resourceArn=arn, tags={"more": "1"})
    found = aws.control.list_tags_for_resource(resourceArn=arn)["tags"]
    assert found == {"of": "endpoint", "more": "1"}
    aws.control.untag_resource(resourceArn=arn, tagKeys=["of"])
    assert aws.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"more": "1"}
    whole = aws.control.list_tags_for_resource(resourceArn=made["agentRuntimeArn"])["tags"]
    assert whole == {"of": "runtime"}


def test_lists_come_in_pages(aws: Aws) -> None:
    made = {aws.create() for _ in range(5)}
    paginator = aws.control.get_paginator("list_agent_runtimes")
    pages = list(paginator.paginate(PaginationConfig={"PageSize": 2}))
    listed = [item["agentRuntimeId"] for page in pages for item in page["agentRuntimes"]]
    assert made <= set(listed)
    assert len(listed) == len(set(listed))
    assert all(len(page["agentRuntimes"]) <= 2 for page in pages)
    for runtime_id in made:
        aws.settled(runtime_id)


def test_endpoints_of_their_own_keep_their_version(
    aws: Aws, tmp_path: Path, new_session: Sid
) -> None:
    arn = aws.deploy(write_agent(tmp_path / "agent", "old"))
    runtime_id = local.parse_arn(arn).runtime_id
    made = aws.control.create_agent_runtime_endpoint(agentRuntimeId=runtime_id, name="prod")
    assert made["targetVersion"] == "1"
    folder = write_agent(tmp_path / "agent", "new")
    aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body(folder))
    aws.settled(runtime_id)
    sid = new_session()  # the same id on two endpoints is two sessions
    assert aws.ask(arn, {}, sid, qualifier="prod") == "old"
    assert aws.ask(arn, {}, sid) == "new"
    update = aws.control.update_agent_runtime_endpoint
    update(agentRuntimeId=runtime_id, endpointName="prod", agentRuntimeVersion="2")
    aws.stop(arn, sid, qualifier="prod")
    assert aws.ask(arn, {}, sid, qualifier="prod") == "new"
    listed = aws.control.list_agent_runtime_endpoints(agentRuntimeId=runtime_id)
    assert [e["name"] for e in listed["runtimeEndpoints"]] == ["DEFAULT", "prod"]
    aws.control.delete_agent_runtime_endpoint(agentRuntimeId=runtime_id, endpointName="prod")
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException):
        aws.invoke(arn, {}, sid, qualifier="prod")
    aws.stop(arn, sid)


def test_tags_are_kept(aws: Aws) -> None:
    arn = aws.deploy(tags={"team": "a", "old": "x"})
    aws.control.tag_resource(resourceArn=arn, tags={"team": "b"})
    aws.control.untag_resource(resourceArn=arn, tagKeys=["old"])
    assert aws.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "b"}


def test_code_can_come_as_an_archive_from_the_local_store(aws: Aws, sid: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(ASGI_AGENT / "rl_app.py", "rl_app.py")
    aws.s3.put_object(Bucket="rollouts", Key="code/agent.zip", Body=packed.getvalue())
    where = {"s3": {"bucket": "rollouts", "prefix": "code/agent.zip"}}
    code = {"code": where, "runtime": "PYTHON_3_11", "entryPoint": ["rl_app.py"]}
    arn = aws.deploy(agentRuntimeArtifact={"codeConfiguration": code})
    assert aws.ask(arn, {}, sid)["calls"] == 1
    aws.stop(arn, sid)
    where["s3"]["prefix"] = "code/none.zip"
    with pytest.raises(aws.control.exceptions.ValidationException, match=r"none\.zip"):
        aws.create(agentRuntimeArtifact={"codeConfiguration": code})


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param({"name": "9digits"}, id="a name that begins with a digit"),
        pytest.param({"name": "a" * 49}, id="a name that is too long"),
        pytest.param({"folder": Path("/does/not/exist")}, id="a folder that is not there"),
        pytest.param({"entry": "nothing.py"}, id="an entry that is not there"),
        pytest.param({"entry": "../rl_app.py"}, id="an entry outside"),
        pytest.param(
            {"lifecycleConfiguration": {"maxLifetime": 28801}}, id="a lifetime over eight hours"
        ),
        pytest.param(
            {"lifecycleConfiguration": {"idleRuntimeSessionTimeout": 600, "maxLifetime": 60}},
            id="idle over lifetime",
        ),
        pytest.param({"environmentVariables": {"A B": "c"}}, id="a variable with a space"),
        pytest.param({"environmentVariables": {"A": "x" * 5001}}, id="a variable too long"),
        pytest.param({"environmentVariables": {"ART_NETWORK": "all"}}, id="an unknown network"),
        pytest.param({"protocolConfiguration": {"serverProtocol": "MCP"}}, id="another protocol"),
        pytest.param(
            {"protocolConfiguration": {"serverProtocol": "HTTP", "port": 9000}}, id="another port"
        ),
        pytest.param({"networkConfiguration": {"networkMode": "MARS"}}, id="an unknown mode"),
        pytest.param({"roleArn": "not a role"}, id="a role that is none"),
        pytest.param({"platformVersion": "V3"}, id="a platform that is none"),
        pytest.param({"resourceConfigurations": [{"minimumMemoryInMiB": 0}]}, id="no memory"),
        pytest.param({"environmentVariables": {"ART_LIMITS": "ram=2"}}, id="an unknown limit"),
        pytest.param({"environmentVariables": {"ART_INIT_S": "long"}}, id="a time that is none"),
        pytest.param({"description": "x" * 4097}, id="a long description"),
        pytest.param({"tags": {"k" * 129: "v"}}, id="a long key of a tag"),
        pytest.param({"tags": {"key": "semi;colon"}}, id="a bad value of a tag"),
        pytest.param({"clientToken": "umlaut-ü" * 6}, id="a token of other letters"),
        pytest.param({"lifecycleConfiguration": {"maxLifetime": 28_801}}, id="too long a life"),
        pytest.param(
            {"lifecycleConfiguration": {"idleRuntimeSessionTimeout": 90, "maxLifetime": 60}},
            id="idle longer than life",
        ),
        pytest.param(
            {"requestHeaderConfiguration": {"requestHeaderAllowlist": ["X-Amz-Date"]}},
            id="a header of the platform",
        ),
        pytest.param(
            {"requestHeaderConfiguration": {"requestHeaderAllowlist": ["Transfer-Encoding"]}},
            id="a header of the connection",
        ),
    ],
)
def test_bad_input_is_a_validation_error_and_registers_nothing(
    aws: Aws, blocks: dict[str, Any]
) -> None:
    name = blocks.pop("name", unique())
    with pytest.raises(aws.control.exceptions.ValidationException) as refused:
        aws.create(name=name, **blocks)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    listed = aws.control.list_agent_runtimes()["agentRuntimes"]
    assert name not in {item["agentRuntimeName"] for item in listed}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"",
        b"{}",
        b'{"agentRuntimeName": "a"}',
        b'{"agentRuntimeName": "a", "roleArn": "r", "lifecycleConfiguration": "long"}',
        b'{"agentRuntimeName": "a", "roleArn": "r", "agentRuntimeArtifact": [1]}',
    ],
)
def test_a_body_that_is_not_the_operations_is_a_validation_error(aws: Aws, body: bytes) -> None:
    request = urllib.request.Request(aws.url + "/runtimes/", data=body, method="PUT")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.headers["x-amzn-ErrorType"] == "ValidationException"
        assert json.loads(answer.read())["message"]


def test_a_runtime_that_is_being_changed_refuses_another_change(aws: Aws, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "rl_app.py").write_text(
        "import os, time\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n" + VERSIONED.format(text="x")
    )
    runtime_id = aws.create(tmp_path / "agent", environmentVariables=PROCESS)
    with pytest.raises(aws.control.exceptions.ConflictException):
        aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body())
    with pytest.raises(aws.control.exceptions.ConflictException):
        aws.control.delete_agent_runtime(agentRuntimeId=runtime_id)
    gate.touch()
    assert aws.settled(runtime_id)["status"] == "READY"


def test_other_operations_say_that_they_are_not_implemented(aws: Aws) -> None:
    with pytest.raises(ClientError, match="not implemented by the local") as refused:
        aws.control.list_memories()
    assert refused.value.response["Error"]["Code"] == "NotImplementedException"


def test_an_update_keeps_the_platform_unless_it_names_another(aws: Aws) -> None:
    runtime_id = local.parse_arn(aws.deploy()).runtime_id
    assert "platformVersion" not in aws.settled(runtime_id)
    for named, kept in (("V2", "V2"), (None, "V2"), ("V1", "V1")):
        given = {"platformVersion": named} if named else {}
        aws.control.update_agent_runtime(agentRuntimeId=runtime_id, **aws.body(**given))
        assert aws.settled(runtime_id)["platformVersion"] == kept


def test_a_program_that_is_not_python_is_an_agent(aws: Aws, tmp_path: Path, sid: str) -> None:
    (tmp_path / "serve.py").write_text(
        "from http.server import BaseHTTPRequestHandler, HTTPServer\n"
        "class Handler(BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        "        self.wfile.write(b'\"a program\"')\n"
        "    do_POST = do_GET\n"
        "HTTPServer(('0.0.0.0', 8080), Handler).serve_forever()\n"
    )
    program = tmp_path / "start"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} /app/serve.py\n")
    with pytest.raises(aws.control.exceptions.ValidationException, match=r"chmod \+x start"):
        aws.create(tmp_path, entry="start")
    program.chmod(0o755)
    arn = aws.deploy(tmp_path, entry="start")
    assert aws.ask(arn, {}, sid) == "a program"
    aws.stop(arn, sid)


def test_memory_that_is_asked_for_is_what_a_session_may_take(aws: Aws) -> None:
    arn = aws.deploy(resourceConfigurations=[{"minimumMemoryInMiB": 2048}])
    found = aws.settled(local.parse_arn(arn).runtime_id)
    assert found["resourceConfigurations"] == [{"minimumMemoryInMiB": 2048}]
    assert (memory_of(found), memory_of({})) == (2048, 0)


@pytest.mark.skipif(not cgroup.find().memory, reason="no control group bounds memory here")
def test_limits_of_an_agent_hold_in_its_sessions(aws: Aws, sid: str) -> None:
    arn = aws.deploy(environmentVariables={"ART_LIMITS": "memory_mb=200"})
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match=r"limit 200 MB"):
        aws.ask(arn, {"size": 400_000_000}, sid)
    until(lambda: sid not in aws.sessions(), "the session is gone")
    assert aws.ask(arn, {}, sid)["calls"] == 1
    aws.stop(arn, sid)
