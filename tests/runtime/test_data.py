from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import AGENTS, PROCESS, Aws, alive, until

Sid = Callable[[], str]


def code(refused: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    answer = refused.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def message(refused: pytest.ExceptionInfo[ClientError]) -> str:
    return str(refused.value.response["Error"]["Message"])


@pytest.fixture
def raw(aws: Aws) -> Iterator[http.client.HTTPConnection]:
    where = urlsplit(aws.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    yield connection
    connection.close()


def post(
    connection: http.client.HTTPConnection, arn: str, body: Any, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    path = f"/runtimes/{quote(arn, safe='')}/invocations"
    connection.request("POST", path, json.dumps(body).encode(), headers)
    answer = connection.getresponse()
    return answer, answer.read()


# --- what works -------------------------------------------------------------------------------


def test_an_invocation_reaches_the_agent_and_its_answer_comes_back(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    answer = aws.invoke(asgi_arn, {"prompt": "hä\u2028"}, sid)
    assert answer["statusCode"] == 200
    assert answer["runtimeSessionId"] == sid
    assert answer["contentType"] == "application/json"
    seen = json.loads(answer["response"].read())
    assert json.loads(seen["body"]) == {"prompt": "hä\u2028"}
    assert seen["headers"]["x-amzn-bedrock-agentcore-runtime-session-id"] == sid
    assert uuid.UUID(seen["headers"]["x-amzn-bedrock-agentcore-runtime-request-id"])
    assert seen["headers"]["content-type"] == "application/json"
    assert "authorization" not in seen["headers"]
    aws.stop(asgi_arn, sid)


def test_one_session_keeps_its_process_and_another_has_its_own(
    aws: Aws, asgi_arn: str, new_session: Sid
) -> None:
    first, second = new_session(), new_session()
    seen = [aws.ask(asgi_arn, {}, one) for one in (first, first, second)]
    assert [one["calls"] for one in seen] == [1, 2, 1]
    assert aws.host_pid(first) != aws.host_pid(second)
    for one in (first, second):
        aws.stop(asgi_arn, one)


def test_the_real_toolkit_app_answers(aws: Aws, sid: str) -> None:
    arn = aws.deploy(AGENTS / "echo_agent")
    assert aws.ask(arn, {"prompt": "x"}, sid)["echo"] == {"prompt": "x"}
    assert "agent" not in aws.sessions()[sid]["state"]
    aws.stop(arn, sid)


def test_an_omitted_session_id_is_made_and_returned(aws: Aws, asgi_arn: str) -> None:
    answer = aws.data.invoke_agent_runtime(agentRuntimeArn=asgi_arn, payload=b"{}")
    answer["response"].read()
    aws.stop(asgi_arn, answer["runtimeSessionId"])


def test_a_raw_caller_without_a_session_id_gets_one(
    aws: Aws, asgi_arn: str, raw: http.client.HTTPConnection
) -> None:
    answer, _ = post(raw, asgi_arn, {}, {})
    made = answer.getheader("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id") or ""
    assert made in aws.sessions()
    aws.stop(asgi_arn, made)


def test_a_bare_runtime_id_with_an_account_works(aws: Aws, asgi_arn: str, sid: str) -> None:
    runtime_id = local.parse_arn(asgi_arn).runtime_id
    seen = aws.ask(runtime_id, {}, sid, accountId="000000000000")
    assert seen["calls"] == 1
    aws.stop(asgi_arn, sid)


def test_headers_of_the_contract_and_of_the_allow_list_reach_the_agent(
    aws: Aws, raw: http.client.HTTPConnection, sid: str
) -> None:
    name = "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Tenant"
    arn = aws.deploy(requestHeaderConfiguration={"requestHeaderAllowlist": [name]})
    headers = {
        "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": sid,
        "Content-Type": "text/special",
        "Accept": "text/event-stream",
        "traceparent": "00-1",
        "baggage": "a=b",
        name: "blue",
        "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Other": "red",
        "Cookie": "a=b",
    }
    _, body = post(raw, arn, {}, headers)
    seen = json.loads(body)["headers"]
    assert seen["content-type"] == "text/special"
    assert seen["accept"] == "text/event-stream"
    assert (seen["traceparent"], seen["baggage"]) == ("00-1", "a=b")
    assert seen[name.lower()] == "blue"
    assert "x-amzn-bedrock-agentcore-runtime-custom-other" not in seen
    assert "cookie" not in seen
    answer, _ = post(raw, arn, {}, {**headers, name: "b" * 4097})
    assert (answer.status, answer.getheader("x-amzn-ErrorType")) == (400, "ValidationException")
    aws.stop(arn, sid)


@pytest.mark.parametrize("size", [0, 1000, 300_000, 9_000_000])
def test_bodies_of_every_size_go_through_both_ways(
    aws: Aws, asgi_arn: str, sid: str, size: int
) -> None:
    assert aws.ask(asgi_arn, b"[" + b" " * size, sid)["length"] == size + 1
    answer = aws.invoke(asgi_arn, {"size": size}, sid)
    assert len(answer["response"].read()) == size
    aws.stop(asgi_arn, sid)


def test_a_stream_is_passed_on_event_by_event(aws: Aws, asgi_arn: str, sid: str) -> None:
    answer = aws.invoke(asgi_arn, {"stream": ["one", "two"], "wait": "gate"}, sid)
    assert answer["contentType"] == "text/event-stream"
    lines = answer["response"].iter_lines(chunk_size=1)
    assert next(lines) == b"data: one"  # the agent holds the second one back until now
    aws.ask(asgi_arn, {"open": "gate"}, sid)
    assert [line for line in lines if line] == [b"data: two"]
    aws.stop(asgi_arn, sid)


def test_a_session_takes_many_invocations_at_once(aws: Aws, asgi_arn: str, sid: str) -> None:
    aws.ask(asgi_arn, {}, sid)
    with ThreadPoolExecutor(50) as pool:
        waiting = [pool.submit(aws.ask, asgi_arn, {"wait": "all"}, sid) for _ in range(40)]
        until(lambda: aws.sessions()[sid]["in_flight"] == 40, "all are in flight")
        assert aws.sessions()[sid]["state"] == "active"
        aws.ask(asgi_arn, {"open": "all"}, sid)
        # One that was counted here may reach the agent after the gate has been opened.
        assert max(one.result()["calls"] for one in waiting) == 42
    assert aws.sessions()[sid]["in_flight"] == 0
    aws.stop(asgi_arn, sid)


def test_the_environment_of_a_session_has_nothing_of_the_host(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    env = aws.ask(asgi_arn, {}, sid)["env"]
    assert env["AWS_ENDPOINT_URL_S3"] == aws.url
    assert env["AWS_ACCESS_KEY_ID"] == "local"
    assert not {"USER", "PWD", "PYTEST_CURRENT_TEST", "VIRTUAL_ENV"} & set(env)
    aws.stop(asgi_arn, sid)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["a" * 257, "-" + "a" * 40, "a" * 32 + "/..", "a" * 40 + "é"])
def test_a_session_id_out_of_bounds_is_a_validation_error(
    aws: Aws, asgi_arn: str, bad: str
) -> None:
    with pytest.raises(aws.data.exceptions.ValidationException) as refused:
        aws.invoke(asgi_arn, {}, bad)
    assert code(refused) == ("ValidationException", 400)
    assert "33 to 256" in message(refused)


def test_a_session_id_that_is_too_short_is_a_validation_error(
    asgi_arn: str, raw: http.client.HTTPConnection
) -> None:
    headers = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "a" * 32}
    answer, _ = post(raw, asgi_arn, {}, headers)
    assert (answer.status, answer.getheader("x-amzn-ErrorType")) == (400, "ValidationException")


@pytest.mark.parametrize(
    "arn",
    [
        local.runtime_arn("nothing-0123456789"),
        "nothing-0123456789",
        "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/agent-0123456789",
    ],
)
def test_an_unknown_runtime_is_not_found(aws: Aws, arn: str, sid: str) -> None:
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException) as refused:
        aws.invoke(arn, {}, sid)
    assert code(refused) == ("ResourceNotFoundException", 404)


def test_an_unknown_endpoint_is_not_found(aws: Aws, asgi_arn: str, sid: str) -> None:
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException, match="qualifier 'nope'"):
        aws.invoke(asgi_arn, {}, sid, qualifier="nope")


def test_a_malformed_arn_is_a_validation_error(aws: Aws, sid: str) -> None:
    with pytest.raises(aws.data.exceptions.ValidationException, match="not an AgentCore Runtime"):
        aws.invoke("arn:aws:s3:::bucket", {}, sid)


def test_a_body_over_the_limit_is_refused_before_it_is_read(
    aws: Aws, asgi_arn: str, raw: http.client.HTTPConnection, sid: str
) -> None:
    raw.putrequest("POST", f"/runtimes/{quote(asgi_arn, safe='')}/invocations")
    raw.putheader("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", sid)
    raw.putheader("Content-Length", "100000001")
    raw.endheaders()
    answer = raw.getresponse()
    assert answer.status == 400
    assert b"100000000" in answer.read()
    assert sid not in aws.sessions()


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_error_of_the_agent_is_424_and_tells_what_it_said(
    aws: Aws, asgi_arn: str, sid: str, status: int
) -> None:
    with pytest.raises(aws.data.exceptions.RuntimeClientError) as refused:
        aws.invoke(asgi_arn, {"status": status, "body": '{"error": "no such tool"}'}, sid)
    assert code(refused) == ("RuntimeClientError", 424)
    assert message(refused) == (
        f"Received error ({status}) from runtime. Please check your CloudWatch logs for more "
        "information. Agent said: no such tool"
    )
    aws.stop(asgi_arn, sid)


def test_only_the_first_500_characters_of_an_error_are_told(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    with pytest.raises(ClientError) as refused:
        aws.invoke(asgi_arn, {"status": 500, "body": "x" * 5000}, sid)
    assert message(refused).count("x") == 500
    aws.stop(asgi_arn, sid)


def test_an_unimplemented_operation_says_so(asgi_arn: str, raw: http.client.HTTPConnection) -> None:
    path = f"/runtimes/{quote(asgi_arn, safe='')}/invocations/.well-known/oauth-protected-resource"
    raw.request("GET", path)
    answer = raw.getresponse()
    assert (answer.status, b"not implemented by the local" in answer.read()) == (501, True)


def test_the_agent_card_is_what_the_agent_says(aws: Aws, tmp_path: Path, sid: str) -> None:
    (tmp_path / "rl_app.py").write_text(
        "import json, os, uvicorn\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n"
        "        return\n"
        "    card = {'name': 'carded', 'skills': [], 'path': scope['path']}\n"
        "    said = os.environ.get('CARD') or json.dumps(card)\n"
        "    body = b'{\"status\": \"Healthy\"}' if scope['path'] == '/ping' else said.encode()\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': body})\n"
        "uvicorn.run(app, port=8080)\n"
    )
    arn = aws.deploy(tmp_path)
    answer = aws.data.get_agent_card(agentRuntimeArn=arn, runtimeSessionId=sid)
    assert (answer["statusCode"], answer["runtimeSessionId"]) == (200, sid)
    assert answer["agentCard"]["name"] == "carded"
    assert answer["agentCard"]["path"] == "/.well-known/agent-card.json"
    aws.stop(arn, sid)
    arn = aws.deploy(tmp_path, environmentVariables={"CARD": "[1]"})
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match="not a JSON object"):
        aws.data.get_agent_card(agentRuntimeArn=arn, runtimeSessionId=sid)
    aws.stop(arn, sid)


def test_an_agent_that_has_no_card_is_424(aws: Aws, sid: str) -> None:
    arn = aws.deploy(AGENTS / "echo_agent")
    with pytest.raises(aws.data.exceptions.RuntimeClientError, match=r"error \(404\) from runtime"):
        aws.data.get_agent_card(agentRuntimeArn=arn, runtimeSessionId=sid)
    aws.stop(arn, sid)


def test_an_account_that_is_not_here_is_refused(aws: Aws, asgi_arn: str, sid: str) -> None:
    runtime_id = local.parse_arn(asgi_arn).runtime_id
    with pytest.raises(aws.data.exceptions.ValidationException, match="12 digits"):
        aws.invoke(runtime_id, {}, sid, accountId="mine")
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException, match="123456789012"):
        aws.invoke(runtime_id, {}, sid, accountId="123456789012")
    assert sid not in aws.sessions()


