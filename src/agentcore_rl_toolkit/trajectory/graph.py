"""A session while it is live: which turn a request continues, and which rows come of it all.

Use, per model call: ``place`` the request by its messages, ``pin`` the placement to its prompt ids
once they are known (made by the gateway, or returned by the engine), ``make_turn`` from it and the
engine's answer, journal the turn, ``commit`` it. A graph rebuilt by committing the turns of a
journal, in any order that has parents first, gives the same rows as the live one.

A graph holds ids once and heads of turns; the turns themselves stay in memory only until ``settle``
says where the journal has them, and are read back through ``load`` when rows are made.

Invariants: a turn never changes once committed; ids win over messages when they disagree; a prompt
that does not extend a turn's ids exactly starts a fork, and no sampled id is given up for it.
Not thread-safe: one loop owns a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import ContractError
from .drift import Drift, DriftCount, ForkKind, drift_of
from .hang import drift_by_turn, hang, preferred
from .messages import Conversation, Digester, Message, answer_digest, extend, reasoning_of
from .path import (
    Left,
    Node,
    SessionCount,
    build_rows,
    count_turns,
    left_reason,
    superseded_turns,
)
from .placement import Placement
from .retries import Retries
from .row import Row
from .strand import Prompt, TokenStore
from .turn import Ids, Requests, Turn, TurnHead, pack_ids, pack_logprobs

MANY_ALIKE = 16
"""Of turns with the same request and answer, so many of the latest are told apart."""

AnyIds = Sequence[int] | npt.NDArray[Any] | bytes


class SessionGraph:
    def __init__(
        self, session_id: str, *, rollout_id: str | None = None, group_id: str | None = None
    ) -> None:
        self.session_id = session_id
        self.rollout_id = rollout_id or session_id
        self.group_id = group_id
        self.load: Callable[[int], Turn] | None = None
        """Reads a turn back from its place in the journal."""
        self._next_seq = 0
        self._clear()

    def _clear(self) -> None:
        self.drift = DriftCount()
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, TokenStore] = {}
        self._by_slot: dict[str, list[Node]] = {}
        self._asked: dict[bytes, list[Node]] = {}  # by the messages of the request
        self._answered: dict[bytes, list[Node]] = {}  # by those and the answer
        self._tips: dict[bytes, Node] = {}  # latest turn of each root
        self.retries = Retries()
        self._digester = Digester()

    def __len__(self) -> int:
        return len(self._nodes)

    # --- before sampling ----------------------------------------------------------------------

    def place(
        self,
        *,
        model: str = "",
        messages: Sequence[Message] | None = None,
        system: object = None,
        tools: object = None,
        prompt_ids: AnyIds | Prompt | None = None,
        retry_key: str | None = None,
        choice: int = 0,
    ) -> Placement:
        """Which turn a request continues, or which kind of fork begins. Changes nothing.

        Messages are chat-completions or Anthropic shaped dicts, or their raw JSON bytes; raw bytes
        seen before are not parsed again, which makes a long history cheap.
        """
        retry = self.retries.get(retry_key, choice) if retry_key is not None else None
        placement = Placement(
            model=model,
            retry_of=retry.turn.turn_id if retry else None,
            retry_key=retry_key,
            choice=choice,
        )
        if messages is not None:
            talk = self._digester.read(model, system, tools, messages)
            placement = self._place_messages(placement, talk, messages)
        elif retry is not None:
            placement = msgspec.structs.replace(
                placement, fork=ForkKind.RETRY, parent=retry.turn.turn_id, shared=retry.n_prompt
            )
        placement = msgspec.structs.replace(
            placement, drift=drift_of(placement.fork, placement.parent is not None)
        )
        return placement if prompt_ids is None else self.pin(placement, prompt_ids)

    def pin(self, placement: Placement, prompt_ids: AnyIds | Prompt) -> Placement:
        """The placement by exact ids: longest turn whose prompt + sampled begin ``prompt_ids``."""
        prompt = prompt_ids if isinstance(prompt_ids, Prompt) else Prompt(pack_ids(prompt_ids))
        if not prompt.n_ids:
            raise ContractError(f"session {self.session_id}: a prompt must have at least one id")
        store, nodes = self._stores.get(placement.model), self._by_slot.get(placement.model, [])
        fork, parent, shared = placement.fork, None, 0
        if store is not None:
            fork, parent, shared = hang(store, nodes, self._nodes, placement, prompt)
        elif self._nodes:
            fork = fork or ForkKind.SUBAGENT
        lost = parent.n_total - shared if parent else 0
        return msgspec.structs.replace(
            placement,
            parent=parent.turn.turn_id if parent else None,
            shared=shared,
            fork=fork,
            drift=drift_of(fork, parent is not None),
            lost=0 if fork in (ForkKind.RETRY, ForkKind.CHOICE) else lost,
            delta=prompt.part(shared, prompt.n_ids),
            has_ids=True,
        )

    def _place_messages(
        self, placement: Placement, talk: Conversation, messages: Sequence[Message]
    ) -> Placement:
        matched, n_matched = self._match(talk, messages)
        asked = self._asked.get(talk.chain, [])
        fork, parent, shared = self._fork_of(placement, talk, matched, asked)
        return msgspec.structs.replace(
            placement,
            root=talk.root,
            chain=talk.chain,
            n_messages=len(messages),
            continues=matched.turn.turn_id if matched else None,
            n_matched=n_matched,
            fork=fork,
            parent=parent.turn.turn_id if parent else None,
            shared=shared,
        )

    def _match(self, talk: Conversation, messages: Sequence[Message]) -> tuple[Node | None, int]:
        """Latest answer that the history replays, and how many messages that makes."""
        for n in range(len(messages), 0, -1):
            if nodes := self._answered.get(talk.chains[n]):
                alike = self._by_reasoning(nodes[-MANY_ALIKE:], messages[n - 1])
                return preferred(reversed(alike)), n
        return None, 0

    def _by_reasoning(self, nodes: list[Node], replayed: Message) -> list[Node]:
        if len(nodes) == 1:
            return nodes
        message = msgspec.json.decode(replayed) if isinstance(replayed, bytes) else replayed
        kept = reasoning_of(message)
        if not kept:
            return nodes
        answers = ((node, msgspec.json.decode(self._whole(node).response)) for node in nodes)
        return [node for node, answer in answers if reasoning_of(answer) == kept] or nodes

    def _fork_of(
        self, placement: Placement, talk: Conversation, matched: Node | None, asked: list[Node]
    ) -> tuple[ForkKind | None, Node | None, int]:
        if placement.retry_of is not None:
            retry = self._nodes[placement.retry_of]
            return ForkKind.RETRY, retry, retry.n_prompt
        if asked:
            return ForkKind.CHOICE, asked[-1], asked[-1].n_prompt
        if matched is not None:
            went_on = bool(matched.children)
            return ForkKind.REWRITE if went_on else None, matched, matched.n_total
        return self._fresh_start(talk), None, 0

    def _fresh_start(self, talk: Conversation) -> ForkKind | None:
        if not self._nodes:
            return None
        tip = self._tips.get(talk.root)
        if tip is None:
            return ForkKind.SUBAGENT
        if len(talk.chains) - 1 < tip.turn.n_messages:
            return ForkKind.COMPACTION
        return ForkKind.REWRITE if talk.answered else ForkKind.SUBAGENT

    # --- after sampling -----------------------------------------------------------------------

    def make_turn(
        self,
        placement: Placement,
        *,
        sampled: AnyIds = b"",
        logprobs: Sequence[float | None] | npt.NDArray[Any] | bytes | None = None,
        train: bool = True,
        **fields: Any,
    ) -> Turn:
        """A checked turn with the next ``seq``; other fields of ``Turn`` by name.

        Log-probabilities may be missing only for untrained models and for turns with an error.
        """
        if train and not placement.has_ids and fields.get("error") is None:
            raise ContractError(
                f"session {self.session_id}: a trained turn needs its prompt ids; pin() them"
            )
        optional = logprobs is None and (not train or fields.get("error") is not None)
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        held = placement.has_ids
        return Turn(
            turn_id=f"{self.session_id}/{seq}",
            session_id=self.session_id,
            seq=seq,
            parent=placement.hangs_on,
            fork=placement.fork.value if placement.fork else None,
            model=placement.model,
            train=train,
            prompt_shared=placement.shared if held else 0,
            prompt_delta=placement.delta,
            sampled=pack_ids(sampled),
            logprobs=b"" if optional else pack_logprobs(logprobs),
            choice=placement.choice,
            retry_key=placement.retry_key,
            root=placement.root,
            chain=placement.chain,
            n_messages=placement.n_messages,
            **fields,
        ).check()

    def commit(self, turn: Turn) -> tuple[Drift, int] | None:
        """Adds a turn, without its request. Its parent must be here already.

        Returns what it adds to the count of drift; None for a turn without ids.
        """
        if turn.turn_id in self._nodes:
            raise ContractError(f"turn {turn.turn_id} is committed twice")
        parent = self._parent_of(turn)
        whole = msgspec.structs.replace(turn, request=b"", request_shared=0)
        node = Node(turn=TurnHead.of(turn), delivered=turn.delivered, whole=whole)
        drift: tuple[Drift, int] | None = None
        if turn.has_ids:
            self._store(node, parent, turn)
            drift = drift_by_turn(turn, parent)
            self.drift.add(*drift)
        self._nodes[turn.turn_id] = node
        self._next_seq = max(self._next_seq, turn.seq + 1)
        self._index(node, turn.response)
        return drift

    def settle(self, turn_id: str, at: int) -> None:
        """The journal has the turn at ``at``: from now on it is read from there."""
        node = self._nodes[turn_id]
        node.at, node.whole = at, None

    def places(self) -> list[int] | None:
        """Where the journal has every turn, in order; None while some are in memory only."""
        places = [node.at for node in self._ordered() if node.at is not None]
        return places if len(places) == len(self._nodes) else None

    def mark_delivered(self, turn_id: str, delivered: bool) -> None:
        """What was learnt about a committed turn after it was journalled."""
        node = self._nodes[turn_id]
        node.delivered = delivered
        self.retries.note(node)

    def retract(self, turn_id: str) -> list[str]:
        """Takes back a turn that the journal could not keep, and all that shares its ids.

        Without it a later turn would be stored as a delta to ids that no reader can find. It costs
        as much as the session is long, and is needed only when a disk fails.
        """
        gone = {turn_id} & self._nodes.keys()
        kept: list[Node] = []
        for node in self._ordered():
            if node.turn.turn_id in gone or node.turn.parent in gone:
                gone.add(node.turn.turn_id)
            else:
                kept.append(node)
        turns = [self._whole(node) for node in kept]
        self._clear()
        for node, turn in zip(kept, turns, strict=True):
            self.commit(turn)
            self.mark_delivered(turn.turn_id, node.delivered)
            if node.at is not None:
                self.settle(turn.turn_id, node.at)
        return sorted(gone)

    def _parent_of(self, turn: Turn) -> Node | None:
        if turn.parent is None:
            return None
        parent = self._nodes.get(turn.parent)
        if parent is None:
            raise ContractError(f"turn {turn.turn_id} continues {turn.parent}, which is not here")
        if turn.prompt_shared > parent.n_total:
            raise ContractError(f"turn {turn.turn_id} shares more ids than its parent has")
        return parent

    def _store(self, node: Node, parent: Node | None, turn: Turn) -> None:
        store = self._stores.setdefault(turn.model, TokenStore())
        slot = parent.slot if parent and parent.model == turn.model else None
        if turn.prompt_shared and slot is None:
            raise ContractError(f"turn {turn.turn_id} shares ids with a turn of another model")
        node.slot = store.add(slot, turn.prompt_shared, turn.prompt_delta, turn.sampled)
        self._by_slot.setdefault(turn.model, []).append(node)
        while parent is not None and (parent.slot is None or parent.n_total > turn.prompt_shared):
            parent = parent.path_parent
        if parent is not None:
            node.path_parent = parent
            parent.children.append(node)

    def _index(self, node: Node, response: bytes) -> None:
        turn = node.turn
        self.retries.note(node)
        if not turn.chain:
            return
        self._tips[turn.root] = node
        self._asked.setdefault(turn.chain, []).append(node)
        answer = answer_digest(response) if response else None
        if answer is not None:
            self._answered.setdefault(extend(turn.chain, answer), []).append(node)

    # --- reading ------------------------------------------------------------------------------

    def ids(self, turn_id: str) -> Ids:
        """Prompt + sampled ids of a turn, as an array of its own."""
        node = self._nodes[turn_id]
        if node.slot is None:
            return np.zeros(0, np.int32)
        return self._stores[node.model].ids(node.slot)

    def prompt(self, turn_id: str, n_ids: int, more: bytes) -> Prompt:
        """One that begins with the first of them and goes on with ``more``."""
        node = self._nodes[turn_id]
        if node.slot is None:
            return Prompt(more)
        return Prompt(more, self._stores[node.model], node.slot, n_ids)

    def turn(self, turn_id: str) -> Turn:
        """All of a committed turn, read from the journal when it is there."""
        line = [self._whole(self._nodes[turn_id])]
        while line[-1].request_shared and line[-1].parent is not None:
            line.append(self._whole(self._nodes[line[-1].parent]))
        requests = Requests()
        return [requests.whole(turn) for turn in reversed(line)][-1]

    def turns(self) -> list[Turn]:
        requests = Requests()
        return [requests.whole(self._whole(node)) for node in self._ordered()]

    def head(self, turn_id: str) -> TurnHead:
        return self._nodes[turn_id].turn

    def heads(self) -> list[TurnHead]:
        return [node.turn for node in self._ordered()]

    def _whole(self, node: Node) -> Turn:
        """Its request as the journal has it."""
        if node.whole is not None:
            return node.whole
        if node.at is None or self.load is None:
            raise ContractError(f"turn {node.turn.turn_id} is in no journal that can be read")
        return self.load(node.at)

    def find_retry(self, retry_key: str, choice: int = 0) -> TurnHead | None:
        """The latest turn of that call, delivered or not."""
        node = self.retries.get(retry_key, choice)
        return node.turn if node else None

    def is_delivered(self, turn_id: str) -> bool:
        """Handed to the agent, or replayed by it, which proves that it arrived."""
        return self._nodes[turn_id].arrived

    def was_delivered(self, turn_id: str) -> bool:
        """What was said of it, without what the turns after it prove."""
        return self._nodes[turn_id].delivered

    def rows(self, metadata: Mapping[str, Any] | None = None) -> list[Row]:
        """Every trained turn in exactly one row; turns of untrained models give none."""
        return build_rows(
            self._ordered(),
            lambda node: self.ids(node.turn.turn_id),
            self._whole,
            session_id=self.session_id,
            rollout_id=self.rollout_id,
            group_id=self.group_id,
            metadata=metadata or {},
        )

    def left(self) -> dict[str, Left]:
        """Turns that no row trains, and why."""
        nodes = self._ordered()
        superseded = superseded_turns(nodes)
        reasons = {node.turn.turn_id: left_reason(node, superseded) for node in nodes}
        return {turn_id: reason for turn_id, reason in reasons.items() if reason is not None}

    def count(self) -> SessionCount:
        return count_turns(self._ordered())

    def _ordered(self) -> list[Node]:
        return sorted(self._nodes.values(), key=lambda node: node.turn.seq)


def rebuild(session_id: str, turns: Iterable[Turn], **fields: Any) -> SessionGraph:
    """A graph from journalled turns, parents first."""
    graph = SessionGraph(session_id, **fields)
    for turn in turns:
        graph.commit(turn)
    return graph
