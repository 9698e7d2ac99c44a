"""Where the local AgentCore Runtime is found: by the client, the CLI and the runtime itself.

An ARN in region ``local`` means it. The address is, in this order: an explicit URL, the
``AWS_ENDPOINT_URL_BEDROCK_AGENTCORE`` and ``AWS_ENDPOINT_URL`` variables, the state file that a
running runtime keeps in the user's state folder, the default port.

A runtime on loopback accepts every signature. One that listens elsewhere knows its access keys:
``credentials`` finds them, ``sign`` uses them for requests that boto3 does not make.
"""

from __future__ import annotations

import configparser
import functools
import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .errors import ConfigError

REGION = "local"
ACCOUNT = "000000000000"
DEFAULT_PORT = 8585
DEFAULT_BUCKET = "rollouts"
"""Exists on every local runtime, so that a first run needs no set-up."""
CREDENTIALS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
"""boto3 refuses to sign without any; on loopback the local runtime accepts all."""

_LOG_ON_AWS = "Please check your CloudWatch logs for more information."
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


def with_log_here(message: str, command: str) -> str:
    """A refusal by a local runtime for people: on the wire it has AWS's words, and AWS's log."""
    return message.replace(_LOG_ON_AWS, f"Its log: {command}.")


# --- who is calling ---------------------------------------------------------------------------


@functools.lru_cache(256)
def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_keys(path: Path) -> dict[str, str]:
    """Access key id to secret, of a file in the form of AWS's shared credentials file."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeError, configparser.Error) as error:
        raise ConfigError(f"the access keys {path} cannot be read: {error}") from error
    found = {}
    for profile in parser.sections():
        key = parser[profile].get("aws_access_key_id")
        secret = parser[profile].get("aws_secret_access_key")
        if key and secret:
            found[key] = secret
    return found


def credentials(endpoint_url: str) -> dict[str, str]:
    """boto3's arguments for a local runtime; empty where boto3 has to search itself.

    The file that ``ART_ACCESS_KEYS`` names, else the keys of this user's own runtime, else none
    that matter on loopback.
    """
    path = os.environ.get("ART_ACCESS_KEYS")
    if not path:
        try:
            state = json.loads(state_file().read_text())
            path = state.get("access_keys") if state["endpoint_url"] == endpoint_url else None
        except (OSError, ValueError, KeyError, TypeError):
            path = None
    if path:
        for key, secret in read_keys(Path(path)).items():
            return {"aws_access_key_id": key, "aws_secret_access_key": secret}
    return CREDENTIALS if is_loopback(urlsplit(endpoint_url).hostname or "") else {}


def sign(url: str, method: str = "GET", found: Any = None) -> dict[str, str]:
    """The headers that sign a request without a body; none where none are needed.

    ``found``: botocore's credentials, when the caller has its own.
    """
    parts = urlsplit(url)
    keys = {} if found else credentials(f"{parts.scheme}://{parts.netloc}")
    if keys == CREDENTIALS:
        return {}
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from botocore.session import get_session

    if keys:
        found = Credentials(keys["aws_access_key_id"], keys["aws_secret_access_key"])
    found = found or get_session().get_credentials()
    if found is None:
        return {}
    request = AWSRequest(method, url)
    SigV4Auth(found, "bedrock-agentcore", REGION).add_auth(request)
    return dict(request.headers.items())
