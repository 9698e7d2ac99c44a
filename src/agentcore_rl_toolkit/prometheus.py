"""Prometheus' text format, written by hand: the gateway and the local runtime both speak it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "summary"]
Sample = tuple[Mapping[str, str], float]


def metric(name: str, kind: Kind, samples: float | Iterable[Sample]) -> list[str]:
    """The lines of one metric; a plain number is a sample without labels."""
    if isinstance(samples, int | float):
        samples = [({}, samples)]
    return [f"# TYPE {name} {kind}", *(sample(name, labels, value) for labels, value in samples)]


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{escape(text)}"' for label, text in labels.items())
    shown = value if isinstance(value, int) else f"{value:.6g}"
    return f"{name}{{{inner}}} {shown}" if inner else f"{name} {shown}"


def escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
