"""Tests against real engines and trainers, each in an environment of its own.

They take minutes and gigabytes, so plain runs skip them: ``make test-backends`` makes the
environments and runs ``pytest -m backends tests/backends``; CI runs ``-m "backends and quick"``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REASON = "needs a backend's own environment: run make test-backends"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "backends: real engines and trainers, see tests/backends")
    config.addinivalue_line("markers", "quick: those of them that every change must pass")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "backends" in config.getoption("-m"):
        return
    for item in items:
        if item.get_closest_marker("backends"):
            item.add_marker(pytest.mark.skip(reason=REASON))


def beside(name: str) -> Any:
    """A module of this folder, of which some are scripts as well."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]
