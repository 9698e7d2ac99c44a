"""After a restart: the sessions that were live, from the journal.

Sessions that were closed stay closed. A turn is there if it was acknowledged; a key is known again
by its digest. A call that was in flight is gone, and its client's retry is a new call.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from ..run.reader import Problem, SessionRecord, live_sessions
from .session import Session, Sessions, spec_of


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw] = []


_body = msgspec.json.Decoder(_Body)
logger = logging.getLogger(__name__)


def recover(folder: Path, sessions: Sessions) -> list[Problem]:
    """Fills ``sessions`` with those that were not closed; returns what could not be read."""
    problems: list[Problem] = []
    records = live_sessions(folder, problems=problems)
    for record in records.values():
        session = restore(record)
        sessions.add(session)
        fill(session, record, problems)
    for problem in problems:
        logger.warning("journal=<%s> | %s", problem.path.name, problem.message)
    if records:
        logger.info("sessions=<%d> | live sessions recovered", len(records))
    return problems


def request_messages(body: bytes) -> list[bytes]:
    try:
        raws = _body.decode(body).messages
    except msgspec.DecodeError:
        return []
    return [bytes(raw) for raw in raws]


def restore(record: SessionRecord) -> Session:
    opened = record.opened
    assert opened is not None, "live_sessions begins a record with its open frame"
    session = Session(spec_of(opened.settings), record.session_id, opened.key_sha256)
    session.opened = opened.at
    session.rollout_id = opened.rollout_id or record.session_id
    session.sealed = record.sealed is not None
    return session


def fill(session: Session, record: SessionRecord, problems: list[Problem]) -> None:
    """Turns, counts and stickiness."""
    session.graph = record.graph(problems)
    session.turns = len(record.turns)
    for turn in record.turns:
        session.tokens += turn.n_sampled
        session.bytes += len(turn.request)
        if turn.engine:
            session.engines[turn.model] = turn.engine
        if session.notes is not None and turn.request:
            session.notes.keep(turn.turn_id, request_messages(turn.request))
