"""Whatever needed a second run says why: a test that fails once in a while is a defect as well."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"run once more: {report.nodeid}")
        terminalreporter.write_line(str(report.longreprtext)[-4000:])
