"""From turns to rows: paths through the tree of what was sampled on top of what.

A turn's path parent is the nearest turn whose prompt + sampled ids begin its prompt. Rows are the
leaves of that tree, in order of commit, once turns that nothing trained hangs on are taken away; a
turn that several leaves share is trained in the first of them and is context in the others.

What is trained: turns of trained models whose answer reached the agent, without error, and not
superseded by a retry. That a later prompt holds a turn's ids proves that it arrived. All others are
recorded and counted by reason, never trained.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np

from .drift import ForkKind
from .row import Row, RowStatus, TurnSpan
from .turn import Ids, Span, Turn, TurnHead

_TRUNCATED = ("length", "max_tokens", "model_length")
_ABORTED = ("abort", "aborted", "cancelled", "error")


class Left(enum.StrEnum):
    """Why a turn is not trained."""

    UNTRAINED_MODEL = "untrained_model"  # a judge, a user simulator, a helper model
    FAILED = "failed"  # the engine or the gateway gave up on it, and so did the agent
    UNDELIVERED = "undelivered"  # aborted or disconnected before the agent had all of it
    SUPERSEDED = "superseded"  # the agent asked again and went on with the second answer
    EMPTY = "empty"  # nothing was sampled


@dataclass(slots=True, eq=False)
class Node:
    """A committed turn and where it hangs."""

    turn: TurnHead
    delivered: bool
    whole: Turn | None = None
    """All of it but the request, as long as it has no place in a journal."""
    at: int | None = None
    """Its place in the journal."""
    slot: int | None = None
    path_parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    """Turns whose prompt begins with all of this one's ids."""

    @property
    def arrived(self) -> bool:
        """Handed to the agent, or replayed by it, which proves that it arrived."""
        return self.delivered or bool(self.children)

    @property
    def model(self) -> str:
        return self.turn.model

    @property
    def n_prompt(self) -> int:
        return self.turn.n_prompt

    @property
    def n_total(self) -> int:
        return self.turn.n_total


Load: TypeAlias = Callable[[Node], Turn]


class SessionCount(msgspec.Struct):
    """Turns and sampled tokens of a session: trained, and left out by reason."""

    turns: int = 0
    trained_turns: int = 0
    trained_tokens: int = 0
    left_turns: dict[str, int] = msgspec.field(default_factory=dict)
    left_tokens: dict[str, int] = msgspec.field(default_factory=dict)
    forks: dict[str, int] = msgspec.field(default_factory=dict)
    truncated_turns: int = 0
    model_s: float = 0.0
    """Time that the agent waited for the model, all turns together."""


def left_reason(node: Node, superseded: set[str]) -> Left | None:
    """None for a trained turn."""
    turn = node.turn
    if not turn.train:
        return Left.UNTRAINED_MODEL
    if turn.error is not None and not _went_on(node):
        return Left.FAILED
    if not turn.n_sampled:
        return Left.EMPTY
    if not node.delivered and not node.children:
        return Left.UNDELIVERED
    return Left.SUPERSEDED if turn.turn_id in superseded else None


def _went_on(node: Node) -> bool:
    """The agent built on what there was of a broken answer: it was sampled and delivered."""
    return bool(node.children) and node.turn.has_logprobs


def superseded_turns(nodes: Sequence[Node]) -> set[str]:
    """Turns whose call was answered again later, and that the agent did not go on from."""
    latest: dict[tuple[str, int], Node] = {}
    for node in nodes:
        turn = node.turn
        arrived = node.delivered or bool(node.children)
        if turn.retry_key is not None and turn.fork == ForkKind.RETRY and arrived:
            latest[(turn.retry_key, turn.choice)] = node
    out: set[str] = set()
    for node in nodes:
        key = (node.turn.retry_key or "", node.turn.choice)
        winner = latest.get(key) if node.turn.retry_key is not None else None
        if winner is not None and winner.turn.seq > node.turn.seq and not node.children:
            out.add(node.turn.turn_id)
    return out


