"""The gateway tests' scripted engine, importable from here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "gateway"))

from fake_script import FakeScript, Say

__all__ = ["FakeScript", "Say"]
