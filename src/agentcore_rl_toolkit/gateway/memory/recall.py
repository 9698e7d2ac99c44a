"""What a session keeps beside its graph, from the turns in the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dialects import BY_NAME
from ..fault import Refusal
from .answers import answer_id

if TYPE_CHECKING:
    from ...trajectory.turn import Turn
    from ..session import Session


def recall(session: Session, turn: Turn) -> None:
    """Answers that a later request may name, or replay with something changed."""
    dialect = BY_NAME.get(turn.dialect)
    if dialect is None or not dialect.translated or turn.error is not None:
        return
    session.book.learn(turn.response)
    if not dialect.named_answers or not turn.request:
        return
    try:
        ask = dialect.parse(turn.request)
        session.responses.go_on(ask)
    except Refusal:
        return
    if ask.remember:
        ask.answer_id = answer_id(session.session_id, turn.retry_key)
        session.responses.remember(ask, turn.response)
