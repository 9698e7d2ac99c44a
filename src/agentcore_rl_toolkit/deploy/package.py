"""An agent's folder as AWS takes it: its files, the toolkit's base part, packages for ARM64.

``files_of`` decides what belongs to an agent, for the zip and for the digest alike; secrets in
``.env`` never do, nor does what ``.dockerignore`` names. The digest names a zip or an image, so
that an unchanged agent is neither packed nor pushed again. The toolkit is packed from what is
installed here, not from an index: what was tried locally is what runs there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from ..errors import ConfigError
from ..runtime.agent import LEFT_OUT, MAX_FOLDER_BYTES, MAX_ZIP_BYTES
from ..runtime.ignore import ignored_in
from ..runtime.requirements import Requirements, find

TOOLKIT = Path(__file__).resolve().parents[1]
TOOLKIT_PARTS = ("*.py", "py.typed", "client/*.py", "sandbox/*.py")
"""What an agent's container needs of it: all that works with the base install."""
OWN_LEFT_OUT = LEFT_OUT | {".bedrock_agentcore", ".bedrock_agentcore.yaml", ".env", "runs"}
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
_EPOCH = (1980, 1, 1, 0, 0, 0)

Install = Callable[[Requirements, Path], None]
"""Puts packages into an empty folder; ConfigError when it cannot."""


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name in the archive and file, in order; links are not followed out of the folder."""
    root, ignored = folder.resolve(), ignored_in(folder)
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if OWN_LEFT_OUT.intersection(inside.parts) or not path.is_file():
            continue
        if ignored(PurePosixPath(inside)):
            continue
        if any((folder / parent / "pyvenv.cfg").exists() for parent in inside.parents):
            continue
        if not path.resolve().is_relative_to(root):
            raise ConfigError(f"{inside} is a link out of {folder}: put the file itself there")
        yield str(inside), path


def toolkit_files() -> Iterator[tuple[str, Path]]:
    for pattern in TOOLKIT_PARTS:
        for path in sorted(TOOLKIT.glob(pattern)):
            yield f"{TOOLKIT.name}/{path.relative_to(TOOLKIT)}", path


def requirements_of(folder: Path) -> Requirements:
    """The agent's own, and those of the toolkit's base part."""
    own = find(folder)
    base = importlib.metadata.requires("agentcore-rl-toolkit") or []
    lines = tuple(line for line in base if "extra ==" not in line)
    if own is None:
        return Requirements("agentcore-rl-toolkit", lines)
    return Requirements(own.source, (*lines, *own.lines), own.options, own.constraints)


def digest(folder: Path) -> str:
    """Of everything that makes the running agent."""
    out = hashlib.sha256(f"{PYTHON} {requirements_of(folder)}".encode())
    for name, path in (*toolkit_files(), *files_of(folder)):
        content = path.read_bytes()
        out.update(f"{name}\0{len(content)}\0".encode() + content)
    return out.hexdigest()[:16]


def install_for_arm(wanted: Requirements, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="art-pip-") as work:
        listed = Path(work, "requirements.txt")
        listed.write_text(wanted.text())
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "-r", str(listed)]
        command += ["--python-version", PYTHON, "--implementation", "cp"]
        for platform in PLATFORMS:
            command += ["--platform", platform]
        if wanted.constraints:
            bounds = Path(work, "constraints.txt")
            bounds.write_text("\n".join(wanted.constraints) + "\n")
            command += ["-c", str(bounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigError(
            f"{wanted.source} cannot be installed for Python {PYTHON} on ARM64, which AWS runs: "
            "correct the requirement, or deploy with --container.\n"
            f"pip said:\n{done.stderr[-1500:]}"
        )


def pack(folder: Path, target: Path, install: Install = install_for_arm) -> None:
    """Writes the zip; ConfigError when AWS would refuse its size."""
    with tempfile.TemporaryDirectory(prefix="art-zip-") as work:
        packages = Path(work)
        install(requirements_of(folder), packages)
        found = {
            str(path.relative_to(packages)): path
            for path in sorted(packages.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        found |= dict(toolkit_files()) | dict(files_of(folder))
        size = sum(path.stat().st_size for path in found.values())
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in found.items():
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    packed = target.stat().st_size
    if size > MAX_FOLDER_BYTES or packed > MAX_ZIP_BYTES:
        raise ConfigError(
            f"the agent is {packed // 10**6} MB packed and {size // 10**6} MB unpacked, more than "
            f"AWS takes as code ({MAX_ZIP_BYTES // 10**6} and {MAX_FOLDER_BYTES // 10**6} MB): "
            "leave data out of its folder, or deploy with --container"
        )
