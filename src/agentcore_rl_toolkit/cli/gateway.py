"""``art gateway``: the model gateway, and what it recorded."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .show import console, hint

if TYPE_CHECKING:
    from ..gateway.crew.workers import Workers
    from ..gateway.server import Gateway
    from ..gateway.setting import GatewaySettings, ModelSpec
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
            "tinker, chat."
        ),
    ],
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder of the trained model's tokenizer: turns go to the engine as token ids. "
            "NAME=FOLDER when there are several models."
        ),
    ] = None,
    renderer: Annotated[
        str | None,
        typer.Option(help="Model family, such as qwen3. Default: the one its template is of."),
    ] = None,
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
    normalise: Annotated[
        list[str] | None,
        typer.Option(
            help="Rule that takes a known prefix killer out of requests, or none; may be repeated: "
            "billing, cache_marks (both by default), clock, tool_order."
        ),
    ] = None,
    keep_gb: Annotated[
        float, typer.Option(min=0.01, help="Journals above it lose their oldest closed sessions.")
    ] = 20.0,
    keep_days: Annotated[
        float, typer.Option(min=0.01, help="Closed sessions older than it are removed.")
    ] = 14.0,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes behind the one port; sessions are spread.")
    ] = 1,
    probe: Annotated[
        bool, typer.Option(help="Sample one token at start: are ids and log-probabilities there?")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Serve models to agents until Ctrl-C, recording every turn."""
    from ..gateway.normal import DEFAULT_RULES
    from ..gateway.setting import GatewaySettings, ModelSpec

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING)
    settings = GatewaySettings(
        normalise=frozenset(normalise) - {"none"} if normalise else DEFAULT_RULES,
        journal_bytes=int(keep_gb * (1 << 30)),
        journal_age_s=keep_days * 86400,
        probe=probe,
        port=port,
        run_dir=run_dir,
        public_url=public_url,
        open=open_sessions,
        admin_token=admin_token or secrets.token_urlsafe(24),
    )
    models = with_tokenizers([ModelSpec.parse(text) for text in model], tokenizer or (), renderer)
    for spec in models:
        folder = spec.tokenizer
        if isinstance(folder, str) and not Path(folder).is_dir():
            raise ConfigError(
                f"--tokenizer {folder} is not a folder: give the one that tokenizer.json lies in"
            )
    run(models, settings, workers)
    console.print("stopped; every answered turn is on disk")


def run(models: list[ModelSpec], settings: GatewaySettings, workers: int = 1) -> None:
    """Serves until Ctrl-C."""
    hint("starting the gateway, and asking its engines what they give")
    from ..gateway.crew.workers import serve_workers
    from ..gateway.server import serve as serve_gateway
    from ..loop import new_loop

    serving = (
        serve_gateway(models, settings, ready=announce)
        if workers == 1
        else serve_workers(models, settings, count=workers, ready=announce_workers)
    )
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(serving)
        except KeyboardInterrupt:
            pass


@app.command()
def replay(
    run_dir: Annotated[Path, typer.Argument(help="Run folder that a gateway or trainer wrote.")],
    session: Annotated[
        str | None, typer.Option(help="Only this session. Default: all, each given once.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Run folder of the replay. Default: RUN_DIR-replay.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Serve a recorded run without an engine: the same requests get the same answers."""
    from ..gateway.engines.recording import read_sessions
    from ..gateway.setting import GatewaySettings, ModelSpec

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING)
    turns = [turn for record in read_sessions(run_dir, session) for turn in record.turns]
    if not turns:
        raise ConfigError(f"{run_dir} holds no answered turn to replay")
    tape = f"replay:{run_dir}" + (f"#{session}" if session else "")
    trained = {turn.model: turn.train for turn in turns}
    models = [ModelSpec(name, (tape,), train=train) for name, train in trained.items()]
    out = out or run_dir.with_name(f"{run_dir.resolve().name}-replay")
    run(models, GatewaySettings(port=port, run_dir=out, open=True))


def with_tokenizers(
    models: list[ModelSpec], tokenizers: Iterable[str], renderer: str | None
) -> list[ModelSpec]:
    """Models with their tokenizers: ``FOLDER`` is for all that are trained, ``NAME=FOLDER`` one."""
    folders = {name: folder for name, _, folder in (t.rpartition("=") for t in tokenizers)}
    unknown = folders.keys() - {"", *(model.name for model in models)}
    if unknown:
        raise ConfigError(f"--tokenizer: no model is named {', '.join(sorted(unknown))}")
    if renderer is not None and not folders:
        raise ConfigError("--renderer needs --tokenizer: it turns messages into token ids")
    out = []
    for model in models:
        folder = folders.get(model.name, folders.get("") if model.train else None)
        used = renderer if folder is not None and model.train else None
        out.append(dataclasses.replace(model, tokenizer=folder, renderer=used))
    return out


def announce(gateway: Gateway) -> None:
    console.print(f"model gateway on [bold]{gateway.url}[/]")
    for pool in gateway.models.pools.values():
        for slot in pool.slots.values():
            kind = "trained" if pool.train else "not trained"
            if slot.engine.takes_ids and pool.renderer is not None:
                kind += f", token ids by renderer {pool.renderer.name}"
            seen = slot.engine.capabilities
            state = f"[red]{seen.problem}[/]" if seen.problem else ", ".join(seen.models) or "ok"
            state += ", gives ids and log-probabilities" if seen.logprobs else ""
            console.print(
                f"  {pool.name} ({kind})  {slot.engine.kind} {slot.name}: {state}", soft_wrap=True
            )
    announce_place(gateway)


def announce_workers(workers: Workers) -> None:
    console.print(f"model gateway on [bold]{workers.url}[/] with {workers.count} workers")
    for spec in workers.models:
        kind = "trained" if spec.train else "not trained"
        console.print(f"  {spec.name} ({kind})  {', '.join(spec.engines)}", soft_wrap=True)
    announce_place(workers)


def announce_place(gateway: Gateway | Workers) -> None:
    console.print(f"  run folder   {gateway.run_dir}", soft_wrap=True)
    todo = f"base_url is {gateway.url}/sessions/ID/v1, with an id that you choose"
    if not gateway.settings.open:
        console.print(f"  admin token  {gateway.settings.admin_token}", soft_wrap=True)
        todo = "POST /sessions with the token, then use the answer's base_url"
    console.print(f"  next         {todo}", style="dim", soft_wrap=True)


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
    if not count and (why := no_rows(reader)):
        hint(why)


def no_rows(reader: RunReader) -> str:
    """Why a recording gives none; empty when nothing was recorded either."""
    turns = [turn for record in reader.sessions().values() for turn in record.turns]
    if not turns:
        return "no turn is recorded there"
    if any(turn.train for turn in turns):
        return ""
    names = ", ".join(sorted({turn.model for turn in turns}))
    return (
        f"{len(turns)} turns are recorded, all of models that are not trained ({names}): a 'chat' "
        "engine, or a NAME! on the command line, gives no token ids"
    )


def rows(reader: RunReader) -> Iterator[Row]:
    for record in reader.sessions().values():
        yield from record.graph(reader.problems).rows()
