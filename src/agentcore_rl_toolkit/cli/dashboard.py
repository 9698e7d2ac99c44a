"""``art dashboard``: the web page over run folders."""

from __future__ import annotations

import asyncio
import secrets
import signal
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..local import is_loopback
from .show import console, hint


def dashboard(
    runs_dir: Annotated[Path, typer.Argument(help="Folder of runs, or one run.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8586,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but loopback needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(envvar="ART_DASHBOARD_TOKEN", help="Default beyond loopback: a new one."),
    ] = None,
) -> None:
    """Look at runs in a browser: curves, rollouts, conversations, tokens. Ctrl-C ends it."""
    if not runs_dir.is_dir():
        raise ConfigError(f"{runs_dir} is not a folder: name the run_dir of your runs")
    if not is_loopback(host) and token is None:
        token = secrets.token_urlsafe(24)
    asyncio.run(serve(runs_dir, host, port, token))


async def serve(runs_dir: Path, host: str, port: int, token: str | None) -> None:
    from ..dashboard import DashboardServer

    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    async with DashboardServer(runs_dir, host=host, port=port, token=token) as server:
        console.print(server.url + (f"/?token={token}" if token else ""), soft_wrap=True)
        hint(f"showing {runs_dir}; Ctrl-C ends it")
        await done.wait()
