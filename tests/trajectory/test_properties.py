"""Random sessions against a slow, obvious reference.

The reference keeps every prompt and answer as whole lists. Sampled ids are random, so no text ever
tokenises back to them; histories come back re-tokenised, edited, cut, repeated and interleaved.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.trajectory import Row, SessionGraph, Turn, assign_rewards, rebuild

UNIQUE = 0
OPS = ("go_on", "go_on", "go_on", "drift", "rewrite", "compact", "subagent", "retry", "choice")


@dataclass
class Served:
    """One call as the reference remembers it."""

    seq: int
    prompt: list[int]
    sampled: list[int]
    logprobs: list[float]
    train: bool
    delivered: bool
    model: str
    retry_key: str
    again: bool
    choice: int
    failed: bool
    messages: list[dict[str, Any]]
    said: dict[str, Any]
    version: str

    @property
    def full(self) -> list[int]:
        return self.prompt + self.sampled


@dataclass
class World:
    draw: st.DrawFn
    vocab: int
    with_messages: bool
    graph: SessionGraph = field(default_factory=lambda: SessionGraph("s", rollout_id="r"))
    served: list[Served] = field(default_factory=list)
    fresh: Iterator[int] = field(default_factory=itertools.count)
    journal: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph.load = lambda at: msgspec.msgpack.decode(self.journal[at], type=Turn)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flip(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def ids(self, low: int, high: int) -> list[int]:
        """Ids never seen before, so that only what was copied is equal; or of a tiny vocabulary."""
        size = self.number(low, high)
        if self.vocab == UNIQUE:
            return [next(self.fresh) for _ in range(size)]
        return self.draw(st.lists(st.integers(0, self.vocab - 1), min_size=size, max_size=size))

    def step(self) -> None:
        op = self.draw(st.sampled_from(OPS)) if self.served else "subagent"
        base = self.served[self.number(0, len(self.served) - 1)] if self.served else None
        if base is None or op == "subagent":
            system = {"role": "system", "content": f"agent {len(self.served)}"}
            self.call(self.ids(1, 6), [system, self.user()])
        elif op == "retry":
            self.call(base.prompt, base.messages, base.model, base.retry_key, base.choice)
        elif op == "choice":
            for choice in range(1, self.number(1, 3) + 1):
                self.call(base.prompt, base.messages, base.model, base.retry_key + "+", choice)
        elif op == "compact":
            kept = base.full[: self.number(1, len(base.full))]
            self.call(kept + self.ids(1, 3), [base.messages[0], self.user()], base.model)
        else:
            self.continued(op, base)

    def continued(self, op: str, base: Served) -> None:
        history = [*base.messages, base.said, self.user()]
        ids = base.full
        if op == "drift":
            at = self.number(0, len(ids) - 1)
            ids = ids[:at] + self.ids(0, 3) + ids[at + 1 :]
        elif op == "rewrite":
            ids = ids[: self.number(1, len(ids))]
            history = [base.messages[0], self.user(), base.said, self.user()]
        self.call(ids + self.ids(1, 4), history, base.model)

    def user(self) -> dict[str, Any]:
        return {"role": "user", "content": f"u{len(self.served)}.{self.number(0, 10**6)}"}

    def call(
        self,
        prompt: list[int],
        messages: list[dict[str, Any]],
        model: str | None = None,
        retry_key: str | None = None,
        choice: int = 0,
    ) -> None:
        seq = len(self.served)
        model = model or ("judge" if self.flip(6) else "policy")
        sampled = self.ids(0 if self.flip(8) else 1, 5)
        one = Served(
            seq=seq,
            prompt=prompt,
            sampled=sampled,
            logprobs=[-(seq + 1) - i / 8 for i in range(len(sampled))],
            train=model == "policy",
            delivered=not self.flip(5),
            model=model,
            retry_key=retry_key or f"k{seq}",
            again=any((s.retry_key, s.choice) == (retry_key, choice) for s in self.served),
            choice=choice,
            failed=self.flip(10),
            messages=messages,
            said={"role": "assistant", "content": f"a{seq}"},
            version=f"v{seq // 3}",
        )
        self.commit(one, late=self.flip(2))
        self.served.append(one)

    def commit(self, one: Served, late: bool) -> None:
        placement = self.graph.place(
            model=one.model,
            messages=one.messages if self.with_messages else None,
            prompt_ids=one.prompt,
            retry_key=one.retry_key,
            choice=one.choice,
        )
        turn = self.graph.make_turn(
            placement,
            sampled=one.sampled,
            logprobs=one.logprobs,
            train=one.train,
            delivered=one.delivered or late,
            error="broken" if one.failed else None,
            response=json.dumps(one.said).encode(),
            versions=[(one.version, 0, len(one.sampled))],
        )
        self.graph.commit(turn)
        if self.flip(2):  # the journal has it: from now on it is read from there
            self.journal[one.seq] = msgspec.msgpack.encode(turn)
            self.graph.settle(turn.turn_id, one.seq)
        if late and not one.delivered:
            self.graph.mark_delivered(turn.turn_id, False)


def begins(text: list[int], head: list[int]) -> bool:
    return text[: len(head)] == head


def went_on(one: Served, served: list[Served]) -> bool:
    """A later call has all of it in its prompt."""
    return any(
        later.seq > one.seq and later.model == one.model and begins(later.prompt, one.full)
        for later in served
    )


def arrived(one: Served, served: list[Served]) -> bool:
    return one.delivered or went_on(one, served)


def superseded(one: Served, served: list[Served]) -> bool:
    return not went_on(one, served) and any(
        later.seq > one.seq
        and later.again
        and (later.retry_key, later.choice) == (one.retry_key, one.choice)
        and arrived(later, served)
        for later in served
    )


def should_train(one: Served, served: list[Served]) -> bool:
    sound = one.train and bool(one.sampled)
    if one.failed:
        return sound and went_on(one, served)
    return sound and arrived(one, served) and not superseded(one, served)


def check_exact(rows: list[Row], served: list[Served]) -> set[int]:
    """Ids trained are ids served, once; returns the turns that are trained."""
    seen: list[int] = []
    for row in rows:
        row.check()
        assert row.rollout_id == "r"
        assert row.turns, "a row that trains nothing"
        covered = np.zeros(row.n_tokens, bool)
        for span in row.turns:
            seq = int(span.turn_id.split("/")[1])
            one = served[seq]
            seen.append(seq)
            assert row.token_ids[: span.end].tolist() == one.full
            assert span.start == len(one.prompt)
            assert row.logprobs[span.start : span.end].tolist() == one.logprobs
            versions = {v for v, a, b in row.weight_versions if a < span.end and b > span.start}
            assert versions == {one.version}
            covered[span.start : span.end] = True
        assert covered.tolist() == (row.loss_mask == 1).tolist()
    assert len(seen) == len(set(seen)), "a turn is trained twice"
    return set(seen)


def check_numbers(rows: list[Row], seqs: set[int]) -> None:
    """Turn numbers count the trained turns in order, so per-turn rewards land on their turn."""
    number = {seq: i for i, seq in enumerate(sorted(seqs))}
    for row in rows:
        for span in row.turns:
            assert span.number == number[int(span.turn_id.split("/")[1])]
    if len(seqs) > 1:
        assign_rewards(rows, [float(i) for i in range(len(seqs))])
        for row in rows:
            assert row.turn_rewards == [float(span.number) for span in row.turns]
    count = sum(row.n_trained for row in rows)
    assert count == sum(row.loss_mask.sum() for row in rows)


def leaves(served: list[Served], trained: set[int]) -> list[int]:
    """Trained turns that no other trained turn was sampled on top of, in order."""
    return [
        seq
        for seq in sorted(trained)
        if not any(
            other > seq
            and served[other].model == served[seq].model
            and begins(served[other].prompt, served[seq].full)
            for other in trained
        )
    ]


@st.composite
def worlds(draw: st.DrawFn, vocab: int, with_messages: bool) -> World:
    world = World(draw, vocab, with_messages)
    for _ in range(draw(st.integers(1, 10))):
        world.step()
    return world


def same_rows(left: list[Row], right: list[Row]) -> None:
    assert len(left) == len(right)
    for mine, theirs in zip(left, right, strict=True):
        assert mine.turns == theirs.turns
        assert mine.token_ids.tobytes() == theirs.token_ids.tobytes()
        assert mine.logprobs.tobytes() == theirs.logprobs.tobytes()
        assert mine.weight_versions == theirs.weight_versions


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(vocab=UNIQUE, with_messages=False))
def test_rows_equal_the_reference_when_placed_by_ids(world: World) -> None:
    rows = world.graph.rows()
    trained = check_exact(rows, world.served)
    assert trained == {s.seq for s in world.served if should_train(s, world.served)}
    check_numbers(rows, trained)
    assert [int(row.turns[-1].turn_id.split("/")[1]) for row in rows] == leaves(
        world.served, trained
    )


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(vocab=UNIQUE, with_messages=True))
def test_rows_equal_the_reference_when_messages_are_known_too(world: World) -> None:
    rows = world.graph.rows()
    trained = check_exact(rows, world.served)
    assert trained == {s.seq for s in world.served if should_train(s, world.served)}
    check_numbers(rows, trained)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(vocab=2, with_messages=False))
def test_ids_that_coincide_by_accident_break_no_invariant(world: World) -> None:
    rows = world.graph.rows()
    trained = check_exact(rows, world.served)
    sure = {
        s.seq
        for s in world.served
        if should_train(s, world.served) and s.delivered and not s.again and not s.failed
    }
    retried = {(s.retry_key, s.choice) for s in world.served if s.again}
    sure = {n for n in sure if (world.served[n].retry_key, world.served[n].choice) not in retried}
    assert sure <= trained
    assert all(world.served[n].train for n in trained)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(worlds(vocab=50, with_messages=True))
def test_a_journal_of_the_turns_rebuilds_the_same_rows(world: World) -> None:
    turns = [
        msgspec.msgpack.decode(msgspec.msgpack.encode(turn), type=Turn)
        for turn in world.graph.turns()
    ]
    again = rebuild("s", turns, rollout_id="r")
    for one in world.served:
        again.mark_delivered(f"s/{one.seq}", one.delivered)
    same_rows(again.rows(), world.graph.rows())
    assert again.drift == world.graph.drift


@settings(max_examples=40, deadline=None, derandomize=True)
@given(worlds(vocab=50, with_messages=False))
def test_every_turn_has_the_ids_it_was_served_with(world: World) -> None:
    for one in world.served:
        assert world.graph.ids(f"s/{one.seq}").tolist() == one.full


@settings(max_examples=40, deadline=None, derandomize=True)
@given(worlds(vocab=UNIQUE, with_messages=False))
def test_no_sampled_token_is_lost_from_the_counts(world: World) -> None:
    count = world.graph.count()
    sampled = sum(len(one.sampled) for one in world.served)
    assert count.trained_tokens + sum(count.left_tokens.values()) == sampled
    assert count.trained_turns + sum(count.left_turns.values()) == count.turns
    assert count.trained_tokens == sum(row.n_trained for row in world.graph.rows())


def munge(world: World, message: dict[str, Any]) -> dict[str, Any]:
    """An assistant message as some client would send it back."""
    out = dict(message)
    if world.flip(2):
        out.pop("reasoning_content", None)
    if world.flip(2) and isinstance(out["content"], str):
        out["content"] = [{"type": "text", "text": out["content"]}]
    if world.flip(2):
        out = dict(reversed(out.items()))
    for call in out.get("tool_calls", ()):
        spaced = json.dumps(json.loads(call["function"]["arguments"]), indent=world.number(0, 2))
        call = call | {"id": "renamed", "function": {"arguments": spaced, "name": "f"}}
        out = out | {"tool_calls": [call]}
    return out


def said(seq: int, text: str) -> dict[str, Any]:
    arguments = json.dumps({"b": seq, "a": [text, 1.0]})
    call = {"id": f"c{seq}", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {
        "role": "assistant",
        "content": text,
        "reasoning_content": f"because {seq}",
        "tool_calls": [call],
    }


@st.composite
def trees(draw: st.DrawFn) -> tuple[World, dict[str, str]]:
    """A conversation tree, each point of it replayed as a client would; and what was expected."""
    world = World(draw, UNIQUE, True)
    histories: list[list[dict[str, Any]]] = [[{"role": "user", "content": "start"}]]
    expected: dict[str, str] = {}
    for seq in range(draw(st.integers(2, 10))):
        at = draw(st.integers(0, len(histories) - 1)) if seq else 0
        sent = [munge(world, m) if m["role"] == "assistant" else m for m in histories[at]]
        if at:
            sent.append({"role": "tool", "content": f"result {seq}"})
        as_bytes = draw(st.booleans())
        messages = [json.dumps(m).encode() for m in sent] if as_bytes else sent
        placement = world.graph.place(messages=messages)
        base = [] if placement.continues is None else world.graph.ids(placement.continues).tolist()
        placement = world.graph.pin(placement, [*base, 10**6 + seq])
        answer = said(seq, f"t{draw(st.integers(0, 3))}")
        turn = world.graph.make_turn(
            placement, sampled=[seq], logprobs=[-1.0], response=json.dumps(answer).encode()
        )
        world.graph.commit(turn)
        if at:
            expected[turn.turn_id] = f"s/{at - 1}"
        assert placement.continues == (f"s/{at - 1}" if at else None)
        assert placement.n_matched == (len(sent) - 1 if at else 0)
        histories.append([*sent, answer])
    return world, expected


@settings(max_examples=80, deadline=None, derandomize=True)
@given(trees())
def test_replayed_histories_continue_the_turn_they_came_from(
    made: tuple[World, dict[str, str]],
) -> None:
    world, expected = made
    for turn in world.graph.turns():
        if turn.fork is None and turn.turn_id in expected:
            assert turn.parent == expected[turn.turn_id]
    assert world.graph.drift.stitched == 0
    assert sum(row.n_trained for row in world.graph.rows()) == len(world.graph)
