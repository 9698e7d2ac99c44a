"""One model call, exactly as it was served: the unit of the journal.

Invariant: the ids and log-probabilities here are those of the engine, never re-tokenised and never
made up. A prompt is kept as a delta to its parent turn (``prompt_shared`` leading ids of the
parent's prompt + sampled ids, then ``prompt_delta``), and so is a long request, so a session costs
its length, not the square of it. Ids are packed as little-endian int32 and log-probabilities as
float32.

A turn is made once by ``SessionGraph.make_turn`` and never changed; what is learnt later (that the
answer did not reach the agent) is another frame of the journal. The gateway owns making turns, the
graph owns what they mean together.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import ContractError

Ids: TypeAlias = npt.NDArray[np.int32]
Logprobs: TypeAlias = npt.NDArray[np.float32]
Span: TypeAlias = tuple[str, int, int]
"""(weight version, start, end): half open, over the sampled ids of a turn or the ids of a row."""

ID = np.dtype("<i4")
LOGPROB = np.dtype("<f4")
ID_BYTES = 4
MAX_ID = 2**31 - 1


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """A change that the gateway made to a request: ``before`` at ``start`` became ``after``."""

    rule: str
    where: str
    """``/messages/3`` or ``/tools``, of the request in chat shape; offsets are in its bytes."""
    start: int
    before: bytes
    after: bytes


class Turn(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="turn"
):
    """Itself a frame of the journal: ``msgspec.msgpack.encode(turn)``."""

    turn_id: str
    """Unique in its session."""
    session_id: str
    seq: int
    """Order of commit in the session, from 0."""
    parent: str | None = None
    """Turn whose ids the prompt shares; None when it shares none."""
    fork: str | None = None
    """A ``ForkKind``, or None when it starts the session or extends its parent exactly."""
    dialect: str = "chat"
    model: str = ""
    """Name the gateway serves the model under; one name, one tokenizer."""
    train: bool = True
    engine: str = ""
    request: bytes = b""
    """Body as received from the agent, from ``request_shared`` on; not kept in memory by the graph.
    Whoever reads turns in their order puts it together with ``Requests``."""
    request_shared: int = 0
    """How many leading bytes of the body equal those of the parent's."""
    response: bytes = b""
    """JSON of the assistant message as it was sent to the agent."""
    prompt_shared: int = 0
    """How many leading ids equal those of the parent's prompt + sampled."""
    prompt_delta: bytes = b""
    sampled: bytes = b""
    logprobs: bytes = b""
    finish_reason: str = "stop"
    """stop, length, tool_calls, abort, …; as the engine said."""
    stop: str | None = None
    """The stop sequence that ended the answer."""
    versions: list[Span] = []
    """Weight versions over the sampled ids."""
    delivered: bool = True
    """The whole answer was handed to the agent's connection, as far as known when written."""
    choice: int = 0
    retry_key: str | None = None
    """Equal for requests that are the same call sent again."""
    started: float = 0.0
    """Unix seconds."""
    first_token_s: float | None = None
    total_s: float | None = None
    error: str | None = None
    flags: list[str] = []
    """What was done to the request or seen in the answer, such as ``parse_failed``."""
    edits: list[Edit] = []
    """How the request that the engine saw differs from ``request``."""
    routed_experts: bytes | None = None
    entropies: bytes | None = None
    """float32 as the log-probabilities, of the distribution that each sampled id was drawn from;
    None where the engine does not tell."""
    root: bytes = b""
    """Digest of model, tools and system prompt: the same for every turn of one conversation."""
    chain: bytes = b""
    """Digest of the messages of the request, see ``trajectory.messages``."""
    n_messages: int = 0

    @property
    def n_delta(self) -> int:
        return len(self.prompt_delta) // ID_BYTES

    @property
    def n_prompt(self) -> int:
        return self.prompt_shared + self.n_delta

    @property
    def n_sampled(self) -> int:
        return len(self.sampled) // ID_BYTES

    @property
    def n_total(self) -> int:
        return self.n_prompt + self.n_sampled

    @property
    def has_ids(self) -> bool:
        """False for engines that answer without ids, which are recorded and not trained."""
        return self.n_total > 0

    def delta_ids(self) -> Ids:
        return unpack_ids(self.prompt_delta)

    def sampled_ids(self) -> Ids:
        return unpack_ids(self.sampled)

    def sampled_logprobs(self) -> Logprobs:
        return unpack_logprobs(self.logprobs)

    def check(self) -> Turn:
        """ContractError when it could not be trained exactly; returns itself."""
        where = f"turn {self.turn_id}"
        if len(self.prompt_delta) % ID_BYTES or len(self.sampled) % ID_BYTES:
            raise ContractError(f"{where}: ids are not whole int32 values")
        if self.prompt_shared < 0 or (self.prompt_shared and self.parent is None):
            raise ContractError(f"{where}: shares {self.prompt_shared} ids with no parent")
        _check_versions(where, self.versions, self.n_sampled)
        if self.logprobs or (self.train and self.error is None):
            check_logprobs(where, self.logprobs, self.n_sampled)
        return self


