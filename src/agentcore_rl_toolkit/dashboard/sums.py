"""What the rollouts of a run add up to: what became of them, why they failed, what took time.

Plain adding up over the heads of an index; nothing is read from files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..rollout import FailureKind
from ..run.index import RolloutHead, RolloutIndex

LATEST = 512
"""Rollouts that say where a rollout's time goes now."""
MAX_CAUSES = 12
INFRASTRUCTURE = frozenset(kind.value for kind in FailureKind if kind.infrastructure)
_ORDER = ("trained", "agent", "equal", "waiting", "evaluated")
_NUMBERS = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|0x[0-9a-fA-F]+|\d+")


def fates(index: RolloutIndex, done: int) -> list[str]:
    """Of each rollout what became of it, when ``done`` steps were trained."""
    flat = _flat_groups(index)
    return [_fate(head, done, flat) for head in index.heads]


def where(fates: Sequence[str]) -> list[dict[str, Any]]:
    """Where the rollouts went; the shares sum to one."""
    counts = Counter(fates)
    names = [n for n in _ORDER if n in counts] + sorted(set(counts) - set(_ORDER))
    total = max(1, len(fates))
    return [{"name": n, "count": counts[n], "share": counts[n] / total} for n in names]


def failures(heads: Sequence[RolloutHead]) -> list[dict[str, Any]]:
    """What went wrong, the most frequent first; messages that differ in numbers are one."""
    causes: dict[tuple[str, str], list[int]] = {}
    for n, head in enumerate(heads):
        if head.failure is not None:
            like = _NUMBERS.sub("#", head.error or "")
            causes.setdefault((head.failure, like), []).append(n)
    most = sorted(causes.items(), key=lambda cause: -len(cause[1]))[:MAX_CAUSES]
    return [
        {
            "failure": kind,
            "count": len(places),
            "n": places[-1],
            "rollout_id": heads[places[-1]].rollout_id,
            "error": heads[places[-1]].error,
        }
        for (kind, _), places in most
    ]


def stages(heads: Sequence[RolloutHead]) -> dict[str, Any]:
    """Mean seconds by stage of the latest rollouts, and what one in twenty exceeds."""
    latest = heads[-LATEST:]
    taken: dict[str, list[float]] = {}
    for head in latest:
        for name, value in head.timings.items():
            taken.setdefault(name, []).append(value)
    return {
        "rollouts": len(latest),
        "seconds": {name: sum(values) / len(latest) for name, values in taken.items()},
        "slow": {name: _slow(values, len(latest)) for name, values in taken.items()},
        "slow_whole": _slow([sum(head.timings.values()) for head in latest], len(latest)),
    }


def _slow(values: list[float], of: int) -> float:
    """The 95th percentile; those of ``of`` that have no value count as 0."""
    padded = sorted([0.0] * (of - len(values)) + values)
    return padded[min(int(0.95 * of), of - 1)] if padded else 0.0


def _flat_groups(index: RolloutIndex) -> set[str]:
    """Groups in which all that count did equally well."""
    heads, out = index.heads, set()
    for group, places in index.by_group.items():
        rewards = {heads[i].reward for i in places} - {None}
        if len(rewards) == 1:
            out.add(group)
    return out


def _fate(head: RolloutHead, done: int, flat: set[str]) -> str:
    """One of: evaluated, a kind of failure, waiting, equal, agent, trained."""
    if head.phase == "eval":
        return "evaluated" if head.failure not in INFRASTRUCTURE else str(head.failure)
    if head.failure in INFRASTRUCTURE:
        return str(head.failure)
    if head.phase == "train" and head.step >= done:
        return "waiting"
    if head.group_id in flat:
        return "equal"
    return "agent" if head.failure else "trained"
