"""The trainer's side of a run folder: lines that are whole or recognisably not.

A record is one line, written by one call to the kernel in append mode, so lines of several threads
never mix and a reader sees whole lines but for the last. A line that a crash or a full disk cut
short is closed off before the next one: it costs itself and nothing else.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ..errors import ConfigError
from .folder import RunFolder


def _plain(value: Any) -> Any:
    """numpy and torch values, by shape; paths and enums as text."""
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else str(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def _encode(record: Any) -> bytes:
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:  # half of a surrogate pair, in what an agent or a model said
        return _encoder.encode(_text(msgspec.to_builtins(record, enc_hook=_plain)))


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_text(name): _text(item) for name, item in value.items()}
    return [_text(item) for item in value] if isinstance(value, list) else value


class LineWriter:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def append(self, record: Any) -> None:
        """OSError when the line is not in the file as a whole."""
        line = _encode(record) + b"\n"
        with self._lock:
            block = b"\n" + line if self._torn else line
            written = os.write(self._fd, block)
            self._torn = written < len(block)
        if written < len(block):
            raise OSError(f"{self.path} took {written} of {len(block)} bytes: is the disk full?")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RunWriter:
    """Opens a new run, or goes on with one when ``resume`` is set."""

    def __init__(
        self, path: Path | str, *, config: str | None = None, resume: bool = False
    ) -> None:
        self.folder = RunFolder(path)
        if self.folder.exists() and not resume:
            raise ConfigError(
                f"{self.folder.path} holds a run already: choose another run_dir, or resume it"
            )
        self.folder.create()
        if config is not None:
            write_whole(self.folder.config, config.encode())
        self._lines = {
            path: LineWriter(path)
            for path in (self.folder.rollouts, self.folder.metrics, self.folder.events)
        }

    def rollout(self, record: Any) -> None:
        self._lines[self.folder.rollouts].append(record)

    def metric(self, record: Any) -> None:
        self._lines[self.folder.metrics].append(record)

    def event(self, record: Any) -> None:
        self._lines[self.folder.events].append(record)

    def result(self, key: str, body: bytes) -> Path:
        """Keeps what an agent returned, under its result key."""
        path = self.folder.result(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, body)
        return path

    def close(self) -> None:
        for lines in self._lines.values():
            lines.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


def write_whole(path: Path, body: bytes) -> None:
    """Readers see the old file or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(body)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
