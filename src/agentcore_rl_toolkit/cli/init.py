"""``art init``: an agent to start from, or what makes an existing one trainable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .show import console, escape, hint


def init(
    path: Annotated[Path, typer.Argument(help="New folder, or an agent's script or folder.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Write rl_app.py and reward.py, not only show them.")
    ] = False,
) -> None:
    """Make an agent in a new folder; or show, for an agent, the changes that make it trainable."""
    from ..deploy import scaffold

    script = path if path.suffix == ".py" else path / scaffold.BASIC
    if script.is_file():
        adapt(script, apply)
        return
    if path.suffix == ".py":
        raise ConfigError(f"{path} does not exist")
    for made in scaffold.scaffold(path):
        console.print(f"made     {escape(str(made))}", soft_wrap=True)
    console.print("\nnext:", style="dim")
    console.print(f"  art deploy {escape(str(path))} --local", soft_wrap=True)


def adapt(script: Path, apply: bool) -> None:
    from ..deploy import scaffold

    change = scaffold.adapted(script)
    diff = change.diff(script.name, scaffold.TRAINABLE)
    for line in diff.splitlines():
        style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1])
        console.print(line, style=style, markup=False, soft_wrap=True)
    for note in change.notes:
        hint(f"to do: {note}")
    target = script.with_name(scaffold.TRAINABLE)
    if not apply and target.exists():
        hint(
            f"nothing is written, and {target} exists already: deploy it (art deploy "
            f"{script.parent} --local), or move it away to have it written anew with --apply"
        )
        return
    if not apply:
        hint(f"nothing is written; art init {script} --apply writes {scaffold.TRAINABLE} beside it")
        return
    written = scaffold.apply(script, change)
    for made in written:
        console.print(f"made     {escape(str(made))}", soft_wrap=True)
    if len(written) > 1:
        hint(f"to do: say in {written[1]} what a good answer is")
    console.print("\nnext:", style="dim")
    console.print(f"  art deploy {escape(str(script.parent))} --local", soft_wrap=True)
