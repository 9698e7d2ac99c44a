"""Deployment against the local runtime's control plane, with moto for what is around it."""

from __future__ import annotations

import contextlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from agentcore_rl_toolkit import RolloutClient, local
from agentcore_rl_toolkit.deploy import image, remove
from agentcore_rl_toolkit.deploy.aws import Deployment, wait_ready
from agentcore_rl_toolkit.deploy.call import call, find
from agentcore_rl_toolkit.deploy.step import Account, Step, Wanted
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.requirements import Requirements
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

EVERYTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}


def install_nothing(wanted: Requirements, target: Path) -> None:
    """The local runtime's interpreter has the packages."""


def a_name() -> str:
    return f"agent_{uuid.uuid4().hex[:8]}"


def deployment(account: Account, folder: Path, name: str, **options: Any) -> Deployment:
    wanted = Wanted(folder, "rl_app.py", name, **options)
    return Deployment(wanted, account, install_nothing)


def actions(steps: list[Step]) -> dict[str, str]:
    return {step.what: step.action for step in steps}


def do_all(steps: list[Step]) -> None:
    for step in steps:
        step.do()


def silent(step: Step) -> None:
    pass


@pytest.fixture
def shared_store(control: RuntimeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code goes to the store that the control plane reads it from."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", control.url)


@pytest.mark.usefixtures("shared_store")
def test_an_agent_deployed_as_code_answers_rollouts(
    account: Account, folder: Path, control: RuntimeThread
) -> None:
    name = a_name()
    first = deployment(account, folder, name, bucket=local.DEFAULT_BUCKET, qualifier="prod")
    steps = first.plan()
    assert actions(steps) == {
        "bucket": "keep",
        "code": "create",
        "role": "create",
        "runtime": "create",
        "endpoint": "create",
    }
    made = first.apply(steps, silent)
    assert made["status"] == "READY"
    with RolloutClient(
        made["agentRuntimeArn"],
        local.DEFAULT_BUCKET,
        "try",
        endpoint_url=control.url,
        qualifier="prod",
    ) as client:
        result = client.invoke({"prompt": "hello"}).result(timeout=30)
    assert (result["rewards"], result["said"]) == (1.0, "hello")

    again = deployment(account, folder, name, bucket=local.DEFAULT_BUCKET, qualifier="prod")
    assert set(actions(again.plan()).values()) == {"keep"}

    (folder / "notes.txt").write_text("changed")
    changed = deployment(account, folder, name, bucket=local.DEFAULT_BUCKET, qualifier="prod")
    steps = changed.plan()
    assert actions(steps) == {
        "bucket": "keep",
        "code": "create",
        "role": "keep",
        "runtime": "update",
        "endpoint": "update",
    }
    assert changed.apply(steps, silent)["agentRuntimeVersion"] == "2"
    control_client = account.client("bedrock-agentcore-control")
    live = call(
        control_client,
        "get_agent_runtime_endpoint",
        agentRuntimeId=made["agentRuntimeId"],
        endpointName="prod",
    )
    assert live["liveVersion"] == "2"

    doomed = remove.plan(account, name, local.DEFAULT_BUCKET)
    assert [step.what for step in doomed] == ["runtime", "role", "code"]
    for step in doomed:
        step.do()
    assert remove.plan(account, name, local.DEFAULT_BUCKET) == []


@pytest.mark.usefixtures("shared_store")
def test_settings_of_others_survive_an_update(account: Account, folder: Path) -> None:
    name = a_name()
    first = deployment(account, folder, name, bucket=local.DEFAULT_BUCKET)
    made = first.apply(first.plan(), silent)
    control = account.client("bedrock-agentcore-control")
    lifetime = {"idleRuntimeSessionTimeout": 120, "maxLifetime": 600}
    kept = {key: made[key] for key in ("agentRuntimeArtifact", "roleArn", "networkConfiguration")}
    call(
        control,
        "update_agent_runtime",
        agentRuntimeId=made["agentRuntimeId"],
        lifecycleConfiguration=lifetime,
        **kept,
    )
    wait_ready(control, made["agentRuntimeId"])
    second = deployment(
        account, folder, name, bucket=local.DEFAULT_BUCKET, env={"LOG_LEVEL": "debug"}
    )
    steps = second.plan()
    assert "environmentVariables" in next(s.detail for s in steps if s.what == "runtime")
    after = second.apply(steps, silent)
    assert after["lifecycleConfiguration"] == lifetime
    assert after["environmentVariables"] == {"LOG_LEVEL": "debug"}


def test_a_plan_changes_nothing(account: Account, folder: Path) -> None:
    name = a_name()
    plan = deployment(account, folder, name, container=True).plan()
    assert actions(plan) == {
        "bucket": "create",
        "repository": "create",
        "image": "create",
        "role": "create",
        "runtime": "create",
    }
    assert find(account.client("s3"), "head_bucket", Bucket=account.bucket()) is None
    assert find(account.client("iam"), "get_role", RoleName=f"art-{name}") is None
    assert not (folder / ".bedrock_agentcore").exists()


