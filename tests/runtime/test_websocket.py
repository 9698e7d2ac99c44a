"""The WebSocket pass-through with another implementation at each end: websockets and uvicorn."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import boto3
import pytest
from bedrock_agentcore.runtime import AgentCoreRuntimeClient
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.awsquota import AwsQuotas
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import Aws, until

AGENT = Path(__file__).parent / "ws_agent"
SID = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"


@pytest.fixture(scope="module")
def arn(shared_aws: Aws) -> Iterator[str]:
    made = shared_aws.deploy(AGENT, name="talker")
    shared_aws.created.remove(local.parse_arn(made).runtime_id)
    yield made
    shared_aws.control.delete_agent_runtime(agentRuntimeId=local.parse_arn(made).runtime_id)


def dial(url: str, arn: str, sid: str, **options: Any) -> ClientConnection:
    where = f"ws://{urlsplit(url).netloc}/runtimes/{quote(arn, safe='')}/ws"
    return connect(where, additional_headers={SID: sid}, proxy=None, open_timeout=60, **options)


def exchange(ws: ClientConnection, *messages: str | bytes) -> None:
    for message in messages:
        ws.send(message)
        ws.recv(timeout=60)


def test_messages_pass_both_ways_and_the_session_is_made(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid) as ws:
        assert json.loads(ws.recv())["session"] == sid
        assert ws.response is not None
        assert ws.response.headers[SID] == sid
        ws.send("grüße")
        assert ws.recv() == "GRÜSSE"
        ws.send(b"\x00\x01\xff")
        assert ws.recv() == b"\xff\x01\x00"
        ws.send("x" * 500_000)
        assert ws.recv() == "X" * 500_000
    aws.stop(arn, sid)


def test_it_is_the_session_that_invocations_reach(aws: Aws, arn: str, sid: str) -> None:
    aws.ask(arn, {}, sid)
    with dial(aws.url, arn, sid) as one, dial(aws.url, arn, sid) as two:
        assert json.loads(one.recv()) == json.loads(two.recv())
    aws.stop(arn, sid)


def test_an_open_connection_is_activity(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid):
        assert aws.sessions()[sid]["state"] == "active"
    until(lambda: aws.sessions()[sid]["state"] == "idle", "it is idle again")
    aws.stop(arn, sid)


def test_the_agent_chooses_the_subprotocol(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid, subprotocols=["one", "two"]) as ws:  # type: ignore[list-item]
        assert ws.subprotocol == "two"
    with dial(aws.url, arn, sid) as ws:
        assert ws.subprotocol is None
    aws.stop(arn, sid)


def test_a_ping_goes_all_the_way(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid, ping_interval=None) as ws:
        assert ws.ping(b"are you there").wait(10)
    aws.stop(arn, sid)


def test_the_agents_close_code_and_reason_reach_the_caller(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid) as ws:
        ws.recv()
        ws.send("close 4321 enough of this")
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "enough of this")
    aws.stop(arn, sid)


def test_the_callers_close_code_reaches_the_agent(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid) as ws:
        ws.recv()
        ws.close(4567, "bye")
    until(lambda: aws.ask(arn, {}, sid)["ended"] == [4567], "the agent sees it")
    aws.stop(arn, sid)


def test_a_caller_who_is_gone_without_a_word_is_told_to_the_agent(
    aws: Aws, arn: str, sid: str
) -> None:
    with dial(aws.url, arn, sid) as ws:
        ws.recv()
        ws.socket.shutdown(2)
        until(lambda: len(aws.ask(arn, {}, sid)["ended"]) == 1, "the agent sees it")
    until(lambda: aws.sessions()[sid]["in_flight"] == 0, "it is no activity any more")
    aws.stop(arn, sid)


@pytest.mark.parametrize("how", ["stop", "die"])
def test_the_end_of_the_session_closes_the_connection(
    aws: Aws, arn: str, sid: str, how: str
) -> None:
    with dial(aws.url, arn, sid) as ws:
        ws.recv()
        if how == "stop":
            aws.stop(arn, sid)
        else:
            ws.send("die")
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011


def test_a_message_over_the_limit_closes_with_1009(aws: Aws, arn: str, sid: str) -> None:
    with dial(aws.url, arn, sid) as ws:
        ws.recv()
        with pytest.raises(ConnectionClosed) as closed:
            exchange(ws, b"x" * (16 * 1024 * 1024 + 1))
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    aws.stop(arn, sid)


def test_an_agent_that_refuses_is_424(aws: Aws, arn: str, sid: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(aws.url, arn, sid, subprotocols=["refused"])  # type: ignore[list-item]
    assert refused.value.response.status_code == 424
    assert refused.value.response.headers["x-amzn-ErrorType"] == "RuntimeClientError"
    aws.stop(arn, sid)


def test_an_unknown_runtime_is_404_and_a_plain_request_400(aws: Aws, arn: str, sid: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(aws.url, arn[:-10] + "0" * 10, sid)
    assert refused.value.response.status_code == 404
    where = urlsplit(aws.url)
    plain = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    plain.request("GET", f"/runtimes/{quote(arn, safe='')}/ws", headers={SID: sid})
    answer = plain.getresponse()
    assert answer.status == 400
    answer.read()
    plain.close()
    assert sid not in aws.sessions()


@pytest.mark.parametrize("presigned", [False, True], ids=["headers", "presigned URL"])
def test_the_sdks_own_client_class_makes_the_connection(
    aws: Aws, arn: str, sid: str, presigned: bool
) -> None:
    """It signs for AWS's host and cannot be told another: only that is changed here."""
    session = boto3.Session(region_name="us-east-1", **local.CREDENTIALS)
    client = AgentCoreRuntimeClient(region="us-east-1", session=session)
    aws_arn = arn.replace(":local:", ":us-east-1:")
    if presigned:
        url, headers = client.generate_presigned_url(aws_arn, session_id=sid), {}
    else:
        url, headers = client.generate_ws_connection(aws_arn, session_id=sid)
    parts = urlsplit(url.replace("us-east-1%3A000", "local%3A000"))
    for name in ("Host", "Connection", "Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version"):
        headers.pop(name, None)
    local_url = parts._replace(scheme="ws", netloc=urlsplit(aws.url).netloc).geturl()
    with connect(local_url, additional_headers=headers, proxy=None) as ws:
        assert json.loads(ws.recv())["session"] == sid
    aws.stop(arn, sid)


def test_awss_frame_quotas_can_be_rehearsed(tmp_path: Path, sid: str) -> None:
    quotas = AwsQuotas(frame_bytes=1000, frames=5)
    with RuntimeThread(home=tmp_path, quotas=quotas) as runtime:
        aws = Aws(runtime.url)
        arn = aws.deploy(AGENT)
        with dial(aws.url, arn, sid) as ws:
            ws.recv()
            ws.send("x" * 1001)
            with pytest.raises(ConnectionClosed) as large:
                ws.recv(timeout=60)
        with dial(aws.url, arn, sid) as ws:
            ws.recv()
            with pytest.raises(ConnectionClosed) as many:
                exchange(ws, *("x" * 50))
        aws.close()
    assert large.value.rcvd is not None
    assert many.value.rcvd is not None
    assert (large.value.rcvd.code, many.value.rcvd.code) == (1009, 1008)
