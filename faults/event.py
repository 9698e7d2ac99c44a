"""What happens when: a list of events drawn from a seed, and nothing else.

Every kind comes once, in an order of the seed, before any comes twice; so a short run meets all of
them and a long one mixes them. Faults of relays are drawn in detail here, too: a replay with the
same seed has the same list.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

KILLS = ("session", "zygote", "worker", "gateway", "runtime", "engine", "driver")
OTHERS = ("pause_gateway", "pause_runtime", "disk_gateway", "disk_runtime", "clock", "cut_all")
LINK_FAULTS: dict[str, tuple[str, ...]] = {
    "client": (
        *("status_500", "status_429", "status_402", "cut_request", "cut_answer", "lose_answer"),
        *("late", "slow", "duplicate"),
    ),
    "agent": (
        *("status_503", "status_429", "cut_request", "cut_answer", "lose_answer"),
        *("late", "slow", "duplicate"),
    ),
    "admin": ("status_503", "cut_request", "lose_answer", "late"),
    "engine": (
        "status_500",
        "status_503",
        "status_429",
        "cut_request",
        "cut_answer",
        "late",
        "slow",
    ),
}
KINDS = (
    *(f"kill_{part}" for part in KILLS),
    *OTHERS,
    *(f"{link}.{fault}" for link, faults in LINK_FAULTS.items() for fault in faults),
)
QUIET_S = 20.0
"""Before the end nothing more happens: what is well by then stays well."""
HURT_S = 10.0
"""Into the quiet, until what was begun before is over."""
MAX_JUMP_S = 2 * 86400.0


@dataclasses.dataclass(frozen=True)
class Event:
    at: float
    """Seconds from the start."""
    kind: str
    detail: dict[str, Any]

    def __str__(self) -> str:
        detail = " ".join(f"{key}={value}" for key, value in self.detail.items())
        return f"{self.at:6.1f} s  {self.kind:22} {detail}"


def schedule(seed: int, seconds: float, kinds: tuple[str, ...] = KINDS) -> list[Event]:
    draw = random.Random(seed)
    end = max(0.0, seconds - QUIET_S)
    first = list(kinds)
    draw.shuffle(first)
    gap = max(0.5, min(4.0, end / (1.25 * len(first))))
    events: list[Event] = []
    at = draw.uniform(1.0, 3.0)
    while at < end:
        kind = first.pop() if first else draw.choice(kinds)
        events.append(Event(round(at, 2), kind, _detail(kind, draw)))
        at += draw.expovariate(1 / gap)
    return events


def _detail(kind: str, draw: random.Random) -> dict[str, Any]:
    if kind in ("kill_gateway", "kill_runtime", "kill_engine", "kill_driver"):
        detail: dict[str, Any] = {"down_s": round(draw.uniform(0.0, 3.0), 2)}
        if kind == "kill_gateway":
            detail["torn"] = draw.choice(["", "garbage", "half a frame", "zeros"])
        return detail
    if kind in ("kill_session", "kill_zygote", "kill_worker"):
        return {"pick": draw.randrange(1 << 16)}
    if kind.startswith("pause_"):
        return {"seconds": round(draw.uniform(0.5, 4.0), 2)}
    if kind.startswith("disk_"):
        return {"seconds": round(draw.uniform(1.0, 4.0), 2), "room": draw.randrange(4096)}
    if kind == "clock":
        return {"offset_s": round(draw.uniform(-MAX_JUMP_S, MAX_JUMP_S))}
    if kind == "cut_all":
        return {"link": draw.choice(list(LINK_FAULTS))}
    return {
        "share": round(draw.uniform(0.1, 0.6), 2),
        "seconds": round(draw.uniform(1.0, 5.0), 2),
        "after": draw.randrange(600),
        "late_s": round(draw.uniform(0.5, 12.0), 2),
    }
