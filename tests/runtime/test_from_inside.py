"""Attempts of an agent that wants to be more than a session, made from inside one.

What a session reaches of the runtime itself depends on its network: with one of its own it has a
door to the object store and nothing else; on the machine's it meets what everybody meets, so keys
decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore_rl_toolkit import SandboxClient, local
from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation.inside import landlock
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import ASGI_AGENT, Aws

NAMESPACE = isolation.drivers()["namespace"].probe()
ASK = """
import json, os, sys, urllib.error, urllib.request
answers = []
for method, path in json.loads(sys.argv[1]):
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL_S3"] + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            answers.append(answer.status)
    except urllib.error.HTTPError as error:
        answers.append(error.code)
    except OSError as error:
        answers.append(0)
print(json.dumps(answers))
"""
OURS = [
    ("GET", "/_art/"),
    ("GET", "/_art/sessions"),
    ("GET", "/_art/events"),
    ("PUT", "/runtimes/"),
    ("POST", "/runtimes/"),
    ("GET", "/tags/x"),
    ("POST", "/runtimes/x-0123456789/invocations"),
]
STORE = [
    ("GET", "/rollouts?list-type=2"),
    ("GET", "/rollouts/other"),
    ("DELETE", "/rollouts/other"),
]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RuntimeThread, Aws]]:
    """A runtime on loopback that asks for keys, as it should where sessions share its network."""
    home = tmp_path_factory.mktemp("keyed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ART_HOME", str(home / "home"))
        with RuntimeThread(home=home / "home", access_keys=home / "keys") as runtime:
            patch.setattr(local, "CREDENTIALS", local.credentials(runtime.url))
            aws = Aws(runtime.url)
            aws.s3.put_object(Bucket="rollouts", Key="other", Body=b"a reward")
            yield runtime, aws
            aws.close()


def inside(aws: Aws, arn: str, *argv: str) -> str:
    with SandboxClient(arn, endpoint_url=aws.url).start() as sandbox:
        return sandbox.exec(["python3", *argv], timeout=60, check=True).stdout


def asked(aws: Aws, arn: str, paths: list[tuple[str, str]]) -> list[int]:
    return list(json.loads(inside(aws, arn, "-c", ASK, json.dumps(paths))))


@pytest.mark.skipif(not NAMESPACE.available, reason=NAMESPACE.reason)
def test_the_door_to_the_store_leads_nowhere_else(aws: Aws) -> None:
    arn = aws.deploy(ASGI_AGENT, environmentVariables={"ART_ISOLATION": "namespace"})
    assert set(asked(aws, arn, OURS + STORE)) <= {400, 403, 404, 405, 501}
    assert aws.sessions() == {}


SHARED: list[Any] = [
    pytest.param({"ART_ISOLATION": "process"}, id="level process"),
    pytest.param(
        {"ART_ISOLATION": "namespace", "ART_NETWORK": "open"},
        id="an open network",
        marks=pytest.mark.skipif(not NAMESPACE.available, reason=NAMESPACE.reason),
    ),
]


@pytest.mark.parametrize("variables", SHARED)
def test_on_the_machines_network_a_session_without_a_key_is_a_stranger(
    keyed: tuple[RuntimeThread, Aws], variables: dict[str, str]
) -> None:
    _, aws = keyed
    arn = aws.deploy(ASGI_AGENT, environmentVariables=variables)
    assert asked(aws, arn, OURS + STORE) == [403] * len(OURS + STORE)


@pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
def test_the_keys_of_the_runtime_are_out_of_reach_at_level_process(
    keyed: tuple[RuntimeThread, Aws],
) -> None:
    runtime, aws = keyed
    assert runtime.server.keys is not None
    look = "import sys\ntry:\n    print(open(sys.argv[1]).read())\nexcept OSError as error:\n"
    look += "    print(error.errno)\n"
    arn = aws.deploy(ASGI_AGENT, environmentVariables={"ART_ISOLATION": "process"})
    assert inside(aws, arn, "-c", look, str(runtime.server.keys.path)).strip() == "13"
