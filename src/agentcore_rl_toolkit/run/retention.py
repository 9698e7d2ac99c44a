"""Keeps journals from growing for ever, without touching a session that is not done.

Only whole segments go, oldest first, and never the one that is written: a segment may go when every
session with frames in it is closed, and it is older than allowed or the journals together are
larger than allowed. What keeps a segment is reported, so that a full disk has a reason.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from .segment import Damage, read_payloads, segments, writer_of

logger = logging.getLogger(__name__)

MAX_BYTES = 20 << 30
MAX_AGE_S = 14 * 24 * 3600.0


class _Head(msgspec.Struct):
    """The part of any frame that retention needs; the rest is skipped, not built."""

    kind: str
    session_id: str


@dataclass
class Pruned:
    removed: list[Path] = field(default_factory=list)
    freed_bytes: int = 0
    kept_for: dict[str, str] = field(default_factory=dict)
    """Segments that were due and stayed, and one session that keeps each."""


_head = msgspec.msgpack.Decoder(_Head)


def prune(
    folder: Path,
    *,
    max_bytes: int = MAX_BYTES,
    max_age_s: float = MAX_AGE_S,
    now: float | None = None,
) -> Pruned:
    """Reads the journals only when something is due."""
    now = time.time() if now is None else now
    writing = _being_written(folder)
    facts = {path: path.stat() for path in segments(folder)}
    total = sum(fact.st_size for fact in facts.values())
    oldest = min((f.st_mtime for p, f in facts.items() if p not in writing), default=now)
    pruned = Pruned()
    if total <= max_bytes and now - oldest <= max_age_s:
        return pruned
    done, held = _survey(list(facts))
    kept: set[str] = set()
    for path in sorted(held, key=lambda path: (facts[path].st_mtime, path.name)):
        due = total > max_bytes or now - facts[path].st_mtime > max_age_s
        # Also a closed session stays whole: without its last segment it would read as open.
        holding = (held[path] - done) or (held[path] & kept)
        if path in writing or not due or holding:
            kept |= held[path]
            if due and holding and path not in writing:
                pruned.kept_for[path.name] = min(holding)
            continue
        path.unlink()
        total -= facts[path].st_size
        pruned.removed.append(path)
        pruned.freed_bytes += facts[path].st_size
    if pruned.removed:
        logger.info("folder=<%s> segments=<%d> | pruned", folder, len(pruned.removed))
    return pruned


def _being_written(folder: Path) -> set[Path]:
    """The last segment of each writer."""
    return set({writer_of(path): path for path in segments(folder)}.values())


def _survey(paths: list[Path]) -> tuple[set[str], dict[Path, set[str]]]:
    """Sessions that are closed, and those with frames in each segment."""
    done: set[str] = set()
    held: dict[Path, set[str]] = {}
    for path in paths:
        inside = held.setdefault(path, set())
        for payload in read_payloads(path, Damage(path)):
            try:
                head = _head.decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                inside.add("")  # not understood: nobody can say that it is done
                continue
            inside.add(head.session_id)
            if head.kind == "close":
                done.add(head.session_id)
    return done, held
