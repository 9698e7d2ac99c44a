"""Tests against real engines and trainers, each in an environment of its own.

They take minutes and gigabytes, so plain runs skip them: ``make test-backends`` makes the
environments and runs ``pytest -m backends tests/backends``.
"""

from __future__ import annotations

import pytest

REASON = "needs a backend's own environment: run make test-backends"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "backends: real engines and trainers, see tests/backends")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "backends" in config.getoption("-m"):
        return
    for item in items:
        if item.get_closest_marker("backends"):
            item.add_marker(pytest.mark.skip(reason=REASON))
