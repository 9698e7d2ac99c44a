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

MAX_JSON_BYTES = 2 * 1024 * 1024
"""Of a request that is not an invocation; the longest that AWS takes has a fraction of it."""
NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")
HEADER = re.compile(
    r"(?i)X-Amzn-Bedrock-AgentCore-Runtime-Custom-[a-z0-9_-]+|(?!x-amzn?-)[a-z0-9][a-z0-9_-]*"
)
OF_THE_CONNECTION = re.compile(
    r"(?i)accept(-.+)?|cache-control|connection|content-(encoding|length|type)|(set-)?cookie|date|"
    r"expect|forwarded|from|host|http2-settings|keep-alive|origin|proxy-.+|range|referer|te|"
    r"trailer|transfer-encoding|upgrade|user-agent|via"
)
"""Headers that belong to the way of a request, or that the runtime writes itself."""
ROLE = re.compile(r"arn:aws(-[^:]+)?:iam::([0-9]{12})?:role/.{1,2000}")
TAG = re.compile(r"[a-zA-Z0-9\s._:/=+@-]*")
TOKEN = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
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
PLATFORMS = ("V1", "V2")
MAX_MEMORY_MB = 1024 * 1024
CODE_RUNTIMES = (*(f"PYTHON_3_{minor}" for minor in range(10, 15)), "NODE_22")
"""Taken as AWS names them; sessions have the interpreter of ART_PYTHON, or the runtime's own."""


async def read_json(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await read_small(request))
    except (ValueError, RecursionError) as error:
        raise wire.invalid(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise wire.invalid("The body must be a JSON object")
    return body


async def read_small(request: web.Request) -> bytes:
    """A body that is not an agent's: nothing larger is waited for."""
    raw = request.get(wire.BODY) or b""
    if max(request.content_length or 0, len(raw)) <= MAX_JSON_BYTES and not raw:
        async for piece in request.content.iter_any():
            raw += piece
            if len(raw) > MAX_JSON_BYTES:
                break
    if max(request.content_length or 0, len(raw)) > MAX_JSON_BYTES:
        raise wire.invalid(f"The body is larger than {MAX_JSON_BYTES} bytes")
    return raw


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


def tagged(segment: str) -> tuple[str, str]:
    """Runtime id and, for the ARN of an endpoint, its name."""
    arn, _, name = unquote(segment).partition("/runtime-endpoint/")
    return runtime_id_of(arn), name


def check_name(value: object, field: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise wire.invalid(
            f"{field} must be a letter and then up to 47 letters, digits or '_', got {value!r}",
            field,
        )
    return value


def check_config(body: dict[str, Any], shortest_s: int = 1) -> dict[str, Any]:
    """``shortest_s``: the least idle timeout and lifetime; AWS has 60, here it may be less."""
    config = {name: body[name] for name in BLOCKS if body.get(name) is not None}
    for name in UNSUPPORTED:
        if config.get(name):
            raise wire.invalid(f"{name} is not supported by the local runtime", name)
    role = config.get("roleArn")
    if not isinstance(role, str) or not ROLE.fullmatch(role):
        raise wire.invalid("roleArn is required and looks like arn:aws:iam::…:role/…", "roleArn")
    check_text(config, "description", 4096)
    check_network(config.get("networkConfiguration") or {})
    for name in OBJECTS:
        if not isinstance(config.get(name, {}), dict):
            raise wire.invalid(f"{name} must be an object", name)
    check_headers(config.get("requestHeaderConfiguration") or {})
    check_protocol(config.get("protocolConfiguration") or {})
    check_artifact(config.get("agentRuntimeArtifact"))
    check_environment(config.get("environmentVariables") or {})
    check_resources(config.get("resourceConfigurations") or [])
    if config.get("platformVersion", "V1") not in PLATFORMS:
        raise wire.invalid(
            f"platformVersion must be one of {', '.join(PLATFORMS)}", "platformVersion"
        )
    try:
        timeouts = timeouts_of(config)
        if min(timeouts) < shortest_s:
            raise ValueError(f"idleRuntimeSessionTimeout and maxLifetime: at least {shortest_s} s")
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
                    "entryPoint": [str(entry)] | [str(), str(entry)],
                    **rest,
                }
            }:
                agents.check_entry(entry)
                if rest.get("runtime", CODE_RUNTIMES[0]) not in CODE_RUNTIMES:
                    raise ConfigError(
                        f"codeConfiguration.runtime must be one of {', '.join(CODE_RUNTIMES)}"
                    )
            case _:
                raise ConfigError(
                    "agentRuntimeArtifact needs containerConfiguration.containerUri or "
                    "codeConfiguration with code.s3.bucket, code.s3.prefix and entryPoint"
                )
    except ConfigError as error:
        raise wire.invalid(str(error), field) from error