def test_an_arn_whose_slash_is_not_encoded_is_told_so(
    asgi_arn: str, raw: http.client.HTTPConnection
) -> None:
    raw.request("POST", f"/runtimes/{asgi_arn}/invocations", b"{}")
    answer = raw.getresponse()
    assert (answer.status, b"%2F" in answer.read()) == (400, True)


def test_an_agent_that_answers_no_http_is_told_in_one_sentence(
    aws: Aws, tmp_path: Path, sid: str
) -> None:
    (tmp_path / "serve.py").write_text(
        "import socket\n"
        "listener = socket.create_server(('0.0.0.0', 8080))\n"
        "while True:\n"
        "    caller, _ = listener.accept()\n"
        "    asked = caller.recv(65536)\n"
        "    ok = b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'\n"
        "    caller.sendall(ok if b'/ping' in asked else b'nonsense\\r\\n\\r\\n')\n"
        "    caller.close()\n"
    )
    arn = aws.deploy(tmp_path, entry="serve.py")
    with pytest.raises(aws.data.exceptions.RuntimeClientError) as refused:
        aws.invoke(arn, {}, sid)
    assert "without a valid HTTP answer" in message(refused)
    assert "RequestInfo" not in message(refused)
    aws.stop(arn, sid)


# --- stop -------------------------------------------------------------------------------------


