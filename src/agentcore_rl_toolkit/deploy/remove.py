"""Takes an agent off AWS again: what art made for it. Results stay, and so does their bucket."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from . import resources
from .aws import find_runtime
from .call import call, find
from .policy import CODE_PREFIX
from .step import MARK, Account, Step, repository_name, role_name


def plan(
    account: Account, name: str, bucket: str | None = None, runtime_id: str | None = None
) -> list[Step]:
    """Steps for everything that is there; empty when there is nothing."""
    return [
        *runtime_steps(account.client("bedrock-agentcore-control"), name, runtime_id),
        *role_steps(account, name),
        *code_steps(account, name, bucket or account.bucket()),
        *repository_steps(account, name),
    ]


def runtime_steps(control: Any, name: str, runtime_id: str | None = None) -> list[Step]:
    """``runtime_id``: only that one; another of the name may have taken its place."""
    found = find_runtime(control, name)
    if found is None:
        return []
    if runtime_id not in (None, found["agentRuntimeId"]):
        raise ConfigError(
            f"{runtime_id} is not there; {name!r} is {found['agentRuntimeId']} now: name that one"
        )
    where = {"agentRuntimeId": found["agentRuntimeId"]}
    listed = call(control, "list_agent_runtime_endpoints", **where)["runtimeEndpoints"]
    names = [one["name"] for one in listed if one["name"] != "DEFAULT"]

    def end() -> None:
        for endpoint in names:
            call(control, "delete_agent_runtime_endpoint", endpointName=endpoint, **where)
        call(control, "delete_agent_runtime", **where)

    detail = f"with its endpoint {', '.join(names)}" if names else ""
    return [Step("runtime", name, "delete", detail, end)]


def role_steps(account: Account, name: str) -> list[Step]:
    iam, role = account.client("iam"), role_name(name)
    found = find(iam, "get_role", RoleName=role)
    if found is None:
        return []
    try:
        resources.check_ours(found["Role"].get("Tags", []), f"the role {role}", "it stays")
    except ConfigError:
        return []

    def end() -> None:
        for policy in call(iam, "list_role_policies", RoleName=role)["PolicyNames"]:
            call(iam, "delete_role_policy", RoleName=role, PolicyName=policy)
        call(iam, "delete_role", RoleName=role)

    return [Step("role", role, "delete", do=end)]


def code_steps(account: Account, name: str, bucket: str) -> list[Step]:
    s3, prefix = account.client("s3"), f"{CODE_PREFIX}/{name}/"
    listed = find(s3, "list_objects_v2", Bucket=bucket, Prefix=prefix) or {}
    keys = [one["Key"] for one in listed.get("Contents", [])]
    if not keys:
        return []

    def end() -> None:
        for key in keys:
            call(s3, "delete_object", Bucket=bucket, Key=key)

    count = f"{len(keys)} archive{'s' if len(keys) > 1 else ''}; results stay"
    return [Step("code", f"s3://{bucket}/{prefix}", "delete", count, end)]


def repository_steps(account: Account, name: str) -> list[Step]:
    ecr, repository = account.client("ecr"), repository_name(name)
    found = find(ecr, "describe_repositories", repositoryNames=[repository])
    if found is None:
        return []
    arn = found["repositories"][0]["repositoryArn"]
    tags = call(ecr, "list_tags_for_resource", resourceArn=arn)["tags"]
    if not any(t["Key"] == MARK["key"] and t["Value"] == MARK["value"] for t in tags):
        return []

    def end() -> None:
        call(ecr, "delete_repository", repositoryName=repository, force=True)

    return [Step("repository", repository, "delete", "with its images", end)]
