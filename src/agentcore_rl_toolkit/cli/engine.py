"""``art engine``: the embedded inference engine on its own, for a gateway to sit in front of."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from .show import console, hint

app = typer.Typer(help="The embedded inference engine: token ids in and out.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The embedded inference engine."""


@app.command()
def serve(
    model_dir: Annotated[
        Path, typer.Argument(help="Folder of a Hugging Face causal language model.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 0,
    name: Annotated[
        str | None, typer.Option(help="Model name it answers to. Default: the folder's.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1. Default: a GPU where there is one.")
    ] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Sequences decoded at a time.")] = 64,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Serve a model on loopback until Ctrl-C: vLLM's /inference/v1/generate, not chat."""
    folder = model_dir.expanduser().resolve()
    hint(f"loading {folder}")
    from transformers.utils import logging as transformers_logging

    from ..engine import serve as serve_engine

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING)

    def announce(url: str) -> None:
        console.print(f"inference engine on [bold]{url}[/] serves {name or folder.name}")
        console.print(
            f"  next  art gateway serve --model policy=vllm-generate:{url} --tokenizer {folder}",
            style="dim",
            soft_wrap=True,
        )

    try:
        asyncio.run(
            serve_engine(folder, port, name=name, ready=announce, device=device, max_rows=max_rows)
        )
    except KeyboardInterrupt:
        console.print("stopped")
