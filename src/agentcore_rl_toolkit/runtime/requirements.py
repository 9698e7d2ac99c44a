"""What an agent says that it needs: read from its folder, and compared with what is installed.

``requirements.txt``, or else the dependencies in ``pyproject.toml``. Nothing is run. Only lines
that name a package or a wheel are taken: a path, a repository or an editable install would make pip
run a build. The toolkit itself is always there and never asked for.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import ConfigError

TOOLKIT = "agentcore-rl-toolkit"
INDEX_OPTIONS = frozenset(
    {
        *("-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links"),
        *("--trusted-host", "--pre", "--prefer-binary", "--require-hashes"),
    }
)
"""Options of a requirements file that only say where and what to look for."""


@dataclass(frozen=True)
class Requirements:
    source: str
    """Name of the file, for messages."""
    lines: tuple[str, ...]
    options: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    def text(self) -> str:
        """As pip reads it."""
        return "".join(f"{line}\n" for line in (*self.options, *self.lines))


def find(folder: Path) -> Requirements | None:
    """None when the agent needs nothing but the toolkit. ConfigError when a line cannot be used."""
    if (listed := folder / "requirements.txt").is_file():
        found = _from_text(folder, listed)
    elif (project := folder / "pyproject.toml").is_file():
        found = _from_project(project)
    else:
        return None
    return found if found.lines else None


def _from_project(path: Path) -> Requirements:
    try:
        block = tomllib.loads(path.read_text()).get("project", {})
        listed = [str(one) for one in block.get("dependencies", [])]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    lines = [_checked(line, path.parent, path.name) for line in listed]
    return Requirements(path.name, tuple(line for line in lines if line))


def _from_text(folder: Path, path: Path) -> Requirements:
    lines: list[str] = []
    options: list[str] = []
    constraints: list[str] = []
    for line, origin in _lines(folder, path, {path}):
        name, _, value = line.partition("=" if line.startswith("--") and "=" in line else " ")
        if name in ("-c", "--constraint"):
            nested = _inside(folder, origin, value.strip())
            for one, where in _lines(folder, nested, {nested}):
                constraints.append(_checked(one, where.parent, where.name))
        elif name in ("-f", "--find-links") and "://" not in value:
            options.append(f"--find-links {(origin.parent / value.strip()).resolve()}")
        elif name in INDEX_OPTIONS:
            options.append(line)
        elif line.startswith("-"):
            raise ConfigError(
                f"{origin.name}: {name!r} is not supported. An agent's own folder is importable as "
                "it is; list packages by name, one a line"
            )
        elif kept := _checked(line, origin.parent, origin.name):
            lines.append(kept)
    return Requirements(path.name, tuple(lines), tuple(options), tuple(filter(None, constraints)))


def _lines(folder: Path, path: Path, seen: set[Path]) -> Iterator[tuple[str, Path]]:
    """With the lines of files that it includes; comments and line breaks are taken out."""
    try:
        text = path.read_text().replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if match := re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line):
            nested = _inside(folder, path, match[1])
            if nested not in seen:
                seen.add(nested)
                yield from _lines(folder, nested, seen)
        elif line:
            yield line, path


def _inside(folder: Path, origin: Path, name: str) -> Path:
    path = (origin.parent / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise ConfigError(
            f"{origin.name} includes {name!r}, which is no file of the agent's folder"
        )
    return path


def _checked(line: str, folder: Path, source: str) -> str:
    """The line as pip gets it; empty for the toolkit."""
    bare = re.split(r"\s+--", line, maxsplit=1)[0].strip()
    if bare.endswith(".whl") and "://" not in bare and "@" not in bare:
        wheel = (folder / bare).resolve()
        if not wheel.is_file():
            raise ConfigError(f"{source} names {bare!r}, which is not there")
        return str(wheel)
    try:
        found = Requirement(bare)
    except InvalidRequirement as error:
        raise ConfigError(
            f"{source}: {bare!r} is not the name of a package. Paths, repositories and editable "
            "installs are not supported: name a package of an index, or a wheel"
        ) from error
    if found.url and not re.sub(r"[?#].*", "", found.url).endswith(".whl"):
        raise ConfigError(
            f"{source}: {found.name} comes from {found.url}, which would have to be built. Name a "
            "wheel, or a package of an index"
        )
    return "" if canonicalize_name(found.name) == TOOLKIT else line


# --- what is there already --------------------------------------------------------------------


class Installed(NamedTuple):
    version: str
    requires: list[str]


class Interpreter(NamedTuple):
    """An interpreter as far as requirements are concerned."""

    python: str
    identity: str
    """Changes when what was installed for it may no longer fit."""
    markers: dict[str, str]
    look_up: Callable[[str], Installed | None]


def interpreter(python: str | None) -> Interpreter:
    """Another one than our own is asked for what it has; of its packages nothing is imported."""
    if python is None or os.path.abspath(python) == sys.executable:
        return Interpreter(sys.executable, f"{sys.executable} {sys.version}", {}, _own)
    try:
        answer = subprocess.run(
            [python, "-I", "-c", _QUESTION], capture_output=True, timeout=60, check=True, cwd="/"
        )
        told = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"{python} cannot be used as the agent's interpreter: {error}") from error
    found = {canonicalize_name(name): Installed(*rest) for name, *rest in told["installed"]}
    identity = f"{os.path.abspath(python)} {told['version']}"
    return Interpreter(python, identity, told["markers"], lambda n: found.get(canonicalize_name(n)))


_QUESTION = """
import importlib.metadata as m, json, platform, sys
all = [(d.metadata["Name"], d.version, d.requires or []) for d in m.distributions()]
full = platform.python_version()
markers = {"python_full_version": full, "python_version": ".".join(full.split(".")[:2])}
print(json.dumps({"version": sys.version, "markers": markers,
                  "installed": [one for one in all if one[0]]}))
"""


def _own(name: str) -> Installed | None:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return Installed(found.version, found.requires or [])


def unmet(wanted: Requirements, where: Interpreter) -> list[str]:
    """Lines that the interpreter's own packages do not satisfy. Costs a few milliseconds."""
    return [line for line in wanted.lines if not _met(line, where)]


def _met(line: str, where: Interpreter) -> bool:
    try:
        found = Requirement(re.split(r"\s+--", line, maxsplit=1)[0])
    except InvalidRequirement:  # the path of a wheel
        return False
    if found.url:
        return False
    return all(_there(one, where) for one in (found, *_of_extras(found, where)))


def _of_extras(found: Requirement, where: Interpreter) -> Iterable[Requirement]:
    """What the extras bring; what the package itself needs came with it."""
    have = where.look_up(found.name)
    for text in have.requires if have and found.extras else ():
        one = Requirement(text)
        if one.marker and not one.marker.evaluate({**where.markers, "extra": ""}):
            for extra in found.extras:
                if one.marker.evaluate({**where.markers, "extra": extra}):
                    one.marker = None
                    yield one
                    break


def _there(one: Requirement, where: Interpreter) -> bool:
    if one.marker and not one.marker.evaluate({**where.markers, "extra": ""}):
        return True
    have = where.look_up(one.name)
    return have is not None and one.specifier.contains(have.version, prereleases=True)
