"""The command tree of ``art``."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    aws,
    dashboard,
    deploy,
    doctor,
    engine,
    evaluate,
    gateway,
    init,
    invoke,
    runs,
    runtime,
    sessions,
    shell,
    train,
)

app = typer.Typer(
    name="art",
    help="Train the agent you deploy: rollouts of AgentCore agents, here or on AWS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(runtime.app, name="runtime")
app.add_typer(gateway.app, name="gateway")
app.add_typer(engine.app, name="engine")
app.command("init")(init.init)
app.command("deploy")(deploy.deploy)
app.command("destroy")(aws.destroy)
app.command("invoke")(invoke.invoke)
app.command("eval")(evaluate.evaluate)
app.command("train")(train.train)
app.command("sessions")(sessions.sessions)
app.command("logs")(sessions.logs)
app.command("stop")(sessions.stop)
app.command("shell")(shell.shell)
app.command("runs")(runs.runs)
app.command("show")(runs.show)
app.command("tail")(runs.tail)
app.command("rescore")(runs.rescore)
app.command("dashboard")(dashboard.dashboard)
app.command("doctor")(doctor.doctor)


def print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"agentcore-rl-toolkit {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    pass
