"""``art deploy --aws`` and ``art destroy``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .. import local
from ..errors import ConfigError
from .doctor import require_runtime
from .show import console, escape, hint, plain_table

if TYPE_CHECKING:
    from ..deploy.step import Step, Wanted

LOCAL_ARN = local.runtime_arn("")
STYLE = {"keep": "dim", "create": "green", "update": "yellow", "delete": "red"}


def deploy(wanted: Wanted, *, plan: bool) -> None:
    from ..deploy.aws import Deployment
    from ..deploy.step import Account

    if wanted.image and wanted.container:
        raise ConfigError(
            "--container builds an image and --image names one: leave one of them out"
        )
    if not wanted.entry.endswith(".py"):
        raise ConfigError(f"{wanted.entry} is not a Python script: --aws deploys Python agents")
    account = Account(wanted.region)
    try:
        deployment = Deployment(wanted, account)
        steps = deployment.plan()
        print_steps(steps)
        if plan:
            hint(f"nothing was done: account {account.number}, region {account.region}")
            return
        runtime = deployment.apply(steps, announce)
    finally:
        account.close()
    arn = runtime["agentRuntimeArn"]
    console.print(f"\nagent    {wanted.name}, version {runtime['agentRuntimeVersion']}")
    console.print(f"arn      [bold]{arn}[/]", soft_wrap=True)
    console.print(f"bucket   {deployment.bucket}")
    console.print("\nnext:", style="dim")
    payload = '{"prompt": "What is 6 * 7?", "answer": "42"}'
    command = (
        f"art invoke {arn} '{payload}' --rollout --base-url MODEL_URL --model-id MODEL "
        f"--bucket {deployment.bucket}"
    )
    console.print(f"  {escape(command)}", soft_wrap=True)
    hint("MODEL_URL must be reachable from AWS: not an address of this machine")


def destroy(
    agent: Annotated[str, typer.Argument(help="Name of the agent, or its ARN.")],
    region: Annotated[str | None, typer.Option(help="AWS region. Default: as boto3.")] = None,
    bucket: Annotated[str | None, typer.Option(help="Bucket, if it was not the default.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, it is only shown.")] = False,
    endpoint: Annotated[str | None, typer.Option(help="URL of the local runtime.")] = None,
) -> None:
    """Remove what 'art deploy' made for an agent. Results stay, and so does their bucket."""
    from ..deploy.remove import plan, runtime_steps
    from ..deploy.step import Account
    from .deploy import control_client

    if not agent.startswith("arn:"):
        try:
            with contextlib.closing(Account(region)) as account:
                finish(plan(account, agent, bucket), agent, yes)
        except ConfigError as error:
            raise ConfigError(f"{error}{on_local(agent, endpoint)}") from error
        return
    arn = local.parse_arn(agent)
    name = arn.runtime_id.rpartition("-")[0]
    if arn.is_local:
        require_runtime(arn, endpoint)
        with contextlib.closing(control_client(endpoint)) as control:
            finish(runtime_steps(control, name, arn.runtime_id), agent, yes)
        return
    with contextlib.closing(Account(region or arn.region)) as account:
        finish(plan(account, name, bucket, arn.runtime_id), agent, yes)


def on_local(name: str, endpoint: str | None) -> str:
    """A word for somebody who looks on AWS for what the local runtime has."""
    from botocore.exceptions import BotoCoreError, ClientError

    from .deploy import control_client, find_runtime

    with contextlib.closing(control_client(endpoint)) as control:
        try:
            found = find_runtime(control, name)
        except (BotoCoreError, ClientError):
            return ""
    if found is None:
        return ""
    return f". The local runtime has a {name!r}: art destroy {local.runtime_arn(found)}"


def finish(steps: Sequence[Step], name: str, yes: bool) -> None:
    if not steps:
        where = "is it another runtime's" if name.startswith(LOCAL_ARN) else "is the region right"
        raise ConfigError(f"there is nothing of {name!r} here: {where}?")
    print_steps(steps)
    if not yes:
        hint("nothing was done; --yes removes it")
        return
    for step in steps:
        announce(step)
        step.do()


def print_steps(steps: Sequence[Step]) -> None:
    table = plain_table("", "what", "name", "")
    table.columns[2].overflow = "fold"  # a name that is cut is of no use
    for step in steps:
        action = f"[{STYLE[step.action]}]{step.action}[/]"
        table.add_row(action, step.what, escape(step.name), escape(step.detail))
    console.print(table)


def announce(step: Step) -> None:
    if step.action != "keep":
        hint(f"{step.action} {step.what} {step.name}")