def check_network(block: dict[str, Any]) -> None:
    """Taken and kept; what a session reaches is said by ART_NETWORK."""
    if block and block.get("networkMode") not in ("PUBLIC", "VPC"):
        raise wire.invalid("networkMode must be PUBLIC or VPC", "networkConfiguration")


def check_protocol(block: dict[str, Any]) -> None:
    for name, only in (("serverProtocol", "HTTP"), ("port", 8080), ("path", "/invocations")):
        if block.get(name, only) != only:
            raise wire.invalid(
                f"{name} {block[name]!r} is not supported by the local runtime, only {only}",
                "protocolConfiguration",
            )


def check_headers(block: dict[str, Any]) -> None:
    names = block.get("requestHeaderAllowlist") or []
    if not isinstance(names, list) or len(names) > 20:
        raise wire.invalid(
            "requestHeaderAllowlist holds at most 20 names", "requestHeaderConfiguration"
        )
    for name in names:
        known = isinstance(name, str) and HEADER.fullmatch(name)
        if not known or OF_THE_CONNECTION.fullmatch(name):
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


def check_size(variables: dict[str, str], most: int | None) -> None:
    size = sum(len((n + v).encode(errors="surrogatepass")) for n, v in variables.items())
    if most is not None and size > most:
        raise wire.invalid(
            f"environmentVariables take {size} bytes together, the quota is {most}",
            "environmentVariables",
        )


def check_resources(blocks: object) -> None:
    """A session may have as much memory as is asked for here, where it is more than usual."""
    match blocks:
        case []:
            return
        case [{"minimumMemoryInMiB": int(least)}] if 1 <= least <= MAX_MEMORY_MB:
            return
    raise wire.invalid(
        f"resourceConfigurations is one minimumMemoryInMiB of 1 to {MAX_MEMORY_MB}",
        "resourceConfigurations",
    )


def check_tags(body: dict[str, Any], present: dict[str, str] | None = None) -> dict[str, str]:
    """What is there with what is given on top."""
    given = body.get("tags") or {}
    if not isinstance(given, dict):
        raise wire.invalid("tags must be keys and values", "tags")
    for key, value in given.items():
        if not TAG.fullmatch(key) or not 1 <= len(key) <= 128:
            raise wire.invalid(f"{key!r} is not the key of a tag", "tags")
        if not isinstance(value, str) or not TAG.fullmatch(value) or len(value) > 256:
            raise wire.invalid(f"the value of the tag {key!r} is not one", "tags")
    tags = {**(present or {}), **given}
    if len(tags) > 50:
        raise wire.invalid("there can be at most 50 tags", "tags")
    return tags


def check_text(body: dict[str, Any], field: str, most: int) -> str:
    value = body.get(field)
    if value is None:
        return ""
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise wire.invalid(f"{field} must be text of 1 to {most} characters", field)
    return value


def check_token(body: dict[str, Any]) -> str:
    """Empty when there is none; boto3 always sends one."""
    token = body.get("clientToken")
    if token is None:
        return ""
    if not isinstance(token, str) or not TOKEN.fullmatch(token) or not 33 <= len(token) <= 256:
        raise wire.invalid("clientToken must be 33 to 256 letters, digits and '-'", "clientToken")
    return token


def check_same(same: bool) -> None:
    """Of a request whose client token was used before."""
    if not same:
        raise wire.WireError(
            400,
            "ValidationException",
            "The clientToken was used before, with other parameters",
            reason="IdempotentParameterMismatchException",
        )