def count_turns(nodes: Sequence[Node]) -> SessionCount:
    count = SessionCount(turns=len(nodes))
    superseded = superseded_turns(nodes)
    for node in nodes:
        turn, reason = node.turn, left_reason(node, superseded)
        count.model_s += turn.total_s or 0.0
        if turn.fork:
            count.forks[turn.fork] = count.forks.get(turn.fork, 0) + 1
        if reason is None:
            count.trained_turns += 1
            count.trained_tokens += turn.n_sampled
            count.truncated_turns += turn.finish_reason in _TRUNCATED
        else:
            count.left_turns[reason] = count.left_turns.get(reason, 0) + 1
            count.left_tokens[reason] = count.left_tokens.get(reason, 0) + turn.n_sampled
    return count


def build_rows(
    nodes: Sequence[Node],
    ids_of: Callable[[Node], Ids],
    load: Load,
    *,
    session_id: str,
    rollout_id: str,
    group_id: str | None,
    metadata: Mapping[str, Any],
) -> list[Row]:
    """``nodes`` in order of commit; ``load`` gives a turn with its log-probabilities."""
    superseded = superseded_turns(nodes)
    trained = [node for node in nodes if left_reason(node, superseded) is None]
    number = {node.turn.turn_id: i for i, node in enumerate(trained)}
    inner = _inner(trained)
    rows: list[Row] = []
    done: set[str] = set()
    for leaf in trained:
        if leaf.turn.turn_id in inner:
            continue
        path = [*_above(leaf)[::-1], leaf]
        here = [n for n in path if n.turn.turn_id in number and n.turn.turn_id not in done]
        done.update(node.turn.turn_id for node in here)
        spans = [_span(node, number[node.turn.turn_id]) for node in here]
        row = _row(ids_of(leaf), [load(node) for node in here], spans)
        row.routed_experts = [
            (node.turn.prompt_shared, node.n_total, load(node).routed_experts or b"")
            for node in path
            if node.turn.has_experts
        ]
        row.status = status_of(leaf.turn.finish_reason)
        fork = next((node.turn.fork for node in reversed(path) if node.turn.fork), None)
        row.session_id, row.rollout_id, row.group_id = session_id, rollout_id, group_id
        row.metadata = {"model": leaf.model, "fork": fork, **row.metadata, **metadata}
        rows.append(row.check())
    return rows


def _inner(trained: Sequence[Node]) -> set[str]:
    """Turns that a trained one hangs on; each is visited once."""
    seen: set[str] = set()
    for node in trained:
        at = node.path_parent
        while at is not None and at.turn.turn_id not in seen:
            seen.add(at.turn.turn_id)
            at = at.path_parent
    return seen


def _above(node: Node) -> list[Node]:
    out: list[Node] = []
    at = node.path_parent
    while at is not None:
        out.append(at)
        at = at.path_parent
    return out


def _span(node: Node, index: int) -> TurnSpan:
    turn = node.turn
    return TurnSpan(index, turn.turn_id, node.n_prompt, node.n_total, turn.finish_reason)


def _row(ids: Ids, here: list[Turn], spans: list[TurnSpan]) -> Row:
    mask = np.zeros(ids.size, np.uint8)
    logprobs = np.zeros(ids.size, np.float32)
    turn_index = np.full(ids.size, -1, np.int32)
    versions: list[Span] = []
    for turn, span in zip(here, spans, strict=True):
        mask[span.start : span.end] = 1
        logprobs[span.start : span.end] = turn.sampled_logprobs()
        turn_index[span.start : span.end] = span.number
        for version, start, stop in turn.versions:
            _add_version(versions, (version, span.start + start, span.start + stop))
    return Row(
        token_ids=ids,
        loss_mask=mask,
        logprobs=logprobs,
        turn_index=turn_index,
        turns=spans,
        rollout_id="",
        session_id="",
        weight_versions=versions,
        metadata={"flags": sorted({flag for turn in here for flag in turn.flags})},
    )


def _add_version(versions: list[Span], span: Span) -> None:
    version, start, stop = span
    if start == stop:
        return
    if versions and versions[-1][0] == version and versions[-1][2] == start:
        versions[-1] = (version, versions[-1][1], stop)
    else:
        versions.append(span)


def status_of(finish_reason: str) -> RowStatus:
    if finish_reason in _TRUNCATED:
        return RowStatus.TRUNCATED
    return RowStatus.ABORTED if finish_reason in _ABORTED else RowStatus.COMPLETED
