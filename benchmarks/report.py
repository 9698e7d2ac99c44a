"""What a benchmark found: rows and curves that it prints, and writes with ``--json FILE``.

A row holds every value that was measured, here and of each peer; medians, spread and ratios are
taken from them when somebody looks. A peer that could not run is there with its reason. Aims come
in two kinds: ``aim`` is absolute, and says on which machine one looks; ``times`` is how many times
better than a peer of the same run this has to be, and holds on any machine: ``missed_ratios``
names those that fail by more than a third.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SLACK = 4 / 3
"""A ratio may fall short of its aim by a third: machines are noisy."""

Values = list[float] | str
"""What was measured; a string says something else, such as why there is nothing."""


@dataclass
class Row:
    name: str
    unit: str
    here: Values
    peers: dict[str, Values] = field(default_factory=dict)
    aim: float | None = None
    higher: bool = False
    """More is better."""
    times: dict[str, float] = field(default_factory=dict)
    """How many times better than a peer it has to be."""
    headline: bool = False
    """Belongs in the README."""

    def factor(self, peer: str) -> float | None:
        """How many times better than the peer; None when either was not measured."""
        mine, theirs = median(self.here), median(self.peers.get(peer, ""))
        if mine is None or theirs is None:
            return None
        over, under = (mine, theirs) if self.higher else (theirs, mine)
        return over / under if under else float("inf")

    def missed_ratios(self) -> Iterator[str]:
        for peer, wanted in self.times.items():
            factor = self.factor(peer)
            if factor is not None and factor * SLACK < wanted:
                yield f"{self.name}: {factor:.2g} times better than {peer}, aim {wanted:g}"

    def aim_text(self) -> str:
        """The aim, and the distance where it is missed."""
        if self.aim is None:
            return ""
        text, mine = f"{'≥' if self.higher else '≤'} {number(self.aim)}", median(self.here)
        if mine is None or (mine >= self.aim if self.higher else mine <= self.aim):
            return text
        away = abs(mine - self.aim) / self.aim if self.aim else 1.0
        return f"{text}, missed by {100 * away:.0f} %"

    def peers_text(self) -> str:
        return ", ".join(f"{peer} {self._peer(peer)}" for peer in self.peers)

    def _peer(self, peer: str) -> str:
        values, factor = self.peers[peer], self.factor(peer)
        if isinstance(values, str):
            return f"({values})"
        text = number(median(values))
        if (wanted := self.times.get(peer)) is None or factor is None:
            return text
        short = f", aim {wanted:g}x" if factor < wanted else ""
        return f"{text} ({number(factor)}x{short})"


@dataclass
class Curve:
    """How a cost grows."""

    name: str
    x: str
    y: str
    series: dict[str, list[tuple[float, list[float]]]]
    """By label: (x, every value measured there)."""

    def medians(self) -> dict[str, list[tuple[float, float]]]:
        return {
            label: [(x, statistics.median(values)) for x, values in points]
            for label, points in self.series.items()
        }


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def row(self, name: str, unit: str, here: Any, **more: Any) -> None:
        """``here`` and each of ``peers``: a value, several, or a word on why there is none."""
        peers = {peer: as_values(found) for peer, found in more.pop("peers", {}).items()}
        self.rows.append(Row(name, unit, as_values(here), peers, **more))

    def curve(self, name: str, x: str, y: str, series: Mapping[str, Mapping[float, Any]]) -> None:
        made = {
            label: [(at, [float(v) for v in as_values(found)]) for at, found in points.items()]
            for label, points in series.items()
        }
        self.curves.append(Curve(name, x, y, made))

    def write(self, path: Path | None) -> None:
        if path is not None:
            path.write_text(json.dumps(asdict(self)))


def option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def read(data: Mapping[str, Any]) -> Report:
    rows = [Row(**row) for row in data["rows"]]
    curves = [Curve(**curve) for curve in data["curves"]]
    return Report(rows, curves)


def merged(reports: Iterable[Report]) -> Report:
    """Repeats as one report that holds the values of all of them."""
    out = Report()
    for report in reports:
        for row in report.rows:
            same = next((one for one in out.rows if one.name == row.name), None)
            if same is None:
                out.rows.append(row)
                continue
            same.here = _joined(same.here, row.here)
            for peer, found in row.peers.items():
                same.peers[peer] = _joined(same.peers.get(peer, found[:0]), found)
        for curve in report.curves:
            same_curve = next((one for one in out.curves if one.name == curve.name), None)
            if same_curve is None:
                out.curves.append(curve)
            else:
                _join_points(same_curve, curve)
    return out


def _joined(one: Values, other: Values) -> Values:
    """What was measured outweighs a word on why it was not."""
    if isinstance(one, str) or isinstance(other, str):
        return other if isinstance(one, str) else one
    return one + other


def _join_points(curve: Curve, more: Curve) -> None:
    for label, points in more.series.items():
        found = {x: list(values) for x, values in curve.series.get(label, [])}
        for x, values in points:
            found.setdefault(x, []).extend(values)
        curve.series[label] = sorted(found.items())


def as_values(found: Any) -> Values:
    if isinstance(found, str):
        return found
    return [float(v) for v in found] if isinstance(found, Iterable) else [float(found)]


def median(values: Values) -> float | None:
    return statistics.median(values) if values and not isinstance(values, str) else None


def number(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def figure(values: Values, unit: str = "") -> str:
    """The median, with the spread where there were repeats."""
    if isinstance(values, str):
        return values
    text = f"{number(median(values))} {unit}".strip()
    low, high = (number(min(values)), number(max(values))) if values else ("", "")
    return text if low == high else f"{text} ({low} to {high})"
