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
    home: Annotated[
        Path | None, typer.Option(help="State folder. Default: the user's own (see ART_HOME).")
    ] = None,
    isolation: Annotated[str, typer.Option(help="auto, namespace or process.")] = "auto",
    max_sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions that may be alive at a time.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Run the runtime in the foreground until Ctrl-C. It speaks the AWS wire on loopback."""
    from ..runtime.quota import MAX_SESSIONS
    from ..runtime.server import run

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    run(
        port=port,
        home=home,
        isolation=isolation,
        max_sessions=max_sessions or MAX_SESSIONS,
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
    console.print(
        f"  export AWS_ENDPOINT_URL={server.url} AWS_DEFAULT_REGION=us-east-1 \\\n"
        "         AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local",
        style="dim",
        soft_wrap=True,
    )
