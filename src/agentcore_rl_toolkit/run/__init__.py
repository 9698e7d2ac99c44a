"""The run folder: what a run writes, and how it is read, live or crashed.

The gateway writes journals, the trainer writes lines; the dashboard and the CLI only read.
"""

from .folder import RunFolder, find_runs
from .frame import Delivery, Frame, SessionClosed, SessionOpened, SessionSealed
from .journal import Journal
from .reader import LineReader, Problem, RunReader, SessionRecord, live_sessions
from .retention import Pruned, prune
from .writer import LineWriter, RunWriter

__all__ = [
    "Delivery",
    "Frame",
    "Journal",
    "LineReader",
    "LineWriter",
    "Problem",
    "Pruned",
    "RunFolder",
    "RunReader",
    "RunWriter",
    "SessionClosed",
    "SessionOpened",
    "SessionRecord",
    "SessionSealed",
    "find_runs",
    "live_sessions",
    "prune",
]
