"""One run as the page shows it: its figures, where its rollouts went, what could not be read.

A ``Run`` is made once a folder and then reads only what is new. Everything here is plain reading
and adding up, called from a worker thread; one lock a run keeps two readers apart.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ..run import LineReader, Problem, RunFolder
from ..run.index import RolloutHead, RolloutIndex
from ..runtime.sessionlog import log_path
from .sums import failures, fates, stages, where

QUIET_S = 120.0
"""Without a journal's lock to ask: a run that wrote nothing for so long has stopped."""
MAX_PROBLEMS = 50
MAX_LOG_BYTES = 256 * 1024
MAX_BARS = 512
PAGE = 200


class Run:
    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.name = path.name
        self.index = RolloutIndex(self.folder.rollouts)
        self.metrics: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.lock = threading.RLock()
        self._config: tuple[float, dict[str, Any]] | None = None
        self._problems: list[Problem] = []
        self._metric_lines = LineReader(self.folder.metrics, self._problems)
        self._event_lines = LineReader(self.folder.events, self._problems)

    def poll(self) -> tuple[int, int, int]:
        """Takes in what is new; how many rollouts, figures and events there are now."""
        with self.lock:
            self.index.poll()
            self.metrics.extend(m for m in self._metric_lines.poll() if self._is_figure(m))
            self.events.extend(self._event_lines.poll())
            return len(self.index.heads), len(self.metrics), len(self.events)

    def counts(self) -> dict[str, Any]:
        """What changes when the run does."""
        names = ("rollouts", "metrics", "events")
        return {**dict(zip(names, self.poll(), strict=True)), "state": self.state()}

    def _is_figure(self, record: dict[str, Any]) -> bool:
        """A line that curves can be drawn of; else it is told."""
        sound = isinstance(record.get("kind"), str) and isinstance(record.get("step"), int)
        if not sound:
            at = self._metric_lines.offset
            message = "a line before it has no kind and step"
            self._problems.append(Problem(self.folder.metrics, at, message))
        return sound

    # --- what it is -------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """Read again only when the file has changed; empty when it is no YAML of a run."""
        at = _mtime(self.folder.config)
        if self._config is None or self._config[0] != at:
            try:
                value = yaml.safe_load(self.config_text() or "")
            except yaml.YAMLError:
                value = None
            self._config = (at, value if isinstance(value, dict) else {})
        return self._config[1]

    def config_text(self) -> str | None:
        try:
            return self.folder.config.read_text(errors="replace")
        except OSError:
            return None

    def setting(self, part: str, name: str, default: Any = None) -> Any:
        found = self.config().get(part)
        return found.get(name, default) if isinstance(found, dict) else default

    def log(self, session_id: str) -> bytes | None:
        """The end of what an agent printed; None where the run keeps no logs."""
        if "/" in session_id or "\0" in session_id:
            return None
        try:
            with log_path(self.folder.logs, session_id).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
                return file.read(MAX_LOG_BYTES)
        except OSError:
            return None

    def state(self) -> str:
        """live, ended, or stopped: there is no end in it, and nobody writes it."""
        lasts = [e.get("event") for e in self.events]
        if "ended" in lasts and "resumed" not in lasts[lasts.index("ended") :]:
            return "ended"
        return "live" if self._is_written() else "stopped"

    def _is_written(self) -> bool:
        held = _locked_inodes()
        locks = list(self.folder.turns.glob("*.lock"))
        if held is not None and locks:
            return any(path.stat().st_ino in held for path in locks)
        return time.time() - self.updated() < QUIET_S

    def updated(self) -> float:
        paths = (self.folder.rollouts, self.folder.metrics, self.folder.events)
        return max((_mtime(path) for path in paths), default=0.0)

    def problems(self) -> list[dict[str, Any]]:
        """What could not be read of the lines and the configuration."""
        found = [*self._problems, *self.index.problems]
        readers = [
            (self._metric_lines.half, self.folder.metrics),
            (self.index.half, self.index.path),
        ]
        if self.state() != "live":
            for half, path in readers:
                if half:
                    message = f"the last line is half written ({half} bytes)"
                    found.append(Problem(path, _size(path) - half, message))
        if self.config_text() and not self.config():
            found.append(Problem(self.folder.config, 0, "is not YAML of a run"))
        return in_words(found)

    # --- lists ------------------------------------------------------------------------------------

    def brief(self) -> dict[str, Any]:
        """Its line in the list of runs."""
        self.poll()
        steps = [m for m in self.metrics if m.get("kind") == "step"]
        evals = [m for m in self.metrics if m.get("kind") == "eval"]
        times = [e["at"] for e in self.events if isinstance(e.get("at"), int | float)]
        return {
            "name": self.name,
            "state": self.state(),
            "started": times[0] if times else None,
            "updated": self.updated() or None,
            "step": steps[-1].get("step") if steps else 0,
            "steps": self.setting("train", "steps") or (steps[-1].get("steps") if steps else None),
            "rollouts": len(self.index.heads),
            "reward": steps[-1].get("reward") if steps else None,
            "evals": len(evals),
            "first_success": evals[0].get("success") if evals else None,
            "last_success": evals[-1].get("success") if evals else None,
            "rewards": [m.get("reward") for m in steps],
            "model": os.path.basename(str(self.setting("model", "path") or "").rstrip("/")),
            "agent": os.path.basename(
                str(self.setting("agent", "path") or self.setting("agent", "arn") or "").rstrip("/")
            ),
        }

    def summary(self) -> dict[str, Any]:
        with self.lock:
            seen = self.counts()
            return {
                **self.brief(),
                "seen": seen,
                "metrics": self.metrics,
                "events": self.events[-100:],
                "where": where(self._fates()),
                "failures": failures(self.index.heads),
                "stages": stages(self.index.heads),
                "config": self.config_text(),
                "problems": self.problems(),
                "phases": sorted({head.phase for head in self.index.heads}),
                "path": str(self.folder.path),
            }

    def _fates(self) -> list[str]:
        """Of each rollout, what became of it."""
        done = max((m["step"] for m in self.metrics if m.get("kind") == "step"), default=0)
        return fates(self.index, done)

    def rollouts(
        self,
        *,
        phase: str = "",
        step: int | None = None,
        outcome: str = "",
        fate: str = "",
        text: str = "",
        sort: str = "-n",
        offset: int = 0,
        limit: int = PAGE,
    ) -> dict[str, Any]:
        """A page of the table: those that match all filters."""
        with self.lock:
            self.poll()
            least = self.least()
            became = self._fates() if fate else []
            chosen = [
                n
                for n, head in enumerate(self.index.heads)
                if (not phase or head.phase == phase)
                and (step is None or head.step == step)
                and (not fate or became[n] == fate)
                and (not outcome or outcome in _outcomes(head, least))
                and (not text or text in head.rollout_id or text in head.session_id)
            ]
            _sort(chosen, self.index.heads, sort)
            page = [self.line(n) for n in chosen[max(0, offset) : max(0, offset) + limit]]
            return {"total": len(chosen), "offset": offset, "rollouts": page}

    def least(self) -> float:
        """The reward from which on a rollout counts as a success."""
        given = self.setting("train", "success_at", 1.0)
        return float(given) if isinstance(given, int | float) else 1.0

    def line(self, n: int) -> dict[str, Any]:
        head = self.index.heads[n]
        return {
            "n": n,
            "rollout_id": head.rollout_id,
            "group_id": head.group_id,
            "session_id": head.session_id,
            "at": head.at,
            "phase": head.phase,
            "step": head.step,
            "reward": head.reward,
            "failure": head.failure,
            "error": head.error,
            "solved": "solved" in _outcomes(head, self.least()),
            "attempts": head.attempts,
            "turns": head.turns,
            "tokens": head.tokens,
            "rows": head.rows,
            "seconds": round(sum(head.timings.values()), 4),
            "timings": head.timings,
        }

    def timeline(self, phase: str, step: int | None) -> dict[str, Any]:
        """Rollouts of one step through their stages, in order of their start."""
        with self.lock:
            self.poll()
            heads = self.index.heads
            if heads and (step is None or not phase):
                phase, step = heads[-1].phase, heads[-1].step
            chosen = [n for n, h in enumerate(heads) if h.phase == phase and h.step == step]
            lines = [self.line(n) for n in chosen]
            for line in lines:
                line["begin"] = line["at"] - line["seconds"]
            lines.sort(key=lambda line: float(line["begin"]))
            steps = sorted({(h.phase, h.step) for h in heads}, key=lambda key: (key[1], key[0]))
            return {
                "phase": phase,
                "step": step,
                "steps": [{"phase": p, "step": s} for p, s in steps],
                "total": len(lines),
                "rollouts": lines[:MAX_BARS],
            }


