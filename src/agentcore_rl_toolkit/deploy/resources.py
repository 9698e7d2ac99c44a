"""What a runtime needs around it: bucket, role, and the agent as a zip or an image.

Each function looks at what is there and returns the step that makes it as wanted; reading is all it
does before the step is done.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from ..errors import ConfigError
from . import image, package, policy
from .call import call, find
from .step import MARK, Account, Step, Wanted, code_key, repository_name, role_name

POLICY = "results-and-logs"


def bucket_step(account: Account, name: str) -> Step:
    s3 = account.client("s3")
    if find(s3, "head_bucket", Bucket=name, instead="name another with --bucket") is not None:
        return Step("bucket", name, "keep")

    def make() -> None:
        where = {}
        if account.region != "us-east-1":
            where = {"CreateBucketConfiguration": {"LocationConstraint": account.region}}
        call(s3, "create_bucket", Bucket=name, instead="name one with --bucket", **where)
        closed = dict.fromkeys(
            ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"),
            True,
        )
        call(s3, "put_public_access_block", Bucket=name, PublicAccessBlockConfiguration=closed)

    return Step("bucket", name, "create", "for results; closed to the public", make)


def role_step(account: Account, wanted: Wanted, bucket: str) -> Step:
    if wanted.role is not None:
        return Step("role", wanted.role, "keep", "as given")
    iam, name = account.client("iam"), role_name(wanted.name)
    repository = None
    if wanted.container or wanted.image:
        own = account.image(repository_name(wanted.name), "")
        repository = account.repository_arn(wanted.image or own) or account.repository_arn(own)
    place = (account.number, account.region, account.partition)
    trust = policy.trust(*place)
    allowed = policy.permissions(*place, bucket, wanted.name, repository)
    instead = "pass an existing role with --role"
    found = find(iam, "get_role", RoleName=name, instead=instead)

    def put_policy() -> None:
        text = json.dumps(allowed)
        call(iam, "put_role_policy", RoleName=name, PolicyName=POLICY, PolicyDocument=text)

    def make() -> None:
        tag = {"Key": MARK["key"], "Value": MARK["value"]}
        text = json.dumps(trust)
        call(
            iam,
            "create_role",
            instead=instead,
            RoleName=name,
            AssumeRolePolicyDocument=text,
            Tags=[tag],
        )
        put_policy()

    def change() -> None:
        text = json.dumps(trust)
        call(iam, "update_assume_role_policy", RoleName=name, PolicyDocument=text)
        put_policy()

    if found is None:
        return Step("role", name, "create", "may write results and logs, nothing else", make)
    check_ours(found["Role"].get("Tags", []), f"the role {name}", instead)
    held = find(iam, "get_role_policy", RoleName=name, PolicyName=POLICY)
    same = held is not None and held["PolicyDocument"] == allowed
    if same and found["Role"]["AssumeRolePolicyDocument"] == trust:
        return Step("role", name, "keep")
    return Step("role", name, "update", "its policy differs", change)


def check_ours(tags: list[dict[str, str]], what: str, instead: str) -> None:
    ours = any(t.get("Key") == MARK["key"] and t.get("Value") == MARK["value"] for t in tags)
    if not ours:
        raise ConfigError(f"{what} is there and was not made by art: {instead}")


def code_step(
    account: Account, wanted: Wanted, bucket: str, digest: str, install: package.Install
) -> Step:
    s3, key = account.client("s3"), code_key(wanted.name, digest)
    name = f"s3://{bucket}/{key}"
    there = find(s3, "head_bucket", Bucket=bucket) is not None
    if there and find(s3, "head_object", Bucket=bucket, Key=key) is not None:
        return Step("code", name, "keep")

    def make() -> None:
        with tempfile.TemporaryDirectory(prefix="art-deploy-") as work:
            archive = Path(work, "agent.zip")
            package.pack(wanted.folder, archive, install)
            with archive.open("rb") as body:
                call(s3, "put_object", Bucket=bucket, Key=key, Body=body)

    return Step("code", name, "create", "zip with packages for ARM64", make)


def image_steps(account: Account, wanted: Wanted, digest: str) -> list[Step]:
    """The repository, and the image in it."""
    repository = repository_name(wanted.name)
    if wanted.image is not None:
        return [Step("image", wanted.image, "keep", "as given")]
    ecr = account.client("ecr")
    uri = account.image(repository, digest)
    found = find(ecr, "describe_repositories", repositoryNames=[repository])

    def make_repository() -> None:
        tags = [{"Key": MARK["key"], "Value": MARK["value"]}]
        instead = "pass an image that is there with --image"
        call(ecr, "create_repository", instead=instead, repositoryName=repository, tags=tags)

    def make_image() -> None:
        dockerfile = image.write(wanted.folder, wanted.name, wanted.entry)
        image.build_and_push(
            dockerfile,
            wanted.folder,
            digest,
            region=account.region,
            account=account.number,
            repository=repository,
        )

    first = Step("repository", repository, "create", do=make_repository)
    build = Step("image", uri, "create", "docker build and push, ARM64", make_image)
    if found is None:
        return [first, build]
    ids = [{"imageTag": digest}]
    if find(ecr, "describe_images", repositoryName=repository, imageIds=ids) is not None:
        build = Step("image", uri, "keep")
    return [Step("repository", repository, "keep"), build]
