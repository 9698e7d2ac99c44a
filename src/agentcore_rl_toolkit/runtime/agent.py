"""What is deployed: an immutable copy of an agent's folder, and how its sessions are started.

Every version has its own folder ``agents/{runtime id}/{version}``, complete before it gets its
name: a copy interrupted by a kill leaves only a ``.partial`` folder that the next start removes.
Nothing outside the given folder or archive is ever copied or written: links that lead out and
archive members that climb are refused. ``agent_of`` makes the driver's ``Agent`` of a version.
"""

from __future__ import annotations

import dataclasses
import difflib
import io
import lzma
import math
import os
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, get_args
from urllib.parse import unquote, urlsplit

from ..errors import ConfigError
from .ignore import ignored_in
from .isolation.base import Agent, Level, Limits, Network

MAX_FOLDER_BYTES = 750_000_000
"""AWS's limit for unzipped code."""
MAX_ZIP_BYTES = 250_000_000
MAX_FILES = 50_000
LEFT_OUT = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".tox",
        ".DS_Store",
    }
)
PARTIAL = ".partial"
SETTINGS = (
    "ART_ALLOW",
    "ART_FREEZE_S",
    "ART_IMAGE",
    "ART_INIT_S",
    "ART_ISOLATION",
    "ART_LIMITS",
    "ART_NETWORK",
    "ART_PACKAGES",
    "ART_PYTHON",
    "ART_ZYGOTE",
)
"""The variables of an agent that mean something to the runtime; it takes no other ART_ ones."""
MAX_LIMIT = 2**31
_ZIP_FAULTS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)
"""What zipfile raises for archives that are damaged, encrypted (RuntimeError) or packed in a way
that it does not know (NotImplementedError, which is one)."""


