"""What a control-plane request must be, before anything is done about it.

Every function returns what is right or raises the ValidationException that names the field. boto3
checks types, required members and minimum lengths only, and raw callers nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from .. import local
from ..errors import ConfigError
from . import agent as agents
from . import wire
from .deployment import timeouts_of

NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")
HEADER = re.compile(
    r"(?i)X-Amzn-Bedrock-AgentCore-Runtime-Custom-[a-z0-9_-]+|(?!x-amzn?-)[a-z0-9][a-z0-9_-]*"
)
BLOCKS = (
    "agentRuntimeArtifact",
    "roleArn",
    "networkConfiguration",
    "description",
    "authorizerConfiguration",
    "requestHeaderConfiguration",
    "protocolConfiguration",
    "lifecycleConfiguration",
    "environmentVariables",
    "filesystemConfigurations",
    "hooksConfiguration",
    "allowedPorts",
    "resourceConfigurations",
    "capacityProviderConfiguration",
    "platformVersion",
    "metadataConfiguration",
)
OBJECTS = (
    "networkConfiguration",
    "requestHeaderConfiguration",
    "protocolConfiguration",
    "lifecycleConfiguration",
    "environmentVariables",
)
UNSUPPORTED = (
    "authorizerConfiguration",
    "filesystemConfigurations",
    "hooksConfiguration",
    "allowedPorts",
    "capacityProviderConfiguration",
)
"""Refused when given: a session would not be what was asked for."""


async def read_json(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise wire.invalid(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise wire.invalid("The body must be a JSON object")
    return body


def runtime_id_of(segment: str) -> str:
    """Of one path segment: an ARN, percent-encoded, or a bare id."""
    text = unquote(segment)
    if not text.startswith("arn:"):
        return text
    try:
        arn = local.parse_arn(text)
    except ConfigError as error:
        raise wire.invalid(str(error), "agentRuntimeArn") from error
    if not arn.is_local or arn.account != local.ACCOUNT:
        raise wire.not_found(
            f"{text} lives on AWS, and this is the local runtime: its ARNs have region "
            f"{local.REGION!r} and account {local.ACCOUNT}"
        )
    return arn.runtime_id


def check_name(value: object, field: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise wire.invalid(
            f"{field} must be a letter and then up to 47 letters, digits or '_', got {value!r}",
            field,
        )
    return value


def check_config(body: dict[str, Any]) -> dict[str, Any]:
    config = {name: body[name] for name in BLOCKS if body.get(name) is not None}
    for name in UNSUPPORTED:
        if config.get(name):
            raise wire.invalid(f"{name} is not supported by the local runtime", name)
    if not isinstance(config.get("roleArn"), str):
        raise wire.invalid("roleArn is required", "roleArn")
    for name in OBJECTS:
        if not isinstance(config.get(name, {}), dict):
            raise wire.invalid(f"{name} must be an object", name)
    check_headers(config.get("requestHeaderConfiguration") or {})
    protocol = (config.get("protocolConfiguration") or {}).get("serverProtocol", "HTTP")
    if protocol != "HTTP":
        raise wire.invalid(
            f"serverProtocol {protocol} is not supported by the local runtime, only HTTP",
            "protocolConfiguration",
        )
    check_artifact(config.get("agentRuntimeArtifact"))
    check_environment(config.get("environmentVariables") or {})
    try:
        timeouts_of(config)
    except (ValueError, TypeError) as error:
        raise wire.invalid(str(error), "lifecycleConfiguration") from error
    return config


def check_artifact(artifact: object) -> None:
    """Only the shape; whether the files are there is seen when they are copied."""
    field = "agentRuntimeArtifact"
    try:
        match artifact:
            case {"containerConfiguration": {"containerUri": str(uri)}}:
                agents.parse_uri(uri)
            case {
                "codeConfiguration": {
                    "code": {"s3": {"bucket": str(), "prefix": str()}},
                    "entryPoint": [*_, str(entry)],
                }
            }:
                agents.check_entry(entry)
            case _:
                raise ConfigError(
                    "agentRuntimeArtifact needs containerConfiguration.containerUri or "
                    "codeConfiguration with code.s3.bucket, code.s3.prefix and entryPoint"
                )
    except ConfigError as error:
        raise wire.invalid(str(error), field) from error


def check_headers(block: dict[str, Any]) -> None:
    names = block.get("requestHeaderAllowlist") or []
    if not isinstance(names, list) or len(names) > 20:
        raise wire.invalid(
            "requestHeaderAllowlist holds at most 20 names", "requestHeaderConfiguration"
        )
    for name in names:
        if not isinstance(name, str) or not HEADER.fullmatch(name):
            raise wire.invalid(
                f"the agent cannot get the header {name!r}: allowed are Authorization, own names, "
                "and X-Amzn-Bedrock-AgentCore-Runtime-Custom-*",
                "requestHeaderConfiguration",
            )


def check_environment(variables: object) -> None:
    field = "environmentVariables"
    if not isinstance(variables, dict) or len(variables) > 50:
        raise wire.invalid("environmentVariables must be at most 50 names and values", field)
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
            raise wire.invalid(f"{name!r} is not the name of an environment variable", field)
        if not isinstance(value, str) or len(value) > 5000 or "\0" in value:
            raise wire.invalid(
                f"the value of {name} must be text of at most 5000 characters", field
            )
    try:
        agents.check_variables(variables)
    except ConfigError as error:
        raise wire.invalid(str(error), field) from error


def check_tags(body: dict[str, Any]) -> dict[str, str]:
    tags = body.get("tags") or {}
    if not isinstance(tags, dict) or len(tags) > 50:
        raise wire.invalid("tags must be at most 50 keys and values", "tags")
    return {str(key): str(value) for key, value in tags.items()}
