"""The bounds within which sessions are started, all settings of it in one place.

``admission.py`` keeps them. A request over ``max_sessions`` is refused at once, as AWS does it
(402, which boto3 does not retry); one over the number of starts at a time only waits, because many
interpreters starting together would all miss their deadline; one that finds no memory waits for a
while, because sessions end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

MAX_SESSIONS = 1000
WAIT_S = 30.0
SESSION_MB = 16
"""An idle forked session takes 8 MB of its own, a working one 20 to 30."""


@dataclass(frozen=True)
class Quota:
    max_sessions: int = MAX_SESSIONS
    """Alive at a time."""
    starts_at_once: int = field(default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)))
    wait_s: float = WAIT_S
    """How long a start may wait for memory."""
    session_mb: int = SESSION_MB
    """What a session is expected to take at least; its agent's measured sessions may raise it."""
    reserve_mb: int | None = None
    """Memory that sessions leave free; None for a tenth of the machine's, at most 2 GB."""

    def reserve(self, total: int) -> int:
        if self.reserve_mb is not None:
            return self.reserve_mb * 1024**2
        return min(total // 10, 2 * 1024**3)
