"""Helpers of this folder and the one above, importable by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent

for _file in (
    *(HERE.parent / f"{n}.py" for n in ("fake_vllm", "fake_script")),
    HERE / "made_answer.py",
):
    if _file.stem not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_file.stem, _file)
        assert _spec is not None
        assert _spec.loader is not None
        sys.modules[_file.stem] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_file.stem])
