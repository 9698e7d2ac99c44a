"""``art runtime``: the local AgentCore Runtime."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import local
from .show import console

if TYPE_CHECKING:
    from ..runtime.server import RuntimeServer

app = typer.Typer(help="The local AgentCore Runtime.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The local AgentCore Runtime."""


@app.command()
def serve(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 picks a free one.")
    ] = local.DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="Other addresses than loopback demand access keys.")
    ] = "127.0.0.1",
    access_keys: Annotated[
        Path | None,
        typer.Option(
            help="File of keys that requests must be signed with, in the form of AWS's credentials "
            "file; made when it is not there. Default: ART_ACCESS_KEYS; without it, off loopback, "
            "access-keys in the state folder."
        ),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="State folder. Default: the user's own (see ART_HOME).")
    ] = None,
    isolation: Annotated[
        str, typer.Option(help="auto, namespace, process; or microvm (experimental).")
    ] = "auto",
    max_sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions that may be alive at a time.")
    ] = None,
    memory_wait: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds a start may wait for memory before it is refused."),
    ] = None,
    reserve_mb: Annotated[
        int | None,
        typer.Option(min=0, help="Memory that sessions leave free. Default: a tenth, up to 2 GB."),
    ] = None,
    session_mb: Annotated[
        int | None, typer.Option(min=1, help="Memory a session is expected to take at least.")
    ] = None,
    quotas: Annotated[
        str,
        typer.Option(help="AWS's quotas, to rehearse a run: aws, aws-2025, or name=value,…"),
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Run the runtime in the foreground until Ctrl-C. It speaks the AWS wire."""
    from ..runtime.awsquota import AwsQuotas
    from ..runtime.quota import MAX_SESSIONS, SESSION_MB, WAIT_S, Quota
    from ..runtime.server import run

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    run(
        host=host,
        port=port,
        home=home,
        access_keys=access_keys,
        isolation=isolation,
        quota=Quota(
            max_sessions=max_sessions or MAX_SESSIONS,
            wait_s=WAIT_S if memory_wait is None else memory_wait,
            reserve_mb=reserve_mb,
            session_mb=session_mb or SESSION_MB,
        ),
        quotas=AwsQuotas.parse(quotas),
        on_ready=announce,
    )
    console.print("stopped, with every session")


def announce(server: RuntimeServer) -> None:
    driver = server.templates.driver(server.isolation)
    console.print(f"local AgentCore Runtime on [bold]{server.url}[/]")
    console.print(f"  isolation  {driver.level}: {driver.probe().reason}", soft_wrap=True)
    console.print(f"  state      {server.home.path}", soft_wrap=True)
    console.print("  next       art deploy PATH --local      (Ctrl-C stops everything)")
    console.print("\nplain boto3 reaches it with", style="dim")
    where = f"AWS_ENDPOINT_URL={server.url} AWS_DEFAULT_REGION=us-east-1"
    who = "AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"
    if server.access_keys is not None:
        who = f"AWS_SHARED_CREDENTIALS_FILE={server.access_keys}"
    console.print(f"  export {where} \\\n         {who}", style="dim", soft_wrap=True)
    if server.access_keys is not None:
        console.print(
            "requests must be signed with those keys. On another machine: copy the file there, put "
            "this machine's\nname into AWS_ENDPOINT_URL, and for art itself set ART_ACCESS_KEYS to "
            "the file. They travel as signatures,\npayloads in the clear: use a tunnel or a TLS "
            "proxy on networks that you do not trust",
            style="dim",
            soft_wrap=True,
        )
