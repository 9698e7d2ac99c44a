"""Every operation that the runtime has, called by boto3 in both of its retry modes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from agentcore_rl_toolkit.runtime.route import OPERATIONS

from .conftest import PROCESS, Aws, until

MODES = ("standard", "legacy")
NEVER = "nobody-0123456789"


def watched(clients: Aws) -> set[str]:
    """Names of the operations that are answered with a success from now on."""
    done: set[str] = set()

    def note(http_response: Any, model: Any, **_: Any) -> None:
        if http_response.status_code < 300:
            done.add(model.name)

    for client in (clients.data, clients.control):
        client.meta.events.register("after-call", note)
    return done


@pytest.mark.parametrize("mode", MODES)
def test_every_operation_succeeds(aws: Aws, connect: Any, sid: str, mode: str) -> None:
    clients = connect(aws.url, retries={"mode": mode, "total_max_attempts": 2})
    control, data, done = clients.control, clients.data, watched(clients)
    arn = clients.deploy(environmentVariables=PROCESS, name=f"all_{uuid.uuid4().hex[:8]}")
    one = {"agentRuntimeId": arn.rpartition("/")[2]}
    control.update_agent_runtime(**one, **clients.body(environmentVariables=PROCESS))
    clients.settled(one["agentRuntimeId"])
    control.list_agent_runtimes(maxResults=1)
    control.list_agent_runtime_versions(**one)
    control.create_agent_runtime_endpoint(**one, name="prod", agentRuntimeVersion="1")
    control.update_agent_runtime_endpoint(**one, endpointName="prod", agentRuntimeVersion="2")
    control.get_agent_runtime_endpoint(**one, endpointName="prod")
    control.list_agent_runtime_endpoints(**one)
    control.tag_resource(resourceArn=arn, tags={"team": "a"})
    assert control.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "a"}
    control.untag_resource(resourceArn=arn, tagKeys=["team"])
    assert clients.ask(arn, {}, sid)["calls"] == 1
    command = data.invoke_agent_runtime_command(
        agentRuntimeArn=arn, runtimeSessionId=sid, body={"command": "true"}
    )
    assert [event["chunk"] for event in command["stream"]][-1]["contentStop"]["exitCode"] == 0
    assert data.get_agent_card(agentRuntimeArn=arn, runtimeSessionId=sid)["agentCard"]["calls"] == 2
    clients.stop(arn, sid)
    control.delete_agent_runtime_endpoint(**one, endpointName="prod")
    control.delete_agent_runtime(**one)
    gone = control.exceptions.ResourceNotFoundException
    until(lambda: raised(gone, lambda: control.get_agent_runtime(**one)), "it is deleted")
    ours = {o.name for o in OPERATIONS if o.plane != "art" and "/ws" not in o.path}
    assert done == ours


def raised(kind: type[Exception], call: Callable[[], Any]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


REFUSALS: list[tuple[str, dict[str, Any], str, int]] = [
    ("get_agent_runtime", {"agentRuntimeId": NEVER}, "ResourceNotFoundException", 404),
    ("delete_agent_runtime", {"agentRuntimeId": NEVER}, "ResourceNotFoundException", 404),
    ("list_agent_runtime_versions", {"agentRuntimeId": NEVER}, "ResourceNotFoundException", 404),
    ("list_agent_runtime_endpoints", {"agentRuntimeId": NEVER}, "ResourceNotFoundException", 404),
    (
        "create_agent_runtime_endpoint",
        {"agentRuntimeId": NEVER, "name": "prod"},
        "ResourceNotFoundException",
        404,
    ),
    (
        "get_agent_runtime_endpoint",
        {"agentRuntimeId": NEVER, "endpointName": "prod"},
        "ResourceNotFoundException",
        404,
    ),
    ("list_agent_runtimes", {"maxResults": 101}, "ValidationException", 400),
    ("list_agent_runtimes", {"nextToken": "never given"}, "ValidationException", 400),
    (
        "list_tags_for_resource",
        {"resourceArn": "no ARN of anything here"},
        "ResourceNotFoundException",
        404,
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("call", "arguments", "name", "status"), REFUSALS)
def test_what_the_control_plane_refuses_is_raised_at_once(
    aws: Aws, connect: Any, mode: str, call: str, arguments: dict[str, Any], name: str, status: int
) -> None:
    clients = connect(aws.url, retries={"mode": mode, "total_max_attempts": 3})
    with pytest.raises(getattr(clients.control.exceptions, name)) as refused:
        getattr(clients.control, call)(**arguments)
    metadata = refused.value.response["ResponseMetadata"]
    assert (metadata["HTTPStatusCode"], metadata["RetryAttempts"]) == (status, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_taken_name_is_a_conflict_and_not_sent_again(aws: Aws, connect: Any, mode: str) -> None:
    clients = connect(aws.url, retries={"mode": mode, "total_max_attempts": 3})
    name = f"taken_{mode}"
    aws.create(name=name)
    with pytest.raises(clients.control.exceptions.ConflictException) as refused:
        clients.create(name=name)
    assert refused.value.response["ResponseMetadata"]["RetryAttempts"] == 0
