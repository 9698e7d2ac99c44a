"""Results as people read them: ``results.md``, the README's table, and ratios that were missed.

All of it is made from a results file and nothing else. The README's part lies between two marks
and is never edited by hand; a test holds it equal to what the committed file gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report
from plot import svg

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE.parent / "README.md"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def load(path: Path) -> dict[str, Any]:
    """Entries by benchmark; empty where nothing was measured yet."""
    if not path.is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8"))["benchmarks"])


def save(entries: dict[str, Any], path: Path) -> None:
    """The results as JSON, as Markdown beside it, and a drawing of each curve."""
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"benchmarks": entries}, indent=1, ensure_ascii=False)
    # a list of numbers on one line: a diff shows the row that changed
    text = re.sub(r"\[[^][{}\"]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text)
    path.write_text(text + "\n", encoding="utf-8")
    for stale in path.parent.glob(f"{path.stem}-curve-*.svg"):
        stale.unlink()
    for entry in entries.values():
        for curve in report.read(entry).curves:
            drawn = svg(curve.name, curve.x, curve.y, curve.medians())
            (path.parent / _drawing(path, curve)).write_text(drawn, encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(entries, path), encoding="utf-8")


def _drawing(path: Path, curve: report.Curve) -> str:
    return f"{path.stem}-curve-{re.sub('[^a-z0-9]+', '-', curve.name.lower()).strip('-')}.svg"


# --- results.md ---------------------------------------------------------------------------------


def markdown(entries: dict[str, Any], path: Path) -> str:
    head = [
        "# Results",
        "",
        "Written by `benchmarks/suite.py`; do not edit. Each figure is a median, with the least "
        "and the most of the repeats beside it; (2x) after a peer: this is twice as good. Compare "
        "within a row: its figures come from one interleaved run.",
    ]
    return "\n".join([*head, *(line for name in entries for line in _part(name, entries, path))])


def _part(name: str, entries: dict[str, Any], path: Path) -> Iterator[str]:
    entry, found = entries[name], report.read(entries[name])
    took = f", {report.figure(entry['seconds'], 's')}" if entry.get("seconds") else ""
    yield from ("", f"## {name}", "", f"`{entry['command']}` · {entry['machine']}{took}", "")
    if entry.get("failed"):
        yield from (f"Failed: {entry['failed']}", "")
    if found.rows:
        yield from ("| what | unit | here | aim | peers |", "|---|---|---|---|---|")
    for row in found.rows:
        cells = (row.name, row.unit, report.figure(row.here), row.aim_text(), row.peers_text())
        yield f"| {' | '.join(cells)} |"
    for curve in found.curves:
        yield from ("", f"![{curve.name}]({_drawing(path, curve)})")
    yield ""


# --- README -------------------------------------------------------------------------------------


def readme_table(entries: dict[str, Any]) -> str:
    lines = ["| what | here | aim | peers | command |", "|---|---|---|---|---|"]
    for entry in entries.values():
        command = f"`{entry['command']}`"
        for row in report.read(entry).rows:
            if not row.headline:
                continue
            here = report.figure(row.here, row.unit)
            lines.append(
                f"| {row.name} | {here} | {row.aim_text()} | {row.peers_text()} | {command} |"
            )
            command = ""
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """A README with the table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the README has no {BEGIN} and {END} to write between")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


# --- the check ----------------------------------------------------------------------------------


def missed(entries: dict[str, Any]) -> list[str]:
    """Ratios that miss their aim by more than a third, each as a sentence."""
    return [
        f"{name}: {sentence}"
        for name, entry in entries.items()
        for row in report.read(entry).rows
        for sentence in row.missed_ratios()
    ]
