"""Whether a session of a deployed agent reaches the model: asked from inside one."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from .. import local
from ..errors import ConfigError, ToolkitError
from ..rollout import ROLLOUT
from .agent import check_base_url, find_agent
from .doctor import Check

if TYPE_CHECKING:
    from ..sandbox import SandboxClient

TIMEOUT_S = 10
_QUESTION = f"""
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout={TIMEOUT_S}).status)
except urllib.error.HTTPError as error:
    print(error.code)
except Exception as error:
    print(getattr(error, "reason", error))
"""


def check_reach(agent: str, base_url: str | None, endpoint: str | None) -> Check:
    """Any HTTP answer counts: who refuses a stranger is there."""
    from ..sandbox import SandboxClient

    if base_url is None:
        raise ConfigError("--from-session needs --base-url: what is the session to reach?")
    check_base_url(base_url)
    found = find_agent(agent, endpoint)
    url = f"{base_url.rstrip('/')}/models"
    try:
        with SandboxClient(found.arn, endpoint_url=endpoint) as client, client.start() as sandbox:
            if found.is_local:
                name_model(client, sandbox.session_id, base_url)
            command = ["python3", "-c", _QUESTION, url]
            said = sandbox.exec(command, timeout=TIMEOUT_S + 20).stdout.strip()
    except ToolkitError as error:
        return Check("model from session", "no", f"no session could be asked: {error}")
    if said.isdecimal():
        return Check("model from session", "ok", f"{url} answers {said}")
    return Check(
        "model from session", "no", f"{url} is not reached: {said}. {advice(found.arn, url)}"
    )


def name_model(client: SandboxClient, session_id: str, base_url: str) -> None:
    """The local runtime lets a session through to what a payload names: here a status request,
    which starts nothing.
    """
    block = {"action": "status", "result_key": "doctor", "base_url": base_url}
    # An agent that is not the toolkit's may refuse it: the way is open by then.
    with contextlib.suppress(ClientError, BotoCoreError):
        client.agentcore_client.invoke_agent_runtime(
            agentRuntimeArn=client.runtime_arn,
            runtimeSessionId=session_id,
            payload=json.dumps({ROLLOUT: block}),
        )["response"].close()


def advice(arn: str, url: str) -> str:
    host = urlsplit(url).hostname or ""
    if local.parse_arn(arn).is_local:
        return (
            "Does the model listen there? A session is let through to its base_url unless the "
            "agent is deployed with ART_NETWORK=none"
        )
    if local.is_loopback(host):
        return "It is an address of this machine: give the gateway a public one, or a tunnel"
    return "Is it public, or in the runtime's VPC and allowed by its security group?"
