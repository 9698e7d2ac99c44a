"""Code archives: unpacked inside their folder, or refused and gone."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.agent import unpack_zip


def _packed(method: int, **members: str) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", method) as packed:
        for name, text in members.items():
            packed.writestr(name, text)
    return raw.getvalue()


SEEDS = [
    _packed(zipfile.ZIP_STORED, **{"rl_app.py": "app = 1", "a/b.py": ""}),
    _packed(zipfile.ZIP_DEFLATED, **{"rl_app.py": "app = 1\n" * 20, "../x": "", "/etc/x": ""}),
    _packed(zipfile.ZIP_LZMA, **{"rl_app.py": "app = 1\n" * 20}),
]
_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-archive-")


def check(data: bytes) -> None:
    root = Path(_FOLDER.name)
    inner = root / "agents" / "one"
    shutil.rmtree(root / "agents", ignore_errors=True)
    inner.mkdir(parents=True)
    (root / "code.zip").write_bytes(data)
    try:
        unpack_zip(os.open(root / "code.zip", os.O_RDONLY), len(data), inner / "1", "rl_app.py")
        assert (inner / "1" / "rl_app.py").is_file()
    except (ConfigError, OSError):
        assert not list(inner.iterdir()), "a refused archive leaves something"
    assert {path.name for path in root.iterdir()} == {"agents", "code.zip"}, "it climbed"
    assert [path.name for path in (root / "agents").iterdir()] == ["one"]