class Requests:
    """Puts the requests of a session's turns together, parents first."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def whole(self, turn: Turn) -> Turn:
        """The turn with all of its request; with none when its parent's was lost."""
        if turn.request_shared:
            before = self._known.get(turn.parent or "", b"")[: turn.request_shared]
            found = len(before) == turn.request_shared
            request = before + turn.request if found else b""
            turn = msgspec.structs.replace(turn, request=request, request_shared=0)
        if turn.request:
            self._known[turn.turn_id] = turn.request
        return turn


class TurnHead(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a graph keeps of a turn in memory: everything but bodies, ids and log-probabilities.

    Ids are in the session's token store, once; the rest is read back from the journal. Not seen by
    the garbage collector, which would otherwise walk through every turn of every live session.
    """

    turn_id: str
    seq: int
    parent: str | None
    fork: str | None
    model: str
    train: bool
    prompt_shared: int
    n_prompt: int
    n_sampled: int
    has_logprobs: bool
    """One for every sampled id."""
    has_experts: bool
    finish_reason: str
    choice: int
    retry_key: str | None
    total_s: float | None
    error: str | None
    root: bytes
    chain: bytes
    n_messages: int

    @classmethod
    def of(cls, turn: Turn) -> TurnHead:
        return cls(
            turn_id=turn.turn_id,
            seq=turn.seq,
            parent=turn.parent,
            fork=turn.fork,
            model=turn.model,
            train=turn.train,
            prompt_shared=turn.prompt_shared,
            n_prompt=turn.n_prompt,
            n_sampled=turn.n_sampled,
            has_logprobs=len(turn.logprobs) == len(turn.sampled),
            has_experts=turn.routed_experts is not None,
            finish_reason=turn.finish_reason,
            choice=turn.choice,
            retry_key=turn.retry_key,
            total_s=turn.total_s,
            error=turn.error,
            root=turn.root,
            chain=turn.chain,
            n_messages=turn.n_messages,
        )

    @property
    def n_total(self) -> int:
        return self.n_prompt + self.n_sampled


def pack_ids(ids: Sequence[int] | npt.NDArray[Any] | bytes) -> bytes:
    """int32 bytes of a list or array of ids; bytes are taken as packed already."""
    if isinstance(ids, bytes):
        return ids
    try:
        packed = array.array("i", ids) if isinstance(ids, list) else np.asarray(ids, np.int64)
    except (TypeError, OverflowError, ValueError) as error:
        raise ContractError(f"token ids must be int32 values: {error}") from None
    wide = np.asarray(packed)
    if wide.size and (int(wide.min()) < 0 or int(wide.max()) > MAX_ID):
        raise ContractError("token ids must be between 0 and 2**31 - 1")
    return wide.astype(ID, copy=False).tobytes()


def unpack_ids(packed: bytes | bytearray | memoryview) -> Ids:
    return np.frombuffer(packed, dtype=ID)


def pack_logprobs(values: Sequence[float | None] | npt.NDArray[Any] | bytes | None) -> bytes:
    """float32 bytes. None, and None inside the list, are errors: a missing value is not 0.0."""
    if isinstance(values, bytes):
        return values
    packed = None if values is None else np.asarray(values, dtype=LOGPROB)  # None becomes NaN
    if packed is None or bool(np.isnan(packed).any()):
        raise ContractError(
            "the engine returned no log-probability for some sampled tokens: they cannot be "
            "trained; turn logprobs on at the engine (vLLM: logprobs, SGLang: return_logprob)"
        )
    return packed.tobytes()


def unpack_logprobs(packed: bytes) -> Logprobs:
    return np.frombuffer(packed, dtype=LOGPROB)


def check_logprobs(where: str, packed: bytes, n_sampled: int) -> None:
    if len(packed) != n_sampled * ID_BYTES:
        raise ContractError(
            f"{where}: {n_sampled} sampled ids but {len(packed) / ID_BYTES:g} log-probabilities; "
            "missing ones are an error, they are never filled in"
        )
    values = unpack_logprobs(packed)
    if values.size and not np.logical_and.reduce(np.isfinite(values)):
        raise ContractError(f"{where}: a log-probability is NaN or infinite")


def _check_versions(where: str, versions: Sequence[Span], n_sampled: int) -> None:
    end = 0
    for version, start, stop in versions:
        if start < end or stop < start or stop > n_sampled:
            raise ContractError(
                f"{where}: weight version {version!r} spans {start}:{stop} of {n_sampled} ids"
            )
        end = stop
