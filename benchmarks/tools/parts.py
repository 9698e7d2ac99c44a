"""Parts of the tests that benchmarks use: scripted engines, golden vocabularies, coding CLIs."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path += [str(TESTS), str(TESTS / "gateway"), str(TESTS / "golden")]

import make as golden  # noqa: E402
from fake_script import FakeScript, Say  # noqa: E402
from fake_tokens import FakeTokens  # noqa: E402

from e2e.client_stand import Stand  # noqa: E402
from e2e.client_tool import CLAUDE_CODE, CODEX, Missing, npm_folder, npm_tool  # noqa: E402
from e2e.test_claude_code import run as run_claude  # noqa: E402
from e2e.test_responses_clients import PATCH, run_codex, shell  # noqa: E402

__all__ = [
    "CLAUDE_CODE",
    "CODEX",
    "PATCH",
    "FakeScript",
    "FakeTokens",
    "Missing",
    "Say",
    "Stand",
    "golden",
    "npm_folder",
    "npm_tool",
    "run_claude",
    "run_codex",
    "shell",
]
