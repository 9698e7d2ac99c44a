"""``art runs``, ``art show``, ``art tail`` and ``art rescore``: run folders in a terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .run_view import (
    figure,
    print_group,
    print_head,
    print_line,
    print_log,
    print_metric,
    print_result,
    print_tokens,
    print_turn,
    share,
)
from .show import console, escape, hint, plain_table, printable

if TYPE_CHECKING:
    from ..dashboard.run import Run

TAIL_S = 0.5
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Folder of runs.")]
RunName = Annotated[str, typer.Argument(help="Its folder, its name, or 'latest'.")]
DEFAULT = Path("runs")


def runs(runs_dir: Annotated[Path, typer.Argument(help="Folder of runs.")] = DEFAULT) -> None:
    """List the runs below a folder, the latest first."""
    from ..dashboard.run import Run
    from ..run import find_runs

    shown = plain_table("run", "state", "step", "rollouts", "reward", "held-out")
    shown.padding = (0, 1, 0, 0)  # a line of a usual run has room in 80 columns
    shown.columns[0].overflow = "fold"
    for folder in find_runs(runs_dir):
        brief = Run(folder.path).brief()
        shown.add_row(
            escape(brief["name"]),
            brief["state"],
            f"{brief['step']}/{brief['steps'] or '?'}",
            str(brief["rollouts"]),
            figure(brief["reward"]),
            held_out(brief),
        )
    shown.caption = None if shown.row_count else f"no runs below {escape(str(runs_dir))}"
    console.print(shown)


def show(
    rollout: Annotated[str, typer.Argument(help="Its id, or the beginning of it.")],
    run: Annotated[
        str | None, typer.Option(help="Folder or name of its run. Default: the latest that has it.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Each token with its figures.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write it as one HTML file that needs no server.")
    ] = None,
    runs_dir: RunsDir = DEFAULT,
) -> None:
    """Print one rollout: its conversation, its group, its result."""
    from ..dashboard.rollout import RolloutView

    found = open_run(run, runs_dir) if run else run_with(rollout, runs_dir)
    view = RolloutView(found, place_of(found, rollout))
    if html is not None:
        from ..dashboard.page import single_page

        html.write_text(single_page(view), encoding="utf-8")
        console.print(f"{escape(str(html))} written: open it in a browser")
        return
    answer = view.answer()
    hint(f"run {found.folder.path}")
    print_head(answer)
    if tokens:
        print_tokens(view)
        return
    for turn in answer["turn_list"]:
        print_turn(turn)
    print_group(answer)
    print_result(answer)
    print_log(view)
    for problem in answer["problems"]:
        hint(f"could not be read: {problem['file']} {problem['message']}")


def tail(
    run: RunName = "latest",
    runs_dir: RunsDir = DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="What is there now, then end.")] = False,
) -> None:
    """Follow a run: a line for every rollout, step and evaluation. Ctrl-C ends it."""
    found = open_run(run, runs_dir)
    hint(f"{found.folder.path}")
    rollouts = figures = 0
    while True:
        found.poll()
        print_new(found, rollouts, figures)
        rollouts, figures = len(found.index.heads), len(found.metrics)
        if once or found.state() != "live":
            return
        time.sleep(TAIL_S)


def print_new(run: Run, rollouts: int, figures: int) -> None:
    """Lines since so many rollouts and figures, in the order in which they were written."""
    heads = enumerate(run.index.heads[rollouts:], rollouts)
    lines: list[tuple[float, int, dict[str, Any] | None]] = [(h.at, n, None) for n, h in heads]
    for metric in run.metrics[figures:]:
        at = metric.get("at")
        lines.append((float(at) if isinstance(at, int | float) else time.time(), -1, metric))
    for _, n, told in sorted(lines, key=lambda line: line[0]):
        if told is None:
            print_line(run.line(n))
        else:
            print_metric(told)


def held_out(brief: dict[str, Any]) -> str:
    first, last = share(brief["first_success"]), share(brief["last_success"])
    return f"{first.removesuffix(' %')} -> {last}" if brief["evals"] > 1 else last


def rescore(
    run: RunName,
    reward: Annotated[str, typer.Option(help="module:Class of a RewardFunction.")],
    runs_dir: RunsDir = DEFAULT,
    phase: Annotated[str, typer.Option(help="train or eval. Default: both.")] = "",
    limit: Annotated[int, typer.Option(help="How many changes to print.")] = 20,
) -> None:
    """Compute rewards again from stored results, without running agents, and show what differs."""
    from ..dashboard.rescore import load_reward, rescored

    found = open_run(run, runs_dir)
    scored = list(rescored(found, load_reward(reward), phase))
    known = [one for one in scored if one.new is not None and one.old is not None]
    if not known:
        raise ConfigError(
            f"{found.folder.path} keeps no results to score: {scored[0].problem if scored else ''}"
        )
    changed = [one for one in known if abs((one.new or 0.0) - (one.old or 0.0)) > 1e-9]
    table = plain_table("rollout", "reward", "now", "change")
    for one in changed[:limit]:
        change = (one.new or 0.0) - (one.old or 0.0)
        figures = (figure(one.old), figure(one.new), figure(change, "+.3f"))
        table.add_row(escape(printable(one.rollout_id)), *figures)
    if changed:
        console.print(table)
    before = sum(one.old or 0.0 for one in known) / len(known)
    after = sum(one.new or 0.0 for one in known) / len(known)
    console.print(
        f"{len(changed)} of {len(known)} rewards differ; mean {before:.4f} -> {after:.4f}"
    )
    for problem in sorted({one.problem for one in scored if one.problem}):
        count = sum(one.problem == problem for one in scored)
        hint(f"{count} not scored: {problem}")


# --- finding ----------------------------------------------------------------------------------


def open_run(name: str, runs_dir: Path) -> Run:
    from ..dashboard.run import Run
    from ..run import RunFolder, find_runs

    if name == "latest":
        found = find_runs(runs_dir)
        if not found:
            raise ConfigError(
                f"there are no runs below {runs_dir}: name a run, or --runs-dir; one that just "
                "started is there when its engine is up"
            )
        return Run(found[0].path)
    for path in (Path(name), runs_dir / name):
        if RunFolder(path).exists():
            run = Run(path.resolve())
            run.poll()
            return run
    raise ConfigError(f"{name!r} is no run: give its folder, or its name below {runs_dir}")


def run_with(rollout: str, runs_dir: Path) -> Run:
    from ..dashboard.run import Run
    from ..run import find_runs

    for folder in find_runs(runs_dir):
        run = Run(folder.path)
        run.poll()
        if run.index.starting_with(rollout):
            return run
    raise ConfigError(f"no run below {runs_dir} has a rollout {rollout!r}: name --runs-dir")


def place_of(run: Run, name: str) -> int:
    run.poll()
    place = run.index.find(name)
    if place is not None:
        return place
    found = run.index.starting_with(name)
    if len(found) != 1:
        what = f"{len(found)} rollouts begin" if found else "no rollout begins"
        raise ConfigError(f"{what} with {name!r} in {run.name}: see 'art tail {run.name} --once'")
    place = run.index.find(found[0])
    assert place is not None
    return place
