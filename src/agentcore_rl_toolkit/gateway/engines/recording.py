"""A run folder as an engine: recorded answers to the same requests, without anything that samples.

A request is known by its conversation, or by its body where it has none. A live session follows
one recorded session: the first that nobody follows yet and that holds its first request.
Answers come with the ids, log-probabilities and weight versions of the recording, so the rows of a
replay equal those recorded. A request that was never made is refused, not guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import ConfigError
from ...run.reader import RunReader, SessionRecord
from ...trajectory.graph import SessionGraph
from ...trajectory.messages import Digester
from ...trajectory.turn import Turn
from ..dialects.base import Ask
from ..fault import Refusal
from ..replay import replay
from ..upstream import Reply, Upstream
from .base import Answer, Capabilities, Engine, Prepared, Sampled, Stream


class Played(Reply):
    """A reply that is there already."""

    def __init__(self, body: bytes) -> None:
        self.status, self.headers = 200, {}
        self._body: bytes | None = body

    async def read(self, limit: int = 0) -> bytes:
        return self._body or b""

    async def next_chunk(self) -> bytes | None:
        body, self._body = self._body, None
        return body

    def close(self) -> None:
        return


class Tape(Upstream):
    """Stands where other engines have their connections."""

    def __init__(self) -> None:
        self._idle = []

    async def send(self, method: str, path: str, body: bytes = b"", headers: str = "") -> Reply:
        return Played(body)


class Recorded(NamedTuple):
    """One session of the recording: its calls by what they asked, each with all its choices."""

    graph: SessionGraph
    calls: dict[bytes, list[list[Turn]]]


class RecordingEngine(Engine):
    kind = "replay"

    def __init__(
        self, url: str, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """``url`` is the run folder; ``model`` one session of it, None for all."""
        self.url, self.model, self.http = url, None, Tape()
        self.capabilities = Capabilities(token_ids=True, logprobs=True)
        self._free = [_recorded(record) for record in read_sessions(Path(url), model)]
        self._followed: dict[str, Recorded] = {}
        self._played: dict[str, tuple[Recorded, list[Turn]]] = {}

    @property
    def name(self) -> str:
        return Path(self.url).name

    def prepare(self, ask: Ask, session_id: str) -> Prepared:
        key = _digest(ask)
        recorded = self._followed.get(session_id)
        if recorded is None:
            recorded = next((one for one in self._free if key in one.calls), None)
            if recorded is not None:
                self._free.remove(recorded)
                self._followed[session_id] = recorded
        calls = recorded.calls.get(key) if recorded is not None else None
        if recorded is None or not calls:
            raise Refusal(
                404,
                "the recording holds no (further) answer to this request",
                code="not_recorded",
                retry=False,
            )
        turns = calls.pop(0)
        self._played[turns[0].turn_id] = (recorded, turns)
        return Prepared("", b"data: %b\n\n" % turns[0].turn_id.encode())

    def take(self, ask: Ask, body: bytes) -> tuple[bytes, list[Sampled]]:
        recorded, turns = self._played.pop(body.removeprefix(b"data: ").strip().decode())
        return replay(ask, turns), [_sampled(recorded.graph, turn) for turn in turns]

    def read(self, ask: Ask, body: bytes) -> Answer:
        return Answer(*self.take(ask, body))

    def stream(self, ask: Ask) -> Stream:
        return RecordedStream(self, ask)

    async def healthy(self) -> bool:
        return True

    async def probe(self) -> Capabilities:
        return self.capabilities

    async def probe_sampling(self) -> Capabilities:
        return self.capabilities


class RecordedStream(Stream):
    def __init__(self, engine: RecordingEngine, ask: Ask) -> None:
        self._engine, self._ask = engine, ask
        self._sampled: list[Sampled] = []

    def feed(self, events: list[bytes]) -> tuple[bytes, bytes]:
        if not events:
            return b"", b""
        data, self._sampled = self._engine.take(self._ask, events[0])
        self.finished = True
        return b"", data

    def result(self) -> list[Sampled]:
        return self._sampled

    def partial(self) -> list[Sampled]:
        return []


def read_sessions(folder: Path, session_id: str | None = None) -> list[SessionRecord]:
    """Sessions of a run that hold an answer, in the order in which they were opened."""
    if not (folder / "turns").is_dir():
        raise ConfigError(f"{folder} is not a run folder: it has no turns/")
    found = RunReader(folder).sessions()
    if session_id is not None and session_id not in found:
        raise ConfigError(f"{folder} has no session {session_id!r}")
    wanted = [found[session_id]] if session_id is not None else list(found.values())
    return [record for record in wanted if any(turn.error is None for turn in record.turns)]


def _recorded(record: SessionRecord) -> Recorded:
    graph = record.graph()
    digests: dict[str | None, bytes] = {}
    calls: dict[bytes, dict[str | None, list[Turn]]] = {}
    for turn in sorted(record.turns, key=lambda turn: turn.seq):
        if turn.error is not None or not graph.is_delivered(turn.turn_id):
            continue
        if turn.choice == 0:
            digests[turn.retry_key] = turn.chain or hashlib.sha256(turn.request).digest()
        key = digests.get(turn.retry_key, turn.chain)
        calls.setdefault(key, {}).setdefault(turn.retry_key, []).append(turn)
    return Recorded(graph, {key: list(by_call.values()) for key, by_call in calls.items()})


def _digest(ask: Ask) -> bytes:
    if ask.messages is None:
        return hashlib.sha256(ask.body).digest()
    return Digester().read(ask.model, None, ask.raw("tools"), ask.messages).chain


def _sampled(graph: SessionGraph, turn: Turn) -> Sampled:
    ids = graph.ids(turn.turn_id)
    return Sampled(
        turn.choice,
        sampled=turn.sampled,
        logprobs=turn.logprobs if turn.logprobs or turn.train else None,
        prompt=ids[: turn.n_prompt].tobytes() if ids.size else None,
        finish_reason=turn.finish_reason,
        stop=turn.stop,
        message=turn.response,
        versions=turn.versions,
        routed_experts=turn.routed_experts,
        entropies=turn.entropies,
        flags=turn.flags,
    )
