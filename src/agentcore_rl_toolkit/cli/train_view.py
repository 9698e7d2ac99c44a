"""``art train`` in the terminal: one live panel, or plain lines where there is no terminal."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..collect import Rollout
from ..trainer.view import EvalLine, StepLine, View
from .show import QUIET_S, console

BLOCKS = " ▁▂▃▄▅▆▇█"
CURVE_CHARS = 60


class PlainView:
    """One line a step, and one every ``QUIET_S`` of a step that takes longer."""

    def __init__(self) -> None:
        self._said = time.monotonic()
        self._now = ("", -1)
        self._done = 0

    def note(self, text: str) -> None:
        self._say(text)

    def rollout(self, phase: str, step: int, rollout: Rollout) -> None:
        self._done = self._done + 1 if self._now == (phase, step) else 1
        self._now = (phase, step)
        if time.monotonic() - self._said >= QUIET_S:
            self._say(f"{what_of(phase, step)}: {self._done} rollouts done")

    def step(self, line: StepLine) -> None:
        self._say(step_text(line))

    def evaluated(self, line: EvalLine) -> None:
        self._say(eval_text(line))

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        console.print(text, markup=False, soft_wrap=True)


class LiveView:
    """The last steps and evaluations, and what is under way; evaluations stay in the scrollback."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rewards: list[float] = []
        self._evals: list[EvalLine] = []
        self._last: StepLine | None = None
        self._now = ("", -1)
        self._done = 0
        self._failures: collections.Counter[str] = collections.Counter()
        self._spent: dict[str, float] = {}
        self._started = time.monotonic()

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def rollout(self, phase: str, step: int, rollout: Rollout) -> None:
        if self._now != (phase, step):
            self._now, self._done = (phase, step), 0
        self._done += 1
        if rollout.failure is not None:
            self._failures[rollout.failure.kind.value] += 1
        self._draw()

    def step(self, line: StepLine) -> None:
        self._last = line
        self._rewards.append(line.reward)
        for name, seconds in line.seconds.items():
            self._spend(name, seconds)
        self._draw()

    def evaluated(self, line: EvalLine) -> None:
        self._evals.append(line)
        self._spend("evaluate", line.seconds)
        self._live.console.print(eval_text(line), markup=False)
        self._draw()

    def _spend(self, name: str, seconds: float) -> None:
        self._spent[name] = self._spent.get(name, 0.0) + seconds

    def _draw(self) -> None:
        self._live.update(self._panel())

    def _panel(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        line = self._last
        if line is not None:
            table.add_row("step", f"{line.step}/{line.steps}  {bar(line.step / line.steps)}")
            table.add_row("reward", f"{line.reward:.3f}  {curve(self._rewards)}")
            table.add_row("success", f"{line.success:.0%}")
            table.add_row("tokens/s", f"{line.tokens_per_s:.0f}")
            table.add_row("staleness", f"{line.staleness:.2f} mean, {line.max_staleness} max")
            table.add_row("rollout", stages(line.stages))
        if self._spent:
            table.add_row("time", shares(self._spent))
        failures = ", ".join(f"{n} {kind}" for kind, n in sorted(self._failures.items()))
        table.add_row("failures", failures or "none")
        phase, step = self._now
        elapsed = time.monotonic() - self._started
        done = f"{what_of(phase, step)}: {self._done} rollouts done, {elapsed:.0f} s"
        now = Text(done, style="dim")
        return Group(table, now)


@contextmanager
def train_view() -> Iterator[View]:
    if not console.is_terminal:
        yield PlainView()
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield LiveView(live)


# --- text -------------------------------------------------------------------------------------


def what_of(phase: str, step: int) -> str:
    return f"step {step + 1}" if phase == "train" else f"evaluation after step {step}"


def step_text(line: StepLine) -> str:
    failures = ", ".join(f"{n} {kind}" for kind, n in sorted(line.failures.items()))
    return (
        f"step {line.step:4d}/{line.steps}  reward {line.reward:.3f}  success {line.success:4.0%}"
        f"  {line.tokens_per_s:5.0f} tok/s  stale {line.staleness:.2f}"
        f"  collect {line.seconds['collect']:.2f} s  train {line.seconds['train']:.2f} s"
        f"  skipped {line.report.skipped_groups}/{line.report.groups}"
        f"  |lp| {line.report.agreement.max:.0e}" + (f"  failed: {failures}" if failures else "")
    )


def eval_text(line: EvalLine) -> str:
    return (
        f"evaluation after step {line.step:4d}: success {line.success:6.1%} on {line.rollouts} "
        f"held-out tasks, reward {line.reward:.3f}  ({line.seconds:.1f} s)"
    )


def bar(share: float, width: int = 30) -> str:
    filled = round(width * min(1.0, share))
    return "█" * filled + "░" * (width - filled)


def curve(values: list[float], width: int = CURVE_CHARS) -> str:
    """Means of equal stretches, as blocks from the smallest to the largest value."""
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    means = [
        sum(part) / len(part)
        for part in (values[i : i + size] for i in range(0, len(values), size))
    ]
    low, high = min(means), max(means)
    spread = (high - low) or 1.0
    return "".join(BLOCKS[1 + round((m - low) / spread * (len(BLOCKS) - 2))] for m in means)


def shares(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values()) or 1.0
    return ", ".join(f"{name} {value / total:.0%}" for name, value in seconds.items())


def stages(means: Mapping[str, float]) -> str:
    return (
        ", ".join(
            f"{name.removesuffix('_s')} {value:.2f}"
            for name, value in means.items()
            if value >= 0.005
        )
        + " s"
    )
