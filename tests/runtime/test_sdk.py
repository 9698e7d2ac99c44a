"""The bedrock-agentcore SDK's own client, with nothing changed but the endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import boto3
import pytest
from bedrock_agentcore.runtime import AgentCoreRuntimeClient, WaitConfig

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import ASGI_AGENT, ROLE, Aws

SOON = WaitConfig(max_wait=30, poll_interval=1)
WS_AGENT = Path(__file__).parent / "ws_agent"


def artifact(folder: Path) -> dict[str, Any]:
    return {"containerConfiguration": {"containerUri": f"{folder.as_uri()}#rl_app.py"}}


def sdk(url: str, **keys: str) -> AgentCoreRuntimeClient:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        session = boto3.Session(region_name="us-west-2", **keys)
        return AgentCoreRuntimeClient(session=session)


@pytest.fixture
def client(aws: Aws) -> Iterator[AgentCoreRuntimeClient]:
    made = sdk(aws.url, **local.CREDENTIALS)
    yield made
    made.cp_client.close()
    made.dp_client.close()


def test_a_whole_life_of_an_agent(client: AgentCoreRuntimeClient, sid: str) -> None:
    blocks = {"roleArn": ROLE, "networkConfiguration": {"networkMode": "PUBLIC"}}
    made = client.create_agent_runtime_and_wait(
        SOON, agent_runtime_name="by_sdk", agent_runtime_artifact=artifact(ASGI_AGENT), **blocks
    )
    assert made["status"] == "READY"
    arn, runtime_id = made["agentRuntimeArn"], made["agentRuntimeId"]

    answer = client.invoke_agent_runtime(
        agent_runtime_arn=arn, runtime_session_id=sid, payload=json.dumps({"x": 1})
    )
    assert json.loads(answer["response"].read())["calls"] == 1
    client.stop_runtime_session(agent_runtime_arn=arn, runtime_session_id=sid)

    updated = client.update_agent_runtime_and_wait(
        SOON,
        agent_runtime_id=runtime_id,
        agent_runtime_artifact=artifact(ASGI_AGENT),
        description="two",
        **blocks,
    )
    assert (updated["agentRuntimeVersion"], updated["description"]) == ("2", "two")
    endpoint = client.create_agent_runtime_endpoint_and_wait(
        SOON, agent_runtime_id=runtime_id, name="first", agent_runtime_version="1"
    )
    assert endpoint["liveVersion"] == "1"
    moved = client.update_agent_runtime_endpoint_and_wait(
        SOON, agent_runtime_id=runtime_id, endpoint_name="first", agent_runtime_version="2"
    )
    assert moved["liveVersion"] == "2"
    status = client.get_aggregated_status(runtime_id)
    assert status["runtime"]["status"] == status["endpoint"]["status"] == "READY"
    assert (
        len(client.list_agent_runtime_versions(agent_runtime_id=runtime_id)["agentRuntimes"]) == 2
    )

    client.delete_agent_runtime_and_wait(SOON, agent_runtime_id=runtime_id)
    with pytest.raises(client.cp_client.exceptions.ResourceNotFoundException):
        client.get_agent_runtime(agent_runtime_id=runtime_id)


async def test_the_sdks_signed_websockets_pass_a_runtime_that_checks_them(
    tmp_path: Path, sid: str
) -> None:
    """It signs for AWS's own host name, and only that: the address is put in its place here."""
    home = tmp_path / "home"
    with RuntimeThread(home=home, access_keys=tmp_path / "keys", isolation="process") as runtime:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ART_HOME", str(home))
            keys = local.credentials(runtime.url)
            patch.setattr(local, "CREDENTIALS", keys)
            aws = Aws(runtime.url)
        arn = aws.deploy(WS_AGENT)
        client = sdk(runtime.url, **keys)
        url, headers = client.generate_ws_connection(arn, session_id=sid)
        presigned = client.generate_presigned_url(arn, session_id=sid)
        host = {"Host": urlsplit(presigned).netloc}
        async with aiohttp.ClientSession() as http:
            for signed, given in ((url, headers), (presigned, host)):
                target = signed.partition(".amazonaws.com")[2]
                kept = {n: v for n, v in given.items() if n.lower() not in HANDSHAKE}
                async with http.ws_connect(yarl(runtime.url + target), headers=kept):
                    pass
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await http.ws_connect(
                        yarl(runtime.url + target.replace("/ws", "/ws/")), headers=kept
                    )
                assert refused.value.status == 403
        for one in (client.cp_client, client.dp_client, aws):
            one.close()


HANDSHAKE = ("connection", "upgrade", "sec-websocket-key", "sec-websocket-version")


def yarl(url: str) -> Any:
    from yarl import URL

    return URL(url, encoded=True)
