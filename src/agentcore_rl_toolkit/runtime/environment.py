"""Packages of agents, installed once for each set of requirements and interpreter.

``environments/{digest}`` in the state folder holds a plain folder of packages that sessions have on
their path before the interpreter's own. It gets its name only when it is complete, and is never
changed afterwards: half-made ones are called ``.partial`` and replaced by the next attempt. A lock
lets one of several deployments install while the others wait for its result. Of those that nobody
uses, the last used stay: a new one is rarely the last that an agent needs.

No line of a requirement's code runs here: pip may only take wheels, which it unpacks. Packages that
exist only as source are built by ``build.py``, inside a session.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import local
from ..errors import ConfigError
from .requirements import Interpreter, Requirements, find, interpreter, unmet

Show = Callable[[str], None]
Install = Callable[[Requirements, Interpreter, Path, Show], None]
"""Puts the packages into an empty folder; ConfigError when it cannot."""

PACKAGES = "packages"
KEPT = 10
"""Environments that stay though nobody uses them."""
LAST_LINES = 12
_DROPPED = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_REPORT")
"""Settings of pip under which it would install something else, or somewhere else."""


def for_agent(
    folder: Path, python: str | None, show: Show, install: Install | None = None
) -> Path | None:
    """The folder of packages for an agent; None when the interpreter has all that it needs."""
    wanted = find(folder)
    if wanted is None:
        return None
    where = interpreter(python)
    missing = unmet(wanted, where)
    if not missing:
        return None
    show(f"{wanted.source}: {', '.join(missing)} not installed here")
    return ensure(wanted, where, show, install or from_wheels)


def ensure(wanted: Requirements, where: Interpreter, show: Show, install: Install) -> Path:
    home = local.home() / "environments"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = home / digest(wanted, where)
    with _locked(made.with_suffix(".lock"), show):
        if not made.is_dir():
            partial = made.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            (partial / PACKAGES).mkdir(parents=True)
            try:
                install(wanted, where, partial / PACKAGES, show)
                (partial / "requirements.txt").write_text(wanted.text())
                _let_read(partial)
                os.replace(partial, made)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        os.utime(made / PACKAGES)
    prune(home)
    return made / PACKAGES


def hold(packages: str) -> int | None:
    """A descriptor: as long as it is open, ``prune`` spares the packages. Counts as a use."""
    try:
        descriptor = os.open(packages, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    with contextlib.suppress(OSError):  # being removed; or a folder of somebody else's
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(descriptor)
    return descriptor


def prune(home: Path) -> None:
    """Removes all but those used last, those that agents of this state folder name, and those that
    a runtime holds, wherever its own folder is."""
    found = [path for path in home.glob(f"*/{PACKAGES}") if not path.parent.suffix]
    found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    registry = home.parent / "runtime" / "registry.jsonl"
    named = registry.read_text() if registry.is_file() else ""
    for packages in found[KEPT:]:
        if str(packages) not in named:
            _remove(packages)


def _remove(packages: Path) -> None:
    made = packages.parent
    with contextlib.ExitStack() as locks:
        try:
            for path in (made.with_suffix(".lock"), packages):
                descriptor = os.open(path, os.O_RDONLY)
                locks.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = made.with_suffix(".partial")
            shutil.rmtree(gone, ignore_errors=True)
            os.rename(made, gone)
        except OSError:  # in use, being made, or removed by another
            return
        shutil.rmtree(gone, ignore_errors=True)
        made.with_suffix(".lock").unlink(missing_ok=True)


def digest(wanted: Requirements, where: Interpreter) -> str:
    parts = [where.identity, *wanted.constraints, wanted.text()]
    for line in wanted.lines:
        if line.startswith("/"):  # a wheel of the agent's own, which may be replaced
            parts.append(hashlib.sha256(Path(line).read_bytes()).hexdigest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@contextlib.contextmanager
def _locked(path: Path, show: Show) -> Iterator[None]:
    while True:
        with open(path, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                show("waiting for another deployment that installs the same")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                yield
                return


def _let_read(folder: Path) -> None:
    """Sessions are another user where the machine permits it."""
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            path = os.path.join(place, name)
            if not os.path.islink(path):
                mode = os.stat(path).st_mode
                os.chmod(path, mode | 0o444 | (0o111 if mode & 0o100 else 0))


# --- wheels -----------------------------------------------------------------------------------

_REFUSED = "an agent's requirement wants to run a program"
_PIP = f"""
import runpy, sys
def refuse(event, _):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.spawn",
                 "os.posix_spawn"):
        raise PermissionError("{_REFUSED}")
sys.addaudithook(refuse)
sys.path.append(sys.argv.pop(1))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""pip without the means to build: a wheel may itself require an address that holds source code, and
``--only-binary`` does not apply to addresses. Builds are always programs of their own."""


def from_wheels(wanted: Requirements, where: Interpreter, target: Path, show: Show) -> None:
    with tempfile.TemporaryDirectory(prefix="art-pip-") as work:
        command = [where.python, "-I", "-c", _PIP, _our_pip()]
        command += [*arguments(wanted, Path(work), str(target)), "--only-binary", ":all:"]
        code, said = _run(command, work, show)
    if code != 0:
        raise ConfigError(explain(wanted, where, said))


def _our_pip() -> str:
    """Where our own pip lies, for interpreters that have none: it is plain Python, for any."""
    found = importlib.util.find_spec("pip")
    return str(Path(found.origin).parents[1]) if found and found.origin else ""


def arguments(wanted: Requirements, work: Path, target: str) -> list[str]:
    (work / "requirements.txt").write_text(wanted.text())
    found = ["install", "--target", target, "--no-input", "--disable-pip-version-check"]
    found += ["--no-warn-script-location", "-r", str(work / "requirements.txt")]
    if wanted.constraints:
        (work / "constraints.txt").write_text("\n".join(wanted.constraints) + "\n")
        found += ["-c", str(work / "constraints.txt")]
    return found


def _run(command: list[str], cwd: str, show: Show) -> tuple[int, list[str]]:
    """Exit code and the end of what it said."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    last: deque[str] = deque(maxlen=LAST_LINES)
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**kept, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_PROGRESS_BAR": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if text := line.strip():
                    last.append(text)
                    show(text)
        except BaseException:
            child.kill()
            raise
    return child.returncode, list(last)


def explain(wanted: Requirements, where: Interpreter, said: list[str]) -> str:
    text = "\n".join(said)
    if "No module named pip" in text:
        return (
            f"{where.python} has no pip to install {wanted.source} with: run "
            f"'{where.python} -m ensurepip', or deploy with --python and an interpreter that has "
            "what the agent imports"
        )
    if _REFUSED in text:
        return (
            f"{wanted.source}: something in it comes as source and would have to be built. 'art "
            f"deploy --build' builds it inside the sandbox.\npip said:\n{text}"
        )
    if lacking := re.search(r"No matching distribution found for ([^\s;(]+)", text):
        return (
            f"{wanted.source}: no wheel of {lacking[1]!r} fits this interpreter. If it is there as "
            "source only, 'art deploy --build' builds it inside the sandbox; else correct its name "
            f"or version, or the index that pip looks in.\npip said:\n{text}"
        )
    return f"{wanted.source} cannot be installed. pip said:\n{text}"