def test_bucket_role_and_repository_are_made_once(account: Account, folder: Path) -> None:
    name = a_name()
    wanted = {"container": True}
    for step in deployment(account, folder, name, **wanted).plan():
        if step.what in ("bucket", "repository", "role"):
            step.do()
    after = actions(deployment(account, folder, name, **wanted).plan())
    assert (after["bucket"], after["repository"], after["role"]) == ("keep", "keep", "keep")
    s3, iam = account.client("s3"), account.client("iam")
    closed = s3.get_public_access_block(Bucket=account.bucket())["PublicAccessBlockConfiguration"]
    assert all(closed.values())
    assert s3.get_bucket_location(Bucket=account.bucket())["LocationConstraint"] == "us-west-2"

    iam.put_role_policy(
        RoleName=f"art-{name}",
        PolicyName="results-and-logs",
        PolicyDocument=json.dumps(EVERYTHING),
    )
    steps = deployment(account, folder, name, **wanted).plan()
    assert actions(steps)["role"] == "update"
    next(step for step in steps if step.what == "role").do()
    assert actions(deployment(account, folder, name, **wanted).plan())["role"] == "keep"
    assert {s.what for s in remove.plan(account, name)} == {"role", "repository"}


def test_the_role_may_write_results_and_nothing_of_another_bucket(
    account: Account, folder: Path
) -> None:
    name = a_name()
    next(s for s in deployment(account, folder, name).plan() if s.what == "role").do()
    held = account.client("iam").get_role_policy(
        RoleName=f"art-{name}", PolicyName="results-and-logs"
    )["PolicyDocument"]
    allowed = {
        (action, resource)
        for statement in held["Statement"]
        if statement["Effect"] == "Allow"
        for action in statement["Action"]
        for resource in statement["Resource"]
    }
    assert {r for a, r in allowed if a == "s3:PutObject"} == {f"arn:aws:s3:::{account.bucket()}/*"}
    assert {r for a, r in allowed if a == "s3:GetObject"} == {
        f"arn:aws:s3:::{account.bucket()}/_agents/{name}/*"
    }
    assert "*" not in {resource for _, resource in allowed}
    assert not any(action.endswith("*") for action, _ in allowed)


def test_the_role_may_fetch_the_image_that_was_given(account: Account, folder: Path) -> None:
    name = a_name()
    uri = "210987654321.dkr.ecr.eu-west-1.amazonaws.com/team/math:v1"
    steps = deployment(account, folder, name, image=uri).plan()
    next(step for step in steps if step.what == "role").do()
    held = account.client("iam").get_role_policy(
        RoleName=f"art-{name}", PolicyName="results-and-logs"
    )["PolicyDocument"]
    fetched = [s for s in held["Statement"] if "ecr:BatchGetImage" in s["Action"]]
    assert fetched[0]["Resource"] == ["arn:aws:ecr:eu-west-1:210987654321:repository/team/math"]


def test_another_dockerfile_or_entry_is_another_image(account: Account, folder: Path) -> None:
    def image_of(entry: str = "rl_app.py") -> str:
        wanted = Wanted(folder, entry, "math_agent", container=True)
        steps = Deployment(wanted, account, install_nothing).plan()
        return next(step.name for step in steps if step.what == "image")

    ours = image_of()
    assert image_of("other.py") != ours
    path = image.write(folder, "math_agent", "rl_app.py")
    assert image_of() == ours, "written is the same as to be written"
    path.write_text("FROM mine\n")
    assert image_of() != ours


def test_a_role_of_somebody_else_is_left_alone(account: Account, folder: Path) -> None:
    name = a_name()
    account.client("iam").create_role(RoleName=f"art-{name}", AssumeRolePolicyDocument="{}")
    with pytest.raises(ConfigError, match="--role"):
        deployment(account, folder, name).plan()
    assert remove.plan(account, name) == []


class Denying:
    """A client of which one call is refused, as AWS refuses it."""

    def __init__(self, client: Any, operation: str) -> None:
        self._client, self._operation = client, operation
        self.meta = client.meta

    def __getattr__(self, name: str) -> Any:
        if name != self._operation:
            return getattr(self._client, name)

        def refuse(**_: Any) -> None:
            error = {"Code": "AccessDenied", "Message": "User: u is not authorized"}
            raise ClientError({"Error": error}, self.meta.method_to_api_mapping[name])

        return refuse


@pytest.mark.parametrize(
    ("service", "operation", "told"),
    [
        ("iam", "create_role", "iam:CreateRole: ask for it, or pass an existing role with --role"),
        ("s3", "create_bucket", "s3:CreateBucket: ask for it, or name one with --bucket"),
        ("s3", "put_public_access_block", "s3:PutBucketPublicAccessBlock"),
        ("ecr", "create_repository", "ecr:CreateRepository: ask for it, or pass an image"),
    ],
)
def test_a_missing_permission_is_named_with_the_way_round_it(
    account: Account, folder: Path, service: str, operation: str, told: str
) -> None:
    account._clients[service] = Denying(account.client(service), operation)
    steps = deployment(account, folder, a_name(), container=True).plan()
    ours = [step for step in steps if step.what in ("bucket", "repository", "role")]
    with pytest.raises(ConfigError) as caught:
        do_all(ours)
    assert told in str(caught.value)


def test_without_credentials_the_user_is_told_to_log_in(
    moto: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="aws configure"):
        Account("us-west-2")


def test_without_a_region_the_user_is_told_to_name_one(
    moto: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="--region, or set AWS_REGION"):
        Account(None)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with contextlib.closing(Account(None)) as account:
        assert account.region == "eu-west-1", "which boto3 itself does not read"
