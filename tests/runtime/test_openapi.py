"""The description of both planes: made from the routes, true to AWS's models and the server."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import botocore.session
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime import openapi, route
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import ASGI_AGENT, PROCESS, Aws

SERVED = openapi.describe()
schema = schemathesis.openapi.from_dict(SERVED)
ENDLESS = {"Events", "SessionShell"}
"""Answers that go on until the reader leaves, or that are no HTTP."""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Aws, str]]:
    """A runtime of its own: what is thrown at it registers and deletes agents."""
    home = tmp_path_factory.mktemp("home")
    with RuntimeThread(home=home, isolation="process") as runtime:
        aws = Aws(runtime.url)
        arn = aws.deploy(ASGI_AGENT, name="known", environmentVariables=PROCESS)
        yield aws, arn
        aws.close()


def test_it_is_served(described: tuple[Aws, str]) -> None:
    assert described[0].get("/_art/openapi.json") == json.loads(json.dumps(SERVED))


def test_methods_and_paths_are_those_of_aws() -> None:
    session = botocore.session.get_session()
    for operation in route.OPERATIONS:
        if operation.plane == "art" or "/ws" in operation.path:
            continue  # upgrades are in no model
        model = session.get_service_model(openapi.SERVICES[operation.plane])
        http = model.operation_model(operation.name).http
        assert (operation.method, operation.path) == (http["method"], http["requestUri"])


@pytest.mark.parametrize("operation", route.OPERATIONS, ids=lambda o: o.name)
def test_every_operation_is_found_by_its_path(operation: route.Operation) -> None:
    arn = quote(local.runtime_arn("a-0123456789"), safe="")
    path = re.sub(r"{\w+}", arn, operation.path)
    assert route.find(operation.method, path.split("/")[1:]) is operation
    assert SERVED["paths"][operation.path][operation.method.lower()]["responses"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/runtimes/"),
        ("GET", "/runtimes"),
        ("GET", "/runtimes//"),
        ("POST", "/runtimes/a/invocations/"),
        ("GET", "/tags/"),
        ("GET", "/_art"),
        ("GET", "/_art/sessions/"),
        ("GET", "/bucket/key"),
        ("GET", "/{}"),
        ("GET", "/{here}"),
    ],
)
def test_what_is_not_in_the_table_is_not_found(method: str, path: str) -> None:
    assert route.find(method, path.split("/")[1:]) is None


@schema.parametrize()
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_sent_is_answered_as_described(
    case: schemathesis.Case, described: tuple[Aws, str]
) -> None:
    aws, arn = described
    name = case.operation.definition.raw["operationId"]
    if name in ENDLESS:
        return
    aim(case, arn)
    response = case.call(base_url=aws.url, timeout=60)
    case.validate_response(
        response,
        checks=(not_a_server_error, status_code_conformance, response_schema_conformance),
    )


def aim(case: schemathesis.Case, arn: str) -> None:
    """Half of the cases at the runtime that is there, or nothing would get past its id."""
    parameters: Any = case.path_parameters
    if not parameters or zlib.crc32(json.dumps(parameters, sort_keys=True).encode()) % 2:
        return
    if case.method == "DELETE" or (case.method == "PUT" and "agentRuntimeId" in parameters):
        return  # it is needed as it is
    one = quote(arn, safe="")
    known = {"agentRuntimeArn": one, "agentRuntimeId": arn.rpartition("/")[2], "resourceArn": one}
    for name in parameters:
        parameters[name] = known.get(name, parameters[name])
