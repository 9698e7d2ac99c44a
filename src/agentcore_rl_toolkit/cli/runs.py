"""``art runs``, ``art show``, ``art tail`` and ``art rescore``: run folders in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .show import console, escape, hint, plain_table, printable

if TYPE_CHECKING:
    from ..dashboard.rollout import RolloutView
    from ..dashboard.run import Run

TAIL_S = 0.5
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Folder of runs.")]
RunName = Annotated[str, typer.Argument(help="Its folder, its name, or 'latest'.")]
DEFAULT = Path("runs")


def runs(runs_dir: Annotated[Path, typer.Argument(help="Folder of runs.")] = DEFAULT) -> None:
    """List the runs below a folder, the latest first."""
    from ..dashboard.run import Run
    from ..run import find_runs

    columns = ("run", "state", "step", "rollouts", "reward", "held-out success")
    shown = plain_table(*columns)
    shown.columns[0].overflow = "fold"
    for folder in find_runs(runs_dir):
        brief = Run(folder.path).brief()
        shown.add_row(
            escape(brief["name"]),
            brief["state"],
            f"{brief['step']}/{brief['steps'] or '?'}",
            str(brief["rollouts"]),
            figure(brief["reward"]),
            f"{share(brief['first_success'])} -> {share(brief['last_success'])}",
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
    print_head(answer)
    if tokens:
        print_tokens(view)
        return
    for turn in answer["turn_list"]:
        print_turn(turn)
    print_group(answer)
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
        for n in range(rollouts, len(found.index.heads)):
            print_line(found.line(n))
        for metric in found.metrics[figures:]:
            print_metric(metric)
        rollouts, figures = len(found.index.heads), len(found.metrics)
        if once or found.state() != "live":
            return
        time.sleep(TAIL_S)


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
            raise ConfigError(f"there are no runs below {runs_dir}: name a run, or --runs-dir")
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


# --- printing ---------------------------------------------------------------------------------


def figure(value: Any, form: str = ".3f") -> str:
    return format(value, form) if isinstance(value, int | float) else "-"


def share(value: Any) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else "-"


def say(text: str, style: str | None = None) -> None:
    console.print(printable(text), style=style, markup=False, soft_wrap=True)


def print_head(answer: dict[str, Any]) -> None:
    say(answer["rollout_id"], "bold")
    outcome = answer["failure"] or f"reward {figure(answer['reward'])}"
    say(
        f"{answer['phase']} {answer['step']}  {outcome}  {answer['turns']} turns  "
        f"{answer['tokens']} tokens  {answer['seconds']:.2f} s  session {answer['session_id']}"
    )
    if answer["error"]:
        say(answer["error"], "red")


def print_turn(turn: dict[str, Any]) -> None:
    for message in turn["messages"]:
        print_message(message, message["role"], "dim")
    notes = [turn["fork"], turn["left"] and f"not trained: {turn['left']}", turn["error"]]
    told = "".join(f"  [{note}]" for note in notes if note)
    if turn["answer"] is not None:
        name = f"model {turn['seq']}{told}  {turn['n_prompt']} in, {turn['n_sampled']} out"
        print_message(turn["answer"], name, "bold blue")
    else:
        say(f"model {turn['seq']}{told}: no answer", "bold blue")


def print_message(message: dict[str, Any], name: str, style: str) -> None:
    say(f"\n{name}", style)
    for part in (message.get("reasoning"), message["text"]):
        if part:
            say(part)
    for call in message["calls"]:
        say(f"{call['name']}({call['arguments']})", "magenta")


def print_group(answer: dict[str, Any]) -> None:
    table = plain_table("sample", "outcome", "reward", "advantage", "tokens")
    for one in answer["group"]:
        mark = " <" if one["n"] == answer["n"] else ""
        table.add_row(
            escape(printable(one["rollout_id"])) + mark,
            one["failure"] or "done",
            figure(one["reward"]),
            figure(one["advantage"], "+.2f"),
            str(one["tokens"]),
        )
    console.print()
    console.print(table)


def print_tokens(view: RolloutView) -> None:
    from ..dashboard.token import token_answer

    for number in range(len(view.rows())):
        columns = token_answer(view, number)["columns"]
        say(f"\nrow {number}: {len(columns['ids'])} tokens", "bold")
        for line in token_lines(columns):
            sys.stdout.write(line + "\n")


def token_lines(columns: dict[str, Any]) -> Iterator[str]:
    for i, (token, on, logprob) in enumerate(
        zip(columns["ids"], columns["mask"], columns["logprobs"], strict=True)
    ):
        text = printable(repr(columns["texts"].get(str(token), "")))
        yield f"{i:6d} {token:7d} {'trained' if on else '       '} {logprob:9.4f}  {text}"


def print_line(line: dict[str, Any]) -> None:
    outcome = line["failure"] or f"reward {figure(line['reward'])}"
    say(f"{line['rollout_id']}  {outcome}  {line['tokens']} tokens  {line['seconds']:.2f} s")


def print_metric(metric: dict[str, Any]) -> None:
    kind, step = metric.get("kind"), metric.get("step")
    say(
        f"{kind} {step}: reward {figure(metric.get('reward'))}  "
        f"success {share(metric.get('success'))}  {metric.get('rollouts')} rollouts",
        "bold",
    )
