"""After a restart: the sessions that were live, from the journal.

Sessions that were closed stay closed. A turn is there if it was acknowledged; a key is known again
by its digest. A call that was in flight is gone, and its client's retry is a new call.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ..errors import ConfigError
from ..run.reader import Problem, SessionRecord, live_sessions
from ..run.segment import segments, writer_of
from .memory.recall import recall
from .session import Session, Sessions, spec_of

logger = logging.getLogger(__name__)


def recover(folder: Path, sessions: Sessions, writer: str) -> list[Problem]:
    """Fills ``sessions`` with those that were not closed; returns what could not be read.

    Turns in the journal of ``writer``, which is the gateway's own, are read from there again.
    """
    problems: list[Problem] = []
    records = live_sessions(folder, writer, problems)
    for record in records.values():
        session = restore(record)
        sessions.add(session)
        fill(session, record, problems, writer)
    for problem in problems:
        logger.warning("journal=<%s> | %s", problem.path.name, problem.message)
    if records:
        logger.info("sessions=<%d> | live sessions recovered", len(records))
    return problems


def check_writers(folder: Path, writers: set[str]) -> None:
    """ConfigError when live sessions are in the journal of a writer that will not run."""
    for other in sorted({writer_of(path) for path in segments(folder)} - writers):
        live = live_sessions(folder, other, requests=False)
        if live:
            raise ConfigError(
                f"{folder} has {len(live)} live sessions of {other!r}, of a gateway with another "
                "number of workers: start it with that number, or in another run folder"
            )


def restore(record: SessionRecord) -> Session:
    opened = record.opened
    assert opened is not None, "live_sessions begins a record with its open frame"
    session = Session(spec_of(opened.settings), record.session_id, opened.key_sha256)
    session.opened = opened.at
    session.rollout_id = opened.rollout_id or record.session_id
    session.sealed = record.sealed is not None
    return session


def fill(session: Session, record: SessionRecord, problems: list[Problem], writer: str) -> None:
    """Turns, counts and stickiness."""
    session.graph = graph = record.graph(problems)
    session.turns = len(record.turns)
    for turn in record.turns:
        session.tokens += turn.n_sampled
        session.bytes += len(turn.request)
        if turn.engine:
            session.engines[turn.model] = turn.engine
        recall(session, turn)
    for head in graph.heads():
        owner, place = record.places[head.turn_id]
        if owner == writer:
            graph.settle(head.turn_id, place)
