"""``art deploy --aws`` and ``art destroy``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .. import local
from ..errors import ConfigError
from .doctor import require_local, require_runtime
from .show import console, escape, hint, plain_table
from .suggest import print_next

if TYPE_CHECKING:
    from ..deploy.step import Step, Wanted

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
    script = wanted.folder / wanted.entry
    if print_next(script, arn, rollout=f" --bucket {deployment.bucket}"):
        hint("MODEL_URL must be reachable from AWS: not an address of this machine")


def destroy(
    agent: Annotated[str, typer.Argument(help="Name of the agent, or its ARN.")],
    region: Annotated[str | None, typer.Option(help="AWS region. Default: as boto3.")] = None,
    bucket: Annotated[str | None, typer.Option(help="Bucket, if it was not the default.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, it is only shown.")] = False,
    endpoint: Annotated[str | None, typer.Option(help="URL of the local runtime.")] = None,
) -> None:
    """Remove what 'art deploy' made for an agent. Results stay, and so does their bucket."""
    from ..deploy.remove import plan
    from ..deploy.step import Account

    if agent.startswith("arn:"):
        arn = local.parse_arn(agent)
        name = arn.runtime_id.rpartition("-")[0]
        if arn.is_local:
            require_runtime(arn, endpoint)
            destroy_local(agent, name, arn.runtime_id, endpoint, yes)
            return
        with contextlib.closing(Account(region or arn.region)) as account:
            finish(plan(account, name, bucket, arn.runtime_id), agent, yes)
        return
    if endpoint is not None:
        require_local(endpoint)
    here = id_here(agent, endpoint)
    if endpoint is not None or (here and not (region or bucket or is_aws_set_up())):
        destroy_local(agent, agent, None, endpoint, yes)
        return
    try:
        with contextlib.closing(Account(region)) as account:
            finish(plan(account, agent, bucket), agent, yes)
    except ConfigError as error:
        if here is None:
            raise
        has = f"a {agent!r}: art destroy {local.runtime_arn(here)}" if here else f"no {agent!r}"
        end = "" if str(error).endswith("?") else "."
        raise ConfigError(f"{error}{end} The local runtime has {has}") from error


def destroy_local(
    agent: str, name: str, runtime_id: str | None, endpoint: str | None, yes: bool
) -> None:
    from ..deploy.remove import runtime_steps
    from .deploy import control_client

    with contextlib.closing(control_client(endpoint)) as control:
        finish(runtime_steps(control, name, runtime_id), agent, yes, where="the local runtime")


def id_here(name: str, endpoint: str | None) -> str | None:
    """Of the agent of that name on the local runtime; empty for none, None where none answers."""
    from botocore.exceptions import BotoCoreError, ClientError

    from .deploy import control_client, find_runtime

    with contextlib.closing(control_client(endpoint)) as control:
        try:
            return find_runtime(control, name) or ""
        except (BotoCoreError, ClientError):
            return None


def is_aws_set_up() -> bool:
    """Whether a name can mean an agent there."""
    import boto3

    from ..deploy.step import default_region

    session = boto3.Session()
    return bool(default_region(session)) and session.get_credentials() is not None


def finish(steps: Sequence[Step], name: str, yes: bool, *, where: str = "") -> None:
    if not steps:
        asked = "is it another runtime's" if where else "is the region right"
        raise ConfigError(f"there is nothing of {name!r} here: {asked}?")
    print_steps(steps)
    if where:
        hint(f"on {where}")
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
