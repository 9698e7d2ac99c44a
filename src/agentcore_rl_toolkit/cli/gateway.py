"""``art gateway``: the model gateway, and what it recorded."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .show import console, hint

if TYPE_CHECKING:
    from ..gateway.server import Gateway
    from ..run.reader import RunReader
    from ..trajectory.row import Row

app = typer.Typer(help="The model gateway: captures tokens beside the agent.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The model gateway."""


@app.command()
def serve(
    model: Annotated[
        list[str],
        typer.Option(
            help="NAME=KIND:URL, such as policy=vllm:http://127.0.0.1:8000; several engines by "
            "comma, NAME! for a model that is not trained. Kinds: vllm, vllm-generate, sglang, "
            "chat."
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 0,
    run_dir: Annotated[
        Path | None, typer.Option(help="Where turns are recorded. Default: the user's own.")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(help="How agents reach it, when not by its own address.")
    ] = None,
    admin_token: Annotated[
        str | None, typer.Option(envvar="ART_ADMIN_TOKEN", help="Default: a new one, printed.")
    ] = None,
    open_sessions: Annotated[
        bool, typer.Option("--open", help="Callers choose ids, no token: trusted loopback only.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Serve models to agents until Ctrl-C, recording every turn."""
    from ..gateway.server import serve as run
    from ..gateway.setting import GatewaySettings, ModelSpec
    from ..loop import new_loop

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING)
    settings = GatewaySettings(
        port=port,
        run_dir=run_dir,
        public_url=public_url,
        open=open_sessions,
        admin_token=admin_token or secrets.token_urlsafe(24),
    )
    models = [ModelSpec.parse(text) for text in model]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(run(models, settings, ready=announce))
        except KeyboardInterrupt:
            pass
    console.print("stopped; every answered turn is on disk")


def announce(gateway: Gateway) -> None:
    console.print(f"model gateway on [bold]{gateway.url}[/]")
    for pool in gateway.models.pools.values():
        kind = "trained" if pool.train else "not trained"
        for slot in pool.slots.values():
            seen = slot.engine.capabilities
            state = f"[red]{seen.problem}[/]" if seen.problem else ", ".join(seen.models) or "ok"
            console.print(f"  {pool.name} ({kind})  {slot.engine.kind} {slot.name}: {state}")
    console.print(f"  run folder   {gateway.run_dir}", soft_wrap=True)
    if not gateway.settings.open:
        console.print(f"  admin token  {gateway.settings.admin_token}", soft_wrap=True)
    console.print(
        "  next         POST /sessions with the token, then use the answer's base_url", style="dim"
    )


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(help="Run folder that a gateway or trainer wrote.")],
    out: Annotated[Path, typer.Option(help="*.jsonl or *.parquet.")] = Path("rows.jsonl"),
) -> None:
    """Write every trained token sequence of a run as rows."""
    from ..run.reader import RunReader
    from ..trajectory.export import write_jsonl, write_parquet

    if not (run_dir / "turns").is_dir():
        raise ConfigError(f"{run_dir} is not a run folder: it has no turns/")
    writers = {".jsonl": write_jsonl, ".parquet": write_parquet}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: name a .jsonl or .parquet file")
    reader = RunReader(run_dir)
    count = writers[out.suffix](rows(reader), out)
    for problem in reader.problems:
        hint(f"could not be read: {problem}")
    console.print(f"{count} rows in {out}")


def rows(reader: RunReader) -> Iterator[Row]:
    for record in reader.sessions().values():
        yield from record.graph(reader.problems).rows()