def parse_uri(uri: str) -> tuple[Path, str]:
    """``file:///abs/folder#rl_app.py`` → folder and entry script, or ConfigError."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"containerUri {uri!r} is not a folder of this machine. The local runtime runs "
            "file:///absolute/folder#entry_script; 'art deploy PATH --local' makes one"
        )
    folder = Path(unquote(parts.path))
    if not folder.is_absolute() or not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder of this machine")
    return folder, check_entry(unquote(parts.fragment) or "rl_app.py")


def check_entry(entry: str) -> str:
    path = PurePosixPath(entry)
    if not path.name or path.is_absolute() or ".." in path.parts or not entry.isprintable():
        raise ConfigError(f"the entry script must be a file inside the folder, got {entry!r}")
    return str(path)


def check_program(folder: Path, entry: str) -> None:
    """An entry that is not Python is a program, started as it is."""
    if not entry.endswith(".py") and not (folder / entry).stat().st_mode & stat.S_IXUSR:
        raise ConfigError(
            f"{entry} is neither a .py script nor executable: a program that serves port 8080 "
            f"itself needs a first line such as #!/bin/sh, and 'chmod +x {entry}'"
        )


# --- copies -----------------------------------------------------------------------------------


def copy_folder(source: Path, target: Path, entry: str) -> None:
    """Blocking: run it in a thread."""
    if not (source / entry).is_file():
        raise ConfigError(f"{source} has no entry script {entry}")
    check_program(source, entry)
    if ignored_in(source)(PurePosixPath(entry)):
        raise ConfigError(f"the .dockerignore of {source} leaves out the entry script {entry}")
    with _partial(target) as fresh:
        budget = _Budget()
        root = os.path.realpath(source)
        for path in _walk(source):
            inside = path.relative_to(source)
            if path.is_symlink() and not os.path.realpath(path).startswith(root + os.sep):
                raise ConfigError(f"{inside} is a link out of {source}: an agent's folder is whole")
            budget.spend(path.stat().st_size, str(source))
            copy = fresh / inside
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def unpack_zip(file: int, size: int, target: Path, entry: str) -> None:
    """The first ``size`` bytes of a descriptor, which it closes. Blocking: run it in a thread."""
    with open(file, "rb") as source:
        if size > MAX_ZIP_BYTES:
            raise ConfigError(f"the code archive is larger than {MAX_ZIP_BYTES // 1_000_000} MB")
        archive = io.BytesIO(source.read(size))
    try:
        with _partial(target) as fresh, zipfile.ZipFile(archive) as packed:
            _extract(packed, fresh)
            if not (fresh / entry).is_file():
                raise ConfigError(f"the archive has no entry script {entry}")
            check_program(fresh, entry)
    except ConfigError:
        raise
    except _ZIP_FAULTS as error:
        raise ConfigError(
            f"the code archive is not a zip file that can be read: {error}"
        ) from error


def _extract(packed: zipfile.ZipFile, target: Path) -> None:
    budget = _Budget()
    for member in packed.infolist():
        path = PurePosixPath(member.filename)
        name = member.filename
        if not name or path.is_absolute() or ".." in path.parts or "\\" in name:
            raise ConfigError(f"the archive holds {member.filename!r}, which leads out of it")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise ConfigError(f"the archive holds the link {member.filename!r}: not supported")
        if member.is_dir() or LEFT_OUT.intersection(path.parts):
            continue
        budget.spend(member.file_size, "the archive")
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        with packed.open(member) as src, open(copy, "wb") as dst:
            shutil.copyfileobj(src, dst)
        if mode := (member.external_attr >> 16) & 0o777:
            copy.chmod(mode | 0o600)


def _walk(folder: Path) -> Iterator[Path]:
    ignored = ignored_in(folder)
    for where, folders, files in os.walk(folder, followlinks=False):
        here = Path(where)
        folders[:] = sorted(f for f in folders if _kept(here / f))
        for name in sorted(files):
            path = here / name
            left_out = name in LEFT_OUT or ignored(PurePosixPath(path.relative_to(folder)))
            if not left_out and path.is_file():
                yield path


def _kept(folder: Path) -> bool:
    if folder.is_symlink():
        raise ConfigError(f"{folder} is a link to a folder: put the files themselves there")
    if folder.name in LEFT_OUT or (folder / "pyvenv.cfg").exists():
        return False
    is_run = (folder / "turns").is_dir() and (folder / "config.yaml").is_file()
    return not is_run  # what training left in the agent's folder is not the agent


class _Budget:
    def __init__(self) -> None:
        self.size = self.files = 0

    def spend(self, size: int, what: str) -> None:
        self.size += size
        self.files += 1
        if self.size > MAX_FOLDER_BYTES or self.files > MAX_FILES:
            raise ConfigError(
                f"{what} holds more than {MAX_FOLDER_BYTES // 1_000_000} MB or {MAX_FILES} files: "
                "deploy the folder of the agent alone, without data or models"
            )


class _partial:
    """A folder that gets its name only when the block succeeds."""

    def __init__(self, target: Path) -> None:
        self.target, self.fresh = target, target.with_name(target.name + PARTIAL)

    def __enter__(self) -> Path:
        shutil.rmtree(self.fresh, ignore_errors=True)
        self.fresh.mkdir(parents=True)
        return self.fresh

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            os.replace(self.fresh, self.target)
        else:
            shutil.rmtree(self.fresh, ignore_errors=True)


def remove_leftovers(agents: Path, known: Iterable[tuple[str, str]]) -> None:
    """Versions that no registration names: copied by a runtime that was killed before it saved."""
    keep = set(known)
    for version in agents.glob("*/*"):
        if (version.parent.name, version.name) not in keep:
            shutil.rmtree(version, ignore_errors=True)
    for runtime in agents.glob("*"):
        if not any(runtime.iterdir()):
            runtime.rmdir()


# --- how sessions are started -----------------------------------------------------------------


def agent_of(
    runtime_id: str,
    version: str,
    folder: Path,
    entry: str,
    variables: Mapping[str, str],
    *,
    endpoint_url: str,
    credentials: tuple[str, str] = ("local", "local"),
    isolation: str,
    init_timeout_s: float,
    least_memory_mb: int = 0,
) -> Agent:
    settings = {name: value for name, value in variables.items() if name.startswith("ART_")}
    python = settings.get("ART_PYTHON") or sys.executable
    return Agent(
        runtime_id=runtime_id,
        version=version,
        folder=folder,
        entry=entry,
        python=python,
        packages=settings.get("ART_PACKAGES", ""),
        env={**base_env(python, endpoint_url, credentials), **variables},
        isolation=one_of(Level, "ART_ISOLATION", settings.get("ART_ISOLATION") or isolation),
        network=one_of(Network, "ART_NETWORK", settings.get("ART_NETWORK") or "model"),
        allow=tuple(h.strip() for h in settings.get("ART_ALLOW", "").split(",") if h.strip()),
        zygote=settings.get("ART_ZYGOTE") != "0",
        init_timeout_s=seconds("ART_INIT_S", settings.get("ART_INIT_S") or init_timeout_s),
        freeze_s=seconds("ART_FREEZE_S", settings.get("ART_FREEZE_S") or Agent.freeze_s),
        limits=limits_of(settings.get("ART_LIMITS", ""), least_memory_mb),
    )


def check_variables(variables: Mapping[str, str]) -> None:
    """Refuses settings that no session could be started with; ConfigError."""
    for name in variables:
        if name.startswith("ART_") and name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, 1)
            meant = f"did you mean {near[0]}" if near else f"there are {', '.join(SETTINGS)}"
            raise ConfigError(f"{name} is no setting of an agent: {meant}?")
    one_of(Level, "ART_ISOLATION", variables.get("ART_ISOLATION") or "auto")
    one_of(Network, "ART_NETWORK", variables.get("ART_NETWORK") or "model")
    seconds("ART_FREEZE_S", variables.get("ART_FREEZE_S") or 0)
    seconds("ART_INIT_S", variables.get("ART_INIT_S") or 0)
    limits_of(variables.get("ART_LIMITS", ""))
    python = variables.get("ART_PYTHON")
    if python and not os.access(python, os.X_OK):
        raise ConfigError(f"ART_PYTHON {python!r} is not an interpreter of this machine")
    packages = variables.get("ART_PACKAGES")
    if packages and not (os.path.isabs(packages) and os.path.isdir(packages)):
        raise ConfigError(f"ART_PACKAGES {packages!r} is not a folder of this machine")


def base_env(python: str, endpoint_url: str, credentials: tuple[str, str]) -> dict[str, str]:
    """All that a session sees of the machine. Also set in the template: agents often make their S3
    client at import."""
    return {
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "AWS_ENDPOINT_URL_S3": endpoint_url,
        "AWS_ACCESS_KEY_ID": credentials[0],
        "AWS_SECRET_ACCESS_KEY": credentials[1],
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def one_of(choices: Any, name: str, value: str) -> Any:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def limits_of(text: str, least_memory_mb: int = 0) -> Limits:
    """``memory_mb=2048,disk_mb=1024``: what is not named stays as it is."""
    found = Limits()
    names = [field.name for field in dataclasses.fields(Limits)]
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = word.partition("=")
        if name not in names:
            raise ConfigError(f"ART_LIMITS {word!r}: the names are {', '.join(names)}")
        try:
            number = float(value) if name == "cpus" else int(value)
        except ValueError:
            number = 0
        if not 0 < number <= MAX_LIMIT:
            raise ConfigError(f"ART_LIMITS {word!r} needs a number above 0")
        changed: dict[str, Any] = {name: number}
        found = dataclasses.replace(found, **changed)
    return dataclasses.replace(found, memory_mb=max(found.memory_mb, least_memory_mb))


def seconds(name: str, value: str | float) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise ConfigError(f"{name} must be seconds, 0 for never, got {value!r}")
    return found
