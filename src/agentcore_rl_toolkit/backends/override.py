"""Settings of trainers that Hydra configures, as the words of its command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def words(*settings: Mapping[str, Any]) -> list[str]:
    """One a key, nested keys dotted; what comes later wins. ``++`` sets a key whether or not the
    trainer's own files have it."""
    found = {name: value for setting in settings for name, value in flat(setting)}
    return [f"++{name}={json.dumps(value)}" for name, value in found.items()]


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by their dotted names; an empty mapping is a leaf."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