def in_words(problems: list[Problem]) -> list[dict[str, Any]]:
    shown = problems[:MAX_PROBLEMS]
    return [{"file": p.path.name, "at": p.at, "message": p.message} for p in shown]


def _outcomes(head: RolloutHead, least: float) -> tuple[str, ...]:
    if head.failure is not None:
        return ("failed", head.failure)
    return ("solved",) if head.reward is not None and head.reward >= least else ("unsolved",)


def _sort(chosen: list[int], heads: list[RolloutHead], sort: str) -> None:
    name, backwards = sort.removeprefix("-"), sort.startswith("-")
    if name == "seconds":
        chosen.sort(key=lambda n: sum(heads[n].timings.values()), reverse=backwards)
    elif name in ("reward", "tokens", "turns", "step", "rollout_id"):
        chosen.sort(key=lambda n: _orderly(getattr(heads[n], name)), reverse=backwards)
    elif backwards:
        chosen.reverse()


def _orderly(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)


def _locked_inodes() -> set[int] | None:
    """Of all files that somebody holds a lock on; None where the system does not tell."""
    try:
        with open("/proc/locks", encoding="ascii") as file:
            fields = [line.split() for line in file]
        return {int(f[5].rpartition(":")[2]) for f in fields if len(f) > 5 and f[1] == "FLOCK"}
    except (OSError, ValueError):
        return None


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
