"""Packages made by hand: small wheels, and source archives whose builds leave a trace."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path


def wheel(
    folder: Path, name: str, version: str = "1.0", requires: tuple[str, ...] = (), **files: str
) -> Path:
    """``files``: module name to source."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    contents = {f"{module}.py": source for module, source in files.items()}
    contents[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n"
    )
    contents[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{one},,\n" for one in (*contents, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as packed:
        for one, text in {**contents, f"{info}/RECORD": record}.items():
            packed.writestr(one, text)
    return path


def source(folder: Path, name: str, trace: Path, version: str = "1.0") -> Path:
    """Its ``setup.py`` creates ``trace``, and then installs a module of the package's name."""
    path = folder / f"{name}-{version}.tar.gz"
    setup = (
        "import pathlib\n"
        f"try: pathlib.Path({str(trace)!r}).write_text('ran')\n"
        "except OSError: pass\n"
        "from setuptools import setup\n"
        f"setup(name={name!r}, version={version!r}, py_modules=[{name!r}])\n"
    )
    files = {
        "setup.py": setup,
        f"{name}.py": f"NAME = {name!r}\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    with tarfile.open(path, "w:gz") as packed:
        for one, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{one}")
            entry.size = len(text.encode())
            packed.addfile(entry, io.BytesIO(text.encode()))
    return path
