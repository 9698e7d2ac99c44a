"""Every claim of docs/security.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
CLAIMS = [row for row in PAGE.splitlines() if "::test_" in row]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda row: row.split("|")[1].strip())
def test_a_claim_is_shown_by_tests_that_are_there(claim: str) -> None:
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", claim)
    assert named
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.M), f"{path} has no {name}"


def test_there_are_claims() -> None:
    assert len(CLAIMS) > 10
