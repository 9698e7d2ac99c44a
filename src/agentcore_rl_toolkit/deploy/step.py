"""What a deployment consists of: steps that say what they would do before they do it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError
from .call import call
from .policy import CODE_PREFIX

Action = Literal["keep", "create", "update", "delete"]
MARK = {"key": "created-by", "value": "agentcore-rl-toolkit"}
"""On everything that is made here; what does not carry it is somebody else's and stays."""


def nothing() -> None:
    pass


@dataclass(frozen=True)
class Step:
    what: str
    name: str
    action: Action
    detail: str = ""
    do: Callable[[], None] = nothing


@dataclass(frozen=True)
class Wanted:
    """A deployment as asked for."""

    folder: Path
    entry: str
    name: str
    region: str | None = None
    bucket: str | None = None
    """Of results; None: one for the account and region."""
    role: str | None = None
    """ARN of an existing role; None: one is made."""
    image: str | None = None
    """URI of an image that is there; None: it is built, or the agent is a zip."""
    container: bool = False
    qualifier: str | None = None
    """Endpoint that is moved to the new version, besides DEFAULT."""
    env: Mapping[str, str] = field(default_factory=dict)


class Account:
    """Whose AWS it is, where, and the clients for it. Names of resources follow from it."""

    def __init__(self, region: str | None, session: Any = None) -> None:
        import boto3

        self._session = session or boto3.Session()
        self._clients: dict[str, Any] = {}
        self.region = region or default_region(self._session)
        if not self.region:
            raise ConfigError(
                "no AWS region: name one with --region, or set AWS_REGION (such as us-east-1)"
            )
        who = call(self.client("sts"), "get_caller_identity")
        self.number = str(who["Account"])
        self.partition = str(who["Arn"]).split(":")[1]

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._session.client(service, region_name=self.region)
        return self._clients[service]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def bucket(self) -> str:
        return f"art-rollouts-{self.number}-{self.region}"

    def role_arn(self, name: str) -> str:
        return f"arn:{self.partition}:iam::{self.number}:role/{role_name(name)}"

    def image(self, repository: str, tag: str) -> str:
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return f"{self.number}.dkr.ecr.{self.region}.{domain}/{repository}:{tag}"

    def repository_arn(self, image: str) -> str | None:
        """Of an image in ECR, which may be another account's; None for one that is elsewhere."""
        found = re.match(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[^/]+/([^:@]+)", image)
        if found is None:
            return None
        number, region, repository = found.groups()
        return f"arn:{self.partition}:ecr:{region}:{number}:repository/{repository}"


def default_region(session: Any) -> str:
    """As the AWS command finds it; boto3 itself does not read AWS_REGION. Empty for none."""
    return str(os.environ.get("AWS_REGION") or session.region_name or "")


def role_name(name: str) -> str:
    return f"art-{name}"


def repository_name(name: str) -> str:
    return "art-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def code_key(name: str, digest: str) -> str:
    return f"{CODE_PREFIX}/{name}/{digest}.zip"
