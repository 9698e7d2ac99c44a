"""The graph of a session under random events, beside a list of what was served.

Other than in ``test_properties``, things go wrong between the turns: a disk fails and turns are
taken back, answers turn out to be lost, the gateway restarts and reads its journal again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from agentcore_rl_toolkit.trajectory import Turn
from agentcore_rl_toolkit.trajectory.graph import SessionGraph, rebuild


@dataclass
class Served:
    prompt: list[int]
    sampled: list[int]
    train: bool
    delivered: bool
    retry_key: str
    again: bool = False


class GraphOfASession(RuleBasedStateMachine):
    turns = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self.fresh = itertools.count(1)
        self.served: dict[str, Served] = {}
        self.journal: list[bytes] = []
        self.graph = self.connected(SessionGraph("s", rollout_id="r"))

    def connected(self, graph: SessionGraph) -> SessionGraph:
        graph.load = lambda at: msgspec.msgpack.decode(self.journal[at], type=Turn)
        return graph

    def ids(self, count: int) -> list[int]:
        """Never seen before: only what was copied is equal."""
        return [next(self.fresh) for _ in range(count)]

    def call(self, prompt: list[int], sizes: int, delivered: bool, train: bool, key: str) -> str:
        model = "policy" if train else "judge"
        known = any(one.retry_key == key for one in self.served.values())
        one = Served(prompt, self.ids(sizes), train, delivered, key, again=known)
        placement = self.graph.place(model=model, prompt_ids=prompt, retry_key=key)
        turn = self.graph.make_turn(
            placement,
            sampled=one.sampled,
            logprobs=[-float(i) for i in one.sampled],
            train=train,
            delivered=delivered,
            response=b'{"role":"assistant","content":"x"}',
        )
        self.graph.commit(turn)
        self.journal.append(msgspec.msgpack.encode(turn))
        self.graph.settle(turn.turn_id, len(self.journal) - 1)
        self.served[turn.turn_id] = one
        return turn.turn_id

    @rule(
        target=turns,
        size=st.integers(1, 4),
        delivered=st.booleans(),
        train=st.sampled_from([1, 1, 0]),
    )
    def begin(self, size: int, delivered: bool, train: int) -> str:
        return self.call(self.ids(size), size, delivered, bool(train), f"k{next(self.fresh)}")

    @rule(target=turns, base=turns, size=st.integers(0, 3), delivered=st.booleans())
    def go_on(self, base: str, size: int, delivered: bool) -> object:
        if base not in self.served:
            return multiple()
        one = self.served[base]
        prompt = [*one.prompt, *one.sampled, *self.ids(2)]
        return self.call(prompt, size, delivered, one.train, f"k{next(self.fresh)}")

    @rule(target=turns, base=turns, size=st.integers(1, 3))
    def ask_again(self, base: str, size: int) -> object:
        if base not in self.served:
            return multiple()
        one = self.served[base]
        return self.call(one.prompt, size, True, one.train, one.retry_key)

    @rule(base=turns, delivered=st.booleans())
    def learn(self, base: str, delivered: bool) -> None:
        if base in self.served:
            self.graph.mark_delivered(base, delivered)
            self.served[base].delivered = delivered

    @rule(base=consumes(turns))
    def lose_the_disk(self, base: str) -> None:
        if base not in self.served:
            return
        gone = self.graph.retract(base)
        assert base in gone
        for turn_id in gone:
            del self.served[turn_id]

    @rule()
    def restart(self) -> None:
        turns = self.graph.turns()
        graph = self.connected(rebuild("s", turns, rollout_id="r"))
        for turn in turns:
            graph.mark_delivered(turn.turn_id, self.served[turn.turn_id].delivered)
        before, after = self.graph.rows(), graph.rows()
        assert [row.turns for row in before] == [row.turns for row in after]
        assert graph.left() == self.graph.left()
        self.graph = graph

    # --- what always holds --------------------------------------------------------------------

    def went_on(self, turn_id: str) -> bool:
        one = self.served[turn_id]
        full = [*one.prompt, *one.sampled]
        return any(
            other.prompt[: len(full)] == full and other.train == one.train
            for name, other in self.served.items()
            if name != turn_id and len(other.prompt) >= len(full)
        )

    @invariant()
    def the_graph_holds_what_was_served(self) -> None:
        assert {head.turn_id for head in self.graph.heads()} == set(self.served)
        for turn_id, one in self.served.items():
            assert self.graph.ids(turn_id).tolist() == [*one.prompt, *one.sampled]

    @invariant()
    def every_turn_is_trained_once_or_left_for_a_reason(self) -> None:
        trained: list[str] = []
        for row in self.graph.rows():
            row.check()
            for span in row.turns:
                one = self.served[span.turn_id]
                trained.append(span.turn_id)
                assert row.token_ids[: span.end].tolist() == [*one.prompt, *one.sampled]
                logprobs = row.logprobs[span.start : span.end].tolist()
                assert logprobs == [-float(i) for i in one.sampled]
            assert int(row.loss_mask.sum()) == sum(s.end - s.start for s in row.turns)
        assert len(trained) == len(set(trained))
        assert set(trained).isdisjoint(self.graph.left())
        assert set(trained) | set(self.graph.left()) == set(self.served)

    @invariant()
    def what_reached_the_agent_is_trained(self) -> None:
        trained = {span.turn_id for row in self.graph.rows() for span in row.turns}
        retried = {one.retry_key for one in self.served.values() if one.again}
        for turn_id, one in self.served.items():
            if not one.train:
                assert turn_id not in trained
            elif one.sampled and self.went_on(turn_id):
                assert turn_id in trained, "the agent replayed it, so it arrived"
            elif one.retry_key not in retried:
                assert (turn_id in trained) == (one.delivered and bool(one.sampled))


TestGraphOfASession = GraphOfASession.TestCase
TestGraphOfASession.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True
)
