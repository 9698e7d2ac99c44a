"""Figures: what a row says, what the README shows, and that the committed one is up to date."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import asdict
from pathlib import Path
from typing import Any

import figures
import pytest
import report
from plot import svg
from report import Report, Row


def entry(*rows: Row, **more: Any) -> dict[str, Any]:
    facts = {"command": "python benchmarks/one.py", "at": "2026-01-01", "machine": "2 cores"}
    return {**facts, "seconds": [], "failed": None, **asdict(Report(list(rows))), **more}


def test_the_readme_is_what_the_committed_results_give() -> None:
    text = figures.README.read_text(encoding="utf-8")
    table = figures.readme_table(figures.load(figures.RESULTS / "results.json"))
    assert figures.with_table(text, table) == text, "run: python benchmarks/suite.py --readme"


def test_the_committed_markdown_is_what_the_committed_results_give() -> None:
    path = figures.RESULTS / "results.json"
    made = figures.markdown(figures.load(path), path)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == made


def test_no_committed_ratio_misses_its_aim_by_more_than_a_third() -> None:
    assert figures.missed(figures.load(figures.RESULTS / "results.json")) == []


@pytest.mark.parametrize(
    ("here", "higher", "is_missed"),
    [(2.0, False, False), (2.6, False, False), (2.7, False, True), (3.7, True, True)],
    ids=["as aimed", "a third short", "more than a third short", "more is better, too little"],
)
def test_a_ratio_may_miss_its_aim_by_a_third(here: float, higher: bool, is_missed: bool) -> None:
    theirs = 1.0 if higher else 10.0
    row = Row("cost", "ms", [here], {"peer": [theirs]}, times={"peer": 5}, higher=higher)
    assert bool(figures.missed({"one": entry(row)})) == is_missed


def test_a_peer_that_was_not_measured_misses_nothing_and_gives_its_reason() -> None:
    row = Row("cost", "ms", [1.0], {"peer": "not installed"}, times={"peer": 5, "other": 2})
    assert figures.missed({"one": entry(row)}) == []
    assert row.peers_text() == "peer (not installed)"


def test_a_missed_aim_has_its_distance_beside_it() -> None:
    assert Row("cost", "ms", [1.1], aim=1.0).aim_text() == "≤ 1, missed by 10 %"
    assert Row("rate", "/s", [8.0], aim=10.0, higher=True).aim_text() == "≥ 10, missed by 20 %"
    assert Row("cost", "ms", [0.9], aim=1.0).aim_text() == "≤ 1"
    assert Row("cost", "ms", "not measured", aim=1.0).aim_text() == "≤ 1"


def test_the_readme_has_headlines_only_and_each_command_once() -> None:
    rows = [Row("a", "ms", [1.0, 3.0, 2.0], headline=True), Row("b", "", [5.0])]
    table = figures.readme_table({"one": entry(*rows, Row("c", "MB", [1234.5], headline=True))})
    assert table.splitlines()[2:] == [
        "| a | 2 ms (1 to 3) |  |  | `python benchmarks/one.py` |",
        "| c | 1,234 MB |  |  |  |",
    ]


def test_a_failed_benchmark_leaves_the_rest_of_the_tables_whole(tmp_path: Path) -> None:
    good = entry(Row("a", "ms", [1.0], headline=True))
    entries = {"bad": entry(failed="exit status 1: no gcc"), "good": good}
    assert figures.readme_table(entries).count("\n") == 2
    assert "Failed: exit status 1: no gcc" in figures.markdown(entries, tmp_path / "results.json")
    assert figures.readme_table({}).count("\n") == 1


def test_a_readme_without_marks_is_left_alone() -> None:
    with pytest.raises(SystemExit, match="figures:begin"):
        figures.with_table("# Title\n", "| a |")


def test_repeats_become_one_report_with_every_value() -> None:
    reports = []
    for value in (1.0, 3.0):
        one = Report()
        one.row("cost", "ms", value, peers={"peer": value * 10, "other": "absent"})
        one.curve("growth", "turns", "ms", {"chat": {1: value, 128: value + 1}})
        reports.append(one)
    found = report.merged(reports)
    assert found.rows[0].here == [1.0, 3.0]
    assert found.rows[0].peers == {"peer": [10.0, 30.0], "other": "absent"}
    assert found.curves[0].medians() == {"chat": [(1, 2.0), (128, 3.0)]}


def test_what_is_saved_is_loaded_again_and_old_drawings_go(tmp_path: Path) -> None:
    made = Report()
    made.row("cost", "ms", [1.0, 2.0])
    made.curve("Growth of it", "turns", "ms", {"chat": {1: 1.0, 10: 1.5}})
    path = tmp_path / "results.json"
    figures.save({"one": entry(rows=asdict(made)["rows"], curves=asdict(made)["curves"])}, path)
    drawing = tmp_path / "results-curve-growth-of-it.svg"
    assert drawing.is_file()
    assert drawing.name in path.with_suffix(".md").read_text(encoding="utf-8")
    assert report.read(figures.load(path)["one"]).rows == made.rows
    figures.save({}, path)
    assert not drawing.exists()


@pytest.mark.parametrize(
    "points", [{1: 0.0}, {1: 5.0, 1000: 5.0}, {1: 1.0, 1000: 1e6}], ids=["one", "flat", "steep"]
)
def test_a_drawing_is_well_formed_and_inside_its_frame(points: dict[float, float]) -> None:
    root = ElementTree.fromstring(svg("A & B <c>", "x", "y", {"s": list(points.items())}))
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == len(points)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= float(root.attrib["width"])
        assert 0 <= float(circle.attrib["cy"]) <= float(root.attrib["height"])