def test_stop_ends_the_whole_session_and_the_id_can_be_used_again(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    aws.ask(asgi_arn, {}, sid)
    pid = aws.host_pid(sid)
    assert alive(pid)
    answer = aws.stop(asgi_arn, sid)
    assert (answer["statusCode"], answer["runtimeSessionId"]) == (200, sid)
    assert not alive(pid)
    assert aws.ask(asgi_arn, {}, sid)["calls"] == 1
    assert aws.host_pid(sid) != pid
    aws.stop(asgi_arn, sid)


def test_stop_takes_daemonised_children_too(aws: Aws, sid: str) -> None:
    arn = aws.deploy(AGENTS / "echo_agent", environmentVariables=PROCESS)
    left = aws.ask(arn, {"spawn": True}, sid)["spawned_pid"]
    assert alive(left)
    aws.stop(arn, sid)
    assert not alive(left)


def test_stopping_an_unknown_session_is_not_found(aws: Aws, asgi_arn: str, sid: str) -> None:
    with pytest.raises(aws.data.exceptions.ResourceNotFoundException):
        aws.stop(asgi_arn, sid)


def test_a_stop_that_is_sent_again_gets_the_same_answer(aws: Aws, asgi_arn: str, sid: str) -> None:
    token = str(uuid.uuid4())
    aws.ask(asgi_arn, {}, sid)
    aws.stop(asgi_arn, sid, clientToken=token)
    aws.stop(asgi_arn, sid, clientToken=token)
    aws.ask(asgi_arn, {}, sid)
    aws.stop(asgi_arn, sid, clientToken=token)
    assert sid in aws.sessions()
    aws.stop(asgi_arn, sid)
    assert sid not in aws.sessions()


def test_a_stop_with_a_token_that_is_none_is_refused(
    aws: Aws, asgi_arn: str, raw: http.client.HTTPConnection, sid: str
) -> None:
    aws.ask(asgi_arn, {}, sid)
    headers = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": sid}
    for body in (b'{"clientToken": "short"}', b'{"clientToken": 5}', b"[]", b"{", b"[" * 100_000):
        path = f"/runtimes/{quote(asgi_arn, safe='')}/stopruntimesession"
        raw.request("POST", path, body, headers)
        answer = raw.getresponse()
        assert (answer.status, b"message" in answer.read()) == (400, True)
    aws.stop(asgi_arn, sid)


def test_headers_over_the_bounds_of_the_model_are_a_validation_error(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    for given in (
        {"contentType": "a" * 257},
        {"runtimeUserId": "u" * 1025},
        {"mcpSessionId": "m" * 1025},
        {"traceParent": "t" * 129},
        {"traceId": "t" * 129},
    ):
        with pytest.raises(aws.data.exceptions.ValidationException, match="longer than"):
            aws.invoke(asgi_arn, {}, sid, **given)
    assert sid not in aws.sessions()


def test_stop_ends_requests_in_flight(aws: Aws, asgi_arn: str, sid: str) -> None:
    aws.ask(asgi_arn, {}, sid)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(aws.ask, asgi_arn, {"wait": "never"}, sid)
        until(lambda: aws.sessions()[sid]["in_flight"] == 1, "it is in flight")
        aws.stop(asgi_arn, sid)
        with pytest.raises(aws.data.exceptions.RuntimeClientError, match="session ended"):
            waiting.result()


def test_a_stream_that_breaks_off_does_not_look_complete(aws: Aws, asgi_arn: str, sid: str) -> None:
    answer = aws.invoke(asgi_arn, {"stream": ["one", "two"], "wait": "never"}, sid)
    lines = answer["response"].iter_lines(chunk_size=1)
    assert next(lines) == b"data: one"
    aws.stop(asgi_arn, sid)
    with pytest.raises(Exception, match=r"(?i)broken|incomplete|closed|reset"):
        list(lines)


# --- sessions that die ------------------------------------------------------------------------


def test_an_agent_that_dies_in_mid_request_is_424_with_its_reason(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    with pytest.raises(aws.data.exceptions.RuntimeClientError) as refused:
        aws.invoke(asgi_arn, {"die": 7}, sid)
    assert "exit code 7" in message(refused)
    until(lambda: sid not in aws.sessions(), "the session is gone")
    assert aws.ask(asgi_arn, {}, sid)["calls"] == 1
    aws.stop(asgi_arn, sid)


@pytest.mark.parametrize("level", ["process", "auto"])
def test_a_killed_session_is_lost_and_its_neighbours_are_not(
    shared_runtime: RuntimeThread, aws: Aws, new_session: Sid, level: str
) -> None:
    arn = aws.deploy(environmentVariables={"ART_ISOLATION": level})
    victim, neighbour = new_session(), new_session()
    for one in (victim, neighbour):
        aws.ask(arn, {}, one)
    neighbour_pid = aws.host_pid(neighbour)
    with ThreadPoolExecutor(2) as pool:
        doomed = pool.submit(aws.ask, arn, {"wait": "go"}, victim)
        unharmed = pool.submit(aws.ask, arn, {"wait": "go"}, neighbour)
        until(lambda: aws.sessions()[victim]["in_flight"], "it is in flight")
        os.kill(aws.host_pid(victim), signal.SIGKILL)
        with pytest.raises(aws.data.exceptions.RuntimeClientError, match="session ended"):
            doomed.result()
        aws.ask(arn, {"open": "go"}, neighbour)
        assert unharmed.result()["calls"] == 3
        assert aws.host_pid(neighbour) == neighbour_pid
    until(lambda: victim not in aws.sessions(), "the table forgets it")
    events = shared_runtime.call(lambda: [e.text for e in shared_runtime.server.events.ring])
    lost = [json.loads(e.split(b"data: ")[1]) for e in events if b'"lost"' in e]
    assert [bool(e["reason"]) for e in lost if e["session_id"] == victim] == [True]
    assert neighbour not in {e["session_id"] for e in lost}
    aws.stop(arn, neighbour)


def test_an_agent_process_that_is_killed_takes_its_session_along(aws: Aws, sid: str) -> None:
    arn = aws.deploy(environmentVariables=PROCESS)
    os.kill(aws.ask(arn, {}, sid)["pid"], signal.SIGKILL)
    until(lambda: sid not in aws.sessions(), "the session is gone")
    assert aws.ask(arn, {}, sid)["calls"] == 1
    aws.stop(arn, sid)


# --- one session, two operations --------------------------------------------------------------

SLOW_START = """
import os, time, uvicorn
from pathlib import Path
here = Path(os.environ["GATE"])
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        while not (here / "open").exists():
            time.sleep(0.01)
        await send({"type": "lifespan.startup.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(app, port=8080, log_level="warning")
"""


@pytest.fixture
def slow_arn(aws: Aws, tmp_path: Path) -> str:
    """An agent whose session stays in provisioning until the file ``open`` appears."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "rl_app.py").write_text(SLOW_START)
    return aws.deploy(tmp_path / "agent", environmentVariables={**PROCESS, "GATE": str(tmp_path)})


def test_another_operation_while_a_session_is_provisioned_is_a_retryable_conflict(
    aws: Aws, slow_arn: str, tmp_path: Path, sid: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(aws.ask, slow_arn, {}, sid)
        until(lambda: sid in aws.sessions(), "the session is being started")
        assert aws.sessions()[sid]["state"] == "provisioning"
        with pytest.raises(ClientError) as invoked:
            aws.invoke(slow_arn, {}, sid)
        with pytest.raises(ClientError) as stopped:
            aws.stop(slow_arn, sid)
        assert code(invoked) == code(stopped) == ("RetryableConflictException", 409)
        (tmp_path / "open").touch()
        assert first.result() == {}
    aws.stop(slow_arn, sid)


def test_boto3_gets_over_the_conflict_in_standard_mode(
    connect: Callable[..., Aws], aws: Aws, slow_arn: str, tmp_path: Path, sid: str
) -> None:
    patient = connect(aws.url, retries={"mode": "standard", "total_max_attempts": 8})
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(aws.ask, slow_arn, {}, sid)
        until(lambda: sid in aws.sessions(), "the session is being started")
        assert aws.sessions()[sid]["state"] == "provisioning"
        second = pool.submit(patient.ask, slow_arn, {}, sid)
        (tmp_path / "open").touch()
        assert first.result() == second.result() == {}
    aws.stop(slow_arn, sid)


@pytest.mark.parametrize("mode", ["standard", "legacy"])
def test_an_invoke_that_boto3_sends_again_runs_once(
    connect: Callable[..., Aws], aws: Aws, asgi_arn: str, sid: str, mode: str
) -> None:
    aws.ask(asgi_arn, {}, sid)
    hasty = connect(aws.url, read_timeout=0.3, retries={"mode": mode, "total_max_attempts": 20})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(hasty.invoke, asgi_arn, {"wait": "slow"}, sid)
        sent: list[int] = []
        lock = threading.Lock()

        def count(**_: Any) -> None:
            with lock:
                sent.append(1)

        hasty.data.meta.events.register("before-send.bedrock-agentcore", count)
        until(lambda: len(sent) >= 2, "it is sent again", 30)
        assert aws.ask(asgi_arn, {"open": "slow"}, sid)["calls"] == 3  # this one is the third
        seen = json.loads(answer.result()["response"].read())
    assert seen["calls"] == 3
    assert aws.ask(asgi_arn, {}, sid)["calls"] == 4
    aws.stop(asgi_arn, sid)


def test_a_repeated_request_gets_the_same_answer_also_after_it_was_given(
    asgi_arn: str, aws: Aws, raw: http.client.HTTPConnection, sid: str
) -> None:
    headers = {
        "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": sid,
        "amz-sdk-invocation-id": str(uuid.uuid4()),
    }
    answers = [post(raw, asgi_arn, {"n": 1}, headers)[1] for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert json.loads(answers[0])["calls"] == 1
    bad = {**headers, "amz-sdk-invocation-id": str(uuid.uuid4())}
    refused = [post(raw, asgi_arn, {"status": 500, "body": "x"}, bad)[0].status for _ in range(2)]
    assert refused == [424, 424]
    assert aws.ask(asgi_arn, {}, sid)["calls"] == 3
    aws.stop(asgi_arn, sid)


def test_a_repeated_request_during_a_stream_gets_the_whole_stream(
    asgi_arn: str, aws: Aws, sid: str
) -> None:
    where = urlsplit(aws.url)
    headers = {
        "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": sid,
        "amz-sdk-invocation-id": str(uuid.uuid4()),
    }
    path = f"/runtimes/{quote(asgi_arn, safe='')}/invocations"
    body = json.dumps({"stream": ["one", "two"], "wait": "gate"}).encode()
    first = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    first.request("POST", path, body, headers)
    assert first.getresponse().fp.readline()  # it has begun
    first.close()
    second = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    second.request("POST", path, body, headers)
    answer = second.getresponse()
    assert answer.readline() == b"data: one\n"
    aws.ask(asgi_arn, {"open": "gate"}, sid)
    assert answer.read() == b"\ndata: two\n\n"
    second.close()
    assert aws.ask(asgi_arn, {}, sid)["calls"] == 3
    aws.stop(asgi_arn, sid)


def test_a_caller_that_leaves_does_not_end_the_work(aws: Aws, asgi_arn: str, sid: str) -> None:
    hasty = Aws(aws.url, read_timeout=0.2)
    with pytest.raises(ReadTimeoutError):
        hasty.invoke(asgi_arn, {"wait": "later"}, sid)
    hasty.close()
    assert aws.sessions()[sid]["in_flight"] == 1
    aws.ask(asgi_arn, {"open": "later"}, sid)
    until(lambda: aws.sessions()[sid]["in_flight"] == 0, "the work ends by itself")
    aws.stop(asgi_arn, sid)


def test_a_caller_that_hangs_up_while_sending_harms_nobody(
    aws: Aws, asgi_arn: str, sid: str
) -> None:
    where = urlsplit(aws.url)
    head = (
        f"POST /runtimes/{quote(asgi_arn, safe='')}/invocations HTTP/1.1\r\n"
        f"Host: {where.netloc}\r\nContent-Length: 5000000\r\n"
        f"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id: {sid}\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port)) as caller:
        caller.sendall(head.encode() + b"x" * 100_000)
        until(lambda: aws.sessions().get(sid, {}).get("in_flight") == 1, "the upload began")
    until(lambda: aws.sessions()[sid]["in_flight"] == 0, "the upload is given up")
    assert aws.ask(asgi_arn, {}, sid)["calls"] >= 1
    aws.stop(asgi_arn, sid)
