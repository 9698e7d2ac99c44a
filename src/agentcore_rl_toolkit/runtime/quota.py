"""How many sessions there may be, and how many may start at once.

A request over the first bound is refused as AWS does it (402, which boto3 does not retry); one over
the second only waits, because many interpreters starting together would all miss their deadline.
"""

from __future__ import annotations

import asyncio
import os

from .. import local
from . import wire

MAX_SESSIONS = 1000


class Quota:
    def __init__(self, max_sessions: int = MAX_SESSIONS, starts_at_once: int | None = None) -> None:
        self.max_sessions = max_sessions
        self.starts = asyncio.Semaphore(starts_at_once or max(4, 2 * (os.cpu_count() or 1)))

    def admit(self, live: int) -> None:
        if live >= self.max_sessions:
            raise wire.quota_exceeded(
                f"maxVms limit exceeded for account {local.ACCOUNT}: {live} sessions are live, "
                f"at most {self.max_sessions} may be. Stop some, or raise the limit of the runtime"
            )
