"""Requirements that come as source, built where they can do no harm: in a session of their own.

The session has no agent, only pip: it sees Python, compilers under ``/usr`` and a copy of the
requirements, none of the machine's other files, and has no rights. What pip has installed is packed
inside and unpacked outside as plain files. It does share the machine's network, unless pip is told
not to use any, and sees pip's settings: so it is asked for by name, never done by itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError, IsolationError
from . import isolation
from .environment import LAST_LINES, Show, arguments
from .isolation.base import Agent, Compute, Limits, SessionSpec
from .requirements import Interpreter, Requirements

LIMITS = Limits(memory_mb=8192, processes=512, disk_mb=8192)
BUILD_S = 1800.0
LOOK_S = 0.2
_LINKS = "/app/links"
_TARGET = "/tmp/packages"
_SETTINGS = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy")


def in_sandbox(wanted: Requirements, where: Interpreter, target: Path, show: Show) -> None:
    try:
        asyncio.run(_build(wanted, where, target, show))
    except (IsolationError, OSError, tarfile.TarError) as error:
        raise ConfigError(f"{wanted.source} cannot be built in a sandbox: {error}") from error


async def _build(wanted: Requirements, where: Interpreter, target: Path, show: Show) -> None:
    driver = isolation.select("namespace")
    with tempfile.TemporaryDirectory(prefix="art-build-") as work:
        folder = Path(work) / "app"
        env = _furnish(folder, wanted)
        no_index = any(line.startswith("--no-index") for line in wanted.options)
        agent = Agent(
            runtime_id="build",
            version="1",
            folder=folder,
            entry="wait",
            python=where.python,
            env=env,
            network="none" if no_index or env.get("PIP_NO_INDEX") not in (None, "0") else "open",
            zygote=False,
            pool=0,
            freeze_s=0,
            limits=LIMITS,
        )
        template = await driver.prepare(agent)
        try:
            compute = await template.spawn(SessionSpec("build", {}, Path(work) / "log"))
            async with asyncio.timeout(BUILD_S):
                await _install(compute, wanted, where, show, Path(work))
                await _fetch(compute, target, Path(work))
        except TimeoutError:
            raise ConfigError(f"{wanted.source} was not built in {BUILD_S:g} s") from None
        finally:
            await template.close()


def _furnish(folder: Path, wanted: Requirements) -> dict[str, str]:
    """The folder that the session sees as ``/app``; returns its variables."""
    folder.mkdir()
    (folder / "links").mkdir()
    waits = folder / "wait"
    waits.write_text("#!/bin/sh\nexec sleep 86400\n")
    waits.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    links = env.pop("PIP_FIND_LINKS", "").split()
    for place in (*links, *(line.partition(" ")[2] for line in wanted.options)):
        if os.path.isdir(place):
            for file in _archives(Path(place)):
                shutil.copy(file, folder / "links" / file.name)
    lines = [_moved(line, folder) for line in wanted.lines]
    options = [line for line in wanted.options if not os.path.isdir(line.partition(" ")[2])]
    arguments(replace(wanted, lines=tuple(lines), options=tuple(options)), folder, _TARGET)
    return {**env, "PIP_USER": "0", "PIP_PROGRESS_BAR": "off", "PIP_FIND_LINKS": _LINKS}


def _archives(place: Path) -> Iterator[Path]:
    return (file for file in place.iterdir() if re.search(r"\.(whl|tar\.gz|zip)$", file.name))


def _moved(line: str, folder: Path) -> str:
    if not line.startswith("/"):
        return line
    shutil.copy(line, folder / "links")
    return f"{_LINKS}/{os.path.basename(line)}"


async def _install(
    compute: Compute, wanted: Requirements, where: Interpreter, show: Show, work: Path
) -> None:
    command = [where.python, "-I", "-m", "pip", "install", "--target", _TARGET, "--no-input"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "-r", "/app/requirements.txt"]
    if wanted.constraints:
        command += ["-c", "/app/constraints.txt"]
    said = work / "said"
    with said.open("wb") as out:
        running = await compute.run(command, out.fileno(), out.fileno())
        done = asyncio.ensure_future(running.wait())
        shown = 0
        while not done.done():
            await asyncio.wait({done}, timeout=LOOK_S)
            lines = said.read_text(errors="replace").splitlines()
            for line in lines[shown:]:
                show(line.strip())
            shown = len(lines)
    if await done != 0:
        last = "\n".join(said.read_text(errors="replace").splitlines()[-LAST_LINES:])
        raise ConfigError(f"{wanted.source} cannot be built. pip said, in the sandbox:\n{last}")


async def _fetch(compute: Compute, target: Path, work: Path) -> None:
    with (work / "packed").open("w+b") as packed, (work / "said").open("wb") as said:
        command = ["/bin/tar", "-C", _TARGET, "-cf", "-", "."]
        running = await compute.run(command, packed.fileno(), said.fileno())
        if await running.wait() != 0:
            raise OSError(f"what was built could not be packed: {(work / 'said').read_text()}")
        packed.seek(0)
        await asyncio.to_thread(_unpack, packed.name, target)


def _unpack(archive: str, target: Path) -> None:
    """By the rules for archives of strangers: nothing outside, no devices, no special bits."""
    if not hasattr(tarfile, "data_filter"):
        raise OSError("needs Python 3.11.4 or later, which unpacks strangers' archives safely")
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    for place, folders, files in os.walk(target):
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(place, name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise OSError(f"{name} is neither file nor folder")
