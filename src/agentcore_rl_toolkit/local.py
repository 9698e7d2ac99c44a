"""Where the local AgentCore Runtime is found: by the client, the CLI and the runtime itself.

An ARN in region ``local`` means it. The address is, in this order: an explicit URL, the
``AWS_ENDPOINT_URL_BEDROCK_AGENTCORE`` and ``AWS_ENDPOINT_URL`` variables, the state file that a
running runtime keeps in the user's state folder, the default port.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from .errors import ConfigError

REGION = "local"
ACCOUNT = "000000000000"
DEFAULT_PORT = 8585
DEFAULT_BUCKET = "rollouts"
"""Exists on every local runtime, so that a first run needs no set-up."""
CREDENTIALS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
"""boto3 refuses to sign without any; on loopback the local runtime accepts all."""

_ARN = re.compile(
    r"arn:(aws[a-z-]*):bedrock-agentcore:([a-z0-9-]+):(\d{12}):runtime/"
    r"([a-zA-Z][a-zA-Z0-9_]{0,47}-[a-zA-Z0-9]{10})"
)


class RuntimeArn(NamedTuple):
    arn: str
    region: str
    account: str
    runtime_id: str

    @property
    def is_local(self) -> bool:
        return self.region == REGION


def parse_arn(arn: object) -> RuntimeArn:
    match = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    if match is None:
        raise ConfigError(
            f"{arn!r} is not an AgentCore Runtime ARN. It looks like "
            "arn:aws:bedrock-agentcore:<region>:<account>:runtime/<name>-<10 characters>; "
            "'art deploy PATH --local' prints one"
        )
    return RuntimeArn(match[0], match[2], match[3], match[4])


def runtime_arn(runtime_id: str) -> str:
    return f"arn:aws:bedrock-agentcore:{REGION}:{ACCOUNT}:runtime/{runtime_id}"


def home() -> Path:
    """State of the local parts, private to the user. ``ART_HOME`` moves it."""
    if custom := os.environ.get("ART_HOME"):
        return Path(custom)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "agentcore-rl-toolkit"


def state_file() -> Path:
    return home() / "runtime.json"


def find_endpoint(explicit: str | None = None) -> str:
    """The URL of the local runtime; nothing is contacted."""
    for url in (
        explicit,
        os.environ.get("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE"),
        os.environ.get("AWS_ENDPOINT_URL"),
    ):
        if url:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"{url!r} is not the URL of a runtime: it looks like "
                    f"http://127.0.0.1:{DEFAULT_PORT}"
                )
            return url.rstrip("/")
    try:
        return str(json.loads(state_file().read_text())["endpoint_url"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"http://127.0.0.1:{DEFAULT_PORT}"
