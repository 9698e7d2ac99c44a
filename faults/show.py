"""What a run prints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table(title: str, values: Mapping[str, Any]) -> None:
    say(f"\n{title}")
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        say(f"  {name:{width}}  {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items()) or "none"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
