"""What a soak calls flat, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from faults.soak import judged, quantile, shown


def minutes(**changes: Any) -> list[dict[str, Any]]:
    """Ten equal minutes; ``changes`` hold from the sixth on."""
    line: dict[str, Any] = {"ended": 9, "failed": 0, "retried": 0, "turns": 90, "processes": 200}
    line |= {"turn_p50_s": 6.0, "turn_p99_s": 6.2, "start_p50_s": 0.1, "sessions_mb": 900.0}
    line |= {"runtime_mb": 60.0, "gateway_mb": 120.0}
    return [{**line, **(changes if n > 5 else {}), "minute": n} for n in range(1, 11)]


def test_equal_minutes_are_flat() -> None:
    assert judged(minutes()) == []
    assert "6.00 s" in shown(minutes()[0])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"failed": 1}, "failed"),
        ({"runtime_mb": 120.0}, "runtime_mb grew"),
        ({"gateway_mb": 200.0}, "gateway_mb grew"),
        ({"turn_p50_s": 13.0}, "a turn took"),
    ],
)
def test_what_grows_or_is_lost_is_told(changes: dict[str, Any], word: str) -> None:
    wrong = judged(minutes(**changes))
    assert any(word in text for text in wrong), wrong


def test_quantiles_of_few_values() -> None:
    assert quantile([], 0.5) == 0.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
