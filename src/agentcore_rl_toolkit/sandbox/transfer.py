"""Files through commands: base64 in pieces that a command can hold, whole or not at all.

A piece is written to a file of its own, so that sending one twice does no harm. What is put
together is counted before it gets its name.
"""

from __future__ import annotations

import base64
import posixpath
import shlex
import uuid
from typing import Protocol

from ..errors import AgentError, ConfigError
from .execution import ExecResult

UP_BYTES = 45_000
"""In base64 still below the bound of one command."""
DOWN_BYTES = 32 * 1024 * 1024
"""In base64 still below the 100 MB that one command may say."""
TIMEOUT_S = 600.0


class Exec(Protocol):
    def __call__(self, command: str, *, timeout: float = ..., check: bool = ...) -> ExecResult: ...


def upload(run: Exec, data: bytes, path: str) -> None:
    _check(path)
    mark = uuid.uuid4().hex
    parts = f"${{TMPDIR:-/tmp}}/upload-{mark}"  # a name that needs no quotes, for they double
    folder, whole, target = (
        shlex.quote(text) for text in (posixpath.dirname(path) or ".", f"{path}.{mark}", path)
    )
    try:
        run(f"mkdir -p -- {folder} && mkdir {parts}", timeout=TIMEOUT_S, check=True)
        for number, start in enumerate(range(0, len(data), UP_BYTES)):
            piece = base64.b64encode(data[start : start + UP_BYTES]).decode()
            run(f"echo {piece} | base64 -d > {parts}/{number:08d}", timeout=TIMEOUT_S, check=True)
        run(
            f'for part in {parts}/*; do [ -e "$part" ] && cat "$part"; done > {whole}\n'
            f"[ $(wc -c < {whole}) -eq {len(data)} ] && mv -f -- {whole} {target}",
            timeout=TIMEOUT_S,
            check=True,
        )
    finally:
        run(f"rm -rf -- {parts} {whole}", timeout=TIMEOUT_S)


def download(run: Exec, path: str) -> bytes:
    _check(path)
    name = shlex.quote(path)
    found: list[bytes] = []
    while True:
        start = sum(map(len, found)) + 1
        said = run(
            f"[ -f {name} ] && [ -r {name} ] || {{ echo no file that can be read >&2; exit 66; }}\n"
            f"tail -c +{start} -- {name} | head -c {DOWN_BYTES} | base64",
            timeout=TIMEOUT_S,
        )
        if not said.ok:
            raise AgentError(f"{path} cannot be downloaded: {said.stderr.strip()[-500:]}")
        found.append(base64.b64decode(said.stdout))
        if len(found[-1]) < DOWN_BYTES:
            return b"".join(found)


def _check(path: str) -> None:
    if not path or path.endswith("/") or "\0" in path:
        raise ConfigError(f"{path!r} is not the path of a file in the sandbox")
