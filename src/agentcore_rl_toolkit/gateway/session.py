"""A session at the gateway: one agent's run, its key, its limits and its graph.

Invariants: the key is known only to who opened the session, here it is a digest; a sealed session
takes no new call, so that nothing can bring it back after it was deleted; what leaves memory is in
the journal, and bodies and log-probabilities are nowhere else. Sessions own their graph and calls;
the journal is the gateway's.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from ..run.frame import SessionOpened
from ..trajectory.drift import ALARM_SHARE, DriftCount
from ..trajectory.graph import SessionGraph
from ..trajectory.turn import Requests, Turn
from .fault import Refusal, bad_request
from .memory.answers import Answers
from .memory.book import AnswerBook
from .memory.heard import Heard
from .memory.recall import recall
from .memory.requests import JournalledRequests
from .text.prompt import PromptCache

if TYPE_CHECKING:
    from .call import Call

logger = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}")


class Caps(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Limits of one session; None is no limit."""

    turns: int | None = None
    tokens: int | None = None
    """Sampled tokens, all turns together."""
    bytes: int | None = None
    """Request bodies, all turns together."""


class OpenSession(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Body of ``POST /sessions``."""

    session_id: str | None = None
    rollout_id: str | None = None
    group_id: str | None = None
    sampling: dict[str, Any] = {}
    """Sampling parameters that apply where the agent sets none."""
    caps: Caps = Caps()
    overwrite: bool = False
    """``sampling`` wins over what the agent sets."""


class Parked(msgspec.Struct):
    """What stays in memory of an idle session's graph."""

    places: array[int]
    """Where the journal has its turns, in order."""
    delivered: bytes
    """A byte a turn: what is known now, whatever its frame says."""
    drift: DriftCount


class Session:
    __slots__ = (
        "_graph",
        "_parked",
        "book",
        "bytes",
        "calls",
        "closed_at",
        "done",
        "drift_share",
        "engines",
        "failed",
        "group_id",
        "heard",
        "key_digest",
        "load",
        "opened",
        "prompts",
        "requests",
        "responses",
        "rollout_id",
        "sampling",
        "sealed",
        "session_id",
        "spec",
        "tokens",
        "touched",
        "turns",
    )

    def __init__(self, spec: OpenSession, session_id: str, key_digest: str) -> None:
        self.session_id = session_id
        self.key_digest = key_digest
        self.spec = spec
        self.rollout_id = spec.rollout_id or session_id
        self.group_id = spec.group_id
        self.sampling = {k: Raw(msgspec.json.encode(v)) for k, v in spec.sampling.items()}
        self._graph: SessionGraph | None = SessionGraph(
            session_id, rollout_id=self.rollout_id, group_id=spec.group_id
        )
        self._parked: Parked | None = None
        self.prompts = PromptCache()
        self.requests = JournalledRequests()
        self.heard = Heard()
        self.responses = Answers()
        self.book = AnswerBook()
        self.load: Callable[[int], Turn] | None = None
        """Reads a turn from its place in the journal."""
        self.drift_share = ALARM_SHARE
        self.calls: list[Call] = []
        self.engines: dict[str, str] = {}
        """Model to the engine that served it last: prefix caches stay warm."""
        self.opened = time.time()
        self.touched = time.monotonic()
        self.sealed = False
        self.closed_at: float | None = None
        self.turns = self.tokens = self.bytes = self.failed = 0
        self.done: dict[str, Any] | None = None

    @property
    def graph(self) -> SessionGraph:
        if self._graph is None:
            self._graph = self._unpark()
        self._graph.load = self.load
        return self._graph

    @graph.setter
    def graph(self, graph: SessionGraph) -> None:
        self._graph = graph

    @property
    def is_parked(self) -> bool:
        return self._graph is None

    def park(self) -> None:
        """Lets an idle session's graph go; its next use reads it back from the journal."""
        if self._graph is None or self.calls or self.load is None:
            return
        places = self._graph.places()
        if places is None:
            return  # the journal refused a turn: memory is all there is of it
        heads = self._graph.heads()
        # not is_delivered, which also counts what the turns after it prove
        known = bytes(self._graph.was_delivered(head.turn_id) for head in heads)
        self._parked = Parked(array("q", places), known, self._graph.drift)
        self._graph = None
        self.responses, self.book, self.heard = Answers(), AnswerBook(), Heard()

    def _unpark(self) -> SessionGraph:
        parked = self._parked
        assert parked is not None, "a session without a graph is parked"
        assert self.load is not None, "only what can be read back is parked"
        graph = SessionGraph(self.session_id, rollout_id=self.rollout_id, group_id=self.group_id)
        requests = Requests()
        for place, delivered in zip(parked.places, parked.delivered, strict=True):
            turn = requests.whole(self.load(place))
            graph.commit(turn)
            recall(self, turn)
            graph.mark_delivered(turn.turn_id, bool(delivered))
            graph.settle(turn.turn_id, place)
        self._parked = None
        return graph

    @property
    def drift(self) -> DriftCount:
        return self._parked.drift if self._parked is not None else self.graph.drift

    @property
    def alarm(self) -> str | None:
        return self.drift.alarm(self.drift_share)

    def admit(self, n_bytes: int) -> None:
        """Refusal when the session takes no (further) call."""
        if self.sealed:
            raise Refusal(409, "the session is finished", code="session_sealed", retry=False)
        caps = self.spec.caps
        for name, used, cap in (
            ("turns", self.turns + len(self.calls), caps.turns),
            ("tokens", self.tokens, caps.tokens),
            ("bytes", self.bytes + n_bytes - 1, caps.bytes),
        ):
            if cap is not None and used >= cap:
                raise Refusal(
                    403, f"the session has used its {cap} {name}", code="session_cap", retry=False
                )
        self.bytes += n_bytes
        self.touched = time.monotonic()

    def frame(self) -> SessionOpened:
        settings: dict[str, Any] = {"spec": msgspec.to_builtins(self.spec)}
        return SessionOpened(
            session_id=self.session_id,
            at=self.opened,
            rollout_id=self.rollout_id,
            group_id=self.group_id,
            key_sha256=self.key_digest,
            settings=settings,
        )

    def status(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "rollout_id": self.rollout_id,
            "group_id": self.group_id,
            "state": "closed" if self.closed_at else "sealed" if self.sealed else "open",
            "opened": self.opened,
            "turns": self.turns,
            "failed": self.failed,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "in_flight": len(self.calls),
            "engines": self.engines,
            "drift": msgspec.to_builtins(self.drift),
            "alarm": self.alarm,
            "done": self.done,
        }


class Sessions:
    """All sessions in memory, by id and by the digest of their key."""

    def __init__(self, *, drift_share: float = ALARM_SHARE) -> None:
        self._drift_share = drift_share
        self.alarmed = 0
        """Closed sessions whose turns too often came back with other ids."""
        self.load: Callable[[int], Turn] | None = None
        """Reads a turn from its place in the journal; set by who opens the journal."""
        self._by_id: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}
        self._closed: deque[Session] = deque()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_id.values())

    def open(self, spec: OpenSession, *, key: str | None = None) -> tuple[Session, str]:
        """A new session and its key. ``key`` is given in open mode, where ids are keys."""
        session_id = spec.session_id or secrets.token_hex(12)
        check_id(session_id)
        old = self._by_id.get(session_id)
        if old is not None and old.closed_at is None:
            raise Refusal(409, f"session {session_id!r} exists", code="session_exists", retry=False)
        if old is not None:
            self.drop(old)
        key = key or "sk-art-" + secrets.token_urlsafe(24)
        session = Session(spec, session_id, digest(key))
        self.add(session)
        return session, key

    def add(self, session: Session) -> None:
        session.load, session.drift_share = self.load, self._drift_share
        self._by_id[session.session_id] = session
        self._by_key[session.key_digest] = session

    def drop(self, session: Session) -> None:
        self._by_id.pop(session.session_id, None)
        self._by_key.pop(session.key_digest, None)

    def close(self, session: Session) -> None:
        """Finished: it can be read for a while, then it leaves memory."""
        if (alarm := session.alarm) is not None:
            self.alarmed += 1
            logger.warning("session=<%s> | drift: %s", session.session_id, alarm)
        session.closed_at = time.monotonic()
        self._closed.append(session)

    def let_go(self, horizon: float) -> None:
        while self._closed and (self._closed[0].closed_at or 0.0) < horizon:
            session = self._closed.popleft()
            if self._by_id.get(session.session_id) is session:
                self.drop(session)

    def by_id(self, session_id: str) -> Session:
        session = self._by_id.get(session_id)
        if session is None:
            raise Refusal(404, f"no session {session_id!r}", code="no_session", retry=False)
        return session

    def by_key(self, key: str) -> Session | None:
        return self._by_key.get(digest(key)) if key else None


def check_id(session_id: str) -> None:
    if not _ID.fullmatch(session_id):
        raise bad_request(
            "session_id must be 1 to 128 of letters, digits, '.', '_', ':' and '-'", "session_id"
        )


def digest(key: str) -> str:
    # A header may hold bytes that are no text: they are a wrong key, not a failure.
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def spec_of(settings: Mapping[str, Any]) -> OpenSession:
    """What a journal's open frame says of a session."""
    return msgspec.convert(settings.get("spec", {}), OpenSession)
