"""A command as one line that is read the same whether a shell splits it or no shell does.

The service makes words of a command by itself; its documents speak of a shell. Text between two
single quotes is the same to both, so that is all we use: ``/bin/sh -c '…'``. A script that holds a
single quote goes in as base64 and is evaluated inside.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence

from ..errors import ConfigError

MAX_CHARS = 65_536
"""The service's bound of one command."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def line(
    command: str | Sequence[str],
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Text is a shell script; a sequence is one program and its arguments, each as it is."""
    script = compose(command, cwd, env)
    if "\0" in script:
        raise ConfigError("a command cannot hold a NUL character")
    if "'" in script:
        packed = base64.b64encode(script.encode()).decode()
        script = f'eval "$(echo {packed} | base64 -d)"'
    made = f"/bin/sh -c '{script}'"
    if len(made) > MAX_CHARS:
        raise ConfigError(
            f"the command is {len(made)} characters long on the wire, the service takes "
            f"{MAX_CHARS}: upload a script and run that"
        )
    return made


def compose(command: str | Sequence[str], cwd: str | None, env: Mapping[str, str] | None) -> str:
    if not isinstance(command, str):
        words = list(command)
        if not words or not all(isinstance(word, str) for word in words):
            raise ConfigError("a command is text, or a program and its arguments as text")
        command = shlex.join(words)
    if not command.strip():
        raise ConfigError("the command is empty")
    lines = []
    if cwd is not None:
        lines.append(f"cd -- {shlex.quote(cwd)} || exit 1")
    for name, value in (env or {}).items():
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not the name of an environment variable")
        lines.append(f"export {name}={shlex.quote(value)}")
    return "\n".join([*lines, command])
