"""Where requests are placed: forks by kind, drift, retries, and rows that come of them."""

import array
import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_rl_toolkit.errors import ContractError
from agentcore_rl_toolkit.trajectory import (
    Drift,
    ForkKind,
    Placement,
    RowStatus,
    SessionGraph,
    Turn,
    rebuild,
)

SYSTEM = {"role": "system", "content": "You are a calculator."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def ask(
    graph: SessionGraph,
    prompt_ids: Sequence[int],
    sampled: Sequence[int],
    messages: list[dict[str, Any]] | None = None,
    said: dict[str, Any] | None = None,
    **fields: Any,
) -> tuple[Placement, Turn]:
    """One model call from end to end; the response is the message the client was sent."""
    place = {k: fields.pop(k) for k in ("retry_key", "choice", "tools", "model") if k in fields}
    placement = graph.place(messages=messages, prompt_ids=list(prompt_ids), **place)
    turn = graph.make_turn(
        placement,
        sampled=list(sampled),
        logprobs=[-1.0 - i for i in range(len(sampled))],
        response=json.dumps(said).encode() if said else b"",
        **fields,
    )
    graph.commit(turn)
    return placement, turn


def trained(graph: SessionGraph) -> list[list[int]]:
    return [row.token_ids[row.loss_mask == 1].tolist() for row in graph.rows()]


def test_a_session_that_only_goes_on_is_one_row_with_every_sampled_token() -> None:
    graph = SessionGraph("s", rollout_id="r", group_id="g")
    ask(graph, [1, 2, 3], [10, 11], versions=[("7", 0, 2)])
    placement, _ = ask(graph, [1, 2, 3, 10, 11, 4], [12], versions=[("7", 0, 1)])
    assert placement.drift is Drift.CLEAN
    assert placement.shared == 5
    (row,) = graph.rows({"task": 3})
    assert row.token_ids.tolist() == [1, 2, 3, 10, 11, 4, 12]
    assert row.loss_mask.tolist() == [0, 0, 0, 1, 1, 0, 1]
    assert row.logprobs.tolist() == [0, 0, 0, -1, -2, 0, -1]
    assert row.turn_index.tolist() == [-1, -1, -1, 0, 0, -1, 1]
    assert row.weight_versions == [("7", 3, 5), ("7", 6, 7)]
    assert (row.rollout_id, row.group_id, row.metadata["task"]) == ("r", "g", 3)
    assert row.prompt_length == 3


def test_a_prompt_is_stored_as_the_delta_to_its_parent() -> None:
    graph = SessionGraph("s")
    ask(graph, range(1000), [1, 2])
    _, turn = ask(graph, [*range(1000), 1, 2, 5], [6])
    assert (turn.prompt_shared, turn.delta_ids().tolist()) == (1002, [5])
    assert graph.ids(turn.turn_id).tolist() == [*range(1000), 1, 2, 5, 6]


def test_a_client_that_drops_reasoning_continues_its_own_turn() -> None:
    graph = SessionGraph("s")
    sent = answer("4", reasoning_content="2 + 2 is 4")
    _, first = ask(graph, [1, 2], [3, 4], [SYSTEM, user("2+2?")], sent)
    history = [SYSTEM, user("2+2?"), answer("4"), user("and 3+3?")]
    placement = graph.place(messages=history)
    assert (placement.fork, placement.continues) == (None, first.turn_id)
    assert placement.n_matched == 3
    assert graph.ids(first.turn_id).tolist() == [1, 2, 3, 4]


def test_re_tokenised_history_forks_and_gives_up_no_sampled_token() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [30, 31], [user("a")], answer("b"))
    history = [user("a"), answer("b"), user("c")]
    placement, _ = ask(graph, [1, 2, 99, 5], [6], history, answer("d"))
    assert (placement.fork, placement.drift) == (ForkKind.DRIFT, Drift.STITCHED)
    assert (placement.shared, placement.lost) == (2, 2)
    assert trained(graph) == [[30, 31], [6]]
    assert (graph.drift.stitched, graph.drift.stitched_tokens) == (1, 2)


def test_drift_behind_an_exact_ancestor_is_still_drift() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], [user("a")], answer("b"))
    history = [user("a"), answer("b"), user("c")]
    ask(graph, [1, 2, 3], [4, 5], history, answer("d"))
    placement, _ = ask(graph, [1, 2, 3, 9, 6], [7], [*history, answer("d"), user("e")])
    assert (placement.fork, placement.shared, placement.lost) == (ForkKind.DRIFT, 3, 2)
    assert trained(graph) == [[2, 4, 5], [7]]


def test_drift_alarms_when_it_is_usual() -> None:
    graph = SessionGraph("s")
    history: list[dict[str, Any]] = [user("0")]
    ids = [0]
    for i in range(6):
        ask(graph, ids, [100 + i], history, answer(f"a{i}"))
        history += [answer(f"a{i}"), user(f"u{i}")]
        ids = [*ids, 500 + i, 7]  # never what was sampled
    assert "other ids than" in str(graph.drift.alarm())
    assert SessionGraph("t").drift.alarm() is None


def test_a_sub_agent_has_a_root_of_its_own() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2, 3], [4], [SYSTEM, user("a")], answer("b"))
    other = {"role": "system", "content": "You search."}
    placement, _ = ask(graph, [1, 8, 9], [10], [other, user("find")], answer("x"))
    assert placement.fork is ForkKind.SUBAGENT
    tools = [{"type": "function", "function": {"name": "f"}}]
    placement = graph.place(messages=[SYSTEM, user("a")], tools=tools)
    assert placement.fork is ForkKind.SUBAGENT
    # and the first conversation goes on where it was
    history = [SYSTEM, user("a"), answer("b"), user("c")]
    placement, _ = ask(graph, [1, 2, 3, 4, 5], [6], history, answer("d"))
    assert placement.fork is None
    assert [row.token_ids.tolist() for row in graph.rows()] == [[1, 8, 9, 10], [1, 2, 3, 4, 5, 6]]


def test_history_replaced_by_a_shorter_one_is_compaction() -> None:
    graph = SessionGraph("s")
    history = [SYSTEM, user("a")]
    ids = [1, 2]
    for i in range(3):
        ask(graph, ids, [50 + i], history, answer(f"a{i}"))
        history += [answer(f"a{i}"), user(f"u{i}")]
        ids += [50 + i, 9]
    placement, _ = ask(graph, [1, 77], [78], [SYSTEM, user("so far: …")], answer("z"))
    assert (placement.fork, placement.drift) == (ForkKind.COMPACTION, Drift.FORKED)
    assert trained(graph) == [[50, 51, 52], [78]]


def test_an_edited_history_is_a_rewrite_and_the_shared_part_is_trained_once() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], [user("a")], answer("b"))
    ask(graph, [1, 2, 3], [4], [user("a"), answer("b"), user("c")], answer("d"))
    history = [user("a"), answer("b"), user("changed")]
    placement, _ = ask(graph, [1, 2, 5], [6], history, answer("e"))
    assert placement.fork is ForkKind.REWRITE
    edited = [user("a"), answer("edited"), user("c"), answer("d"), user("f")]
    placement, _ = ask(graph, [1, 9, 3, 4, 8], [7], edited, answer("g"))
    assert placement.fork is ForkKind.REWRITE
    first, second, third = graph.rows()
    assert first.loss_mask.tolist() == [0, 1, 0, 1]
    assert second.loss_mask.tolist() == [0, 0, 0, 1]
    assert third.loss_mask.tolist() == [0, 0, 0, 0, 0, 1]
    assert second.metadata["fork"] == "rewrite"


def test_a_retry_after_a_disconnect_is_sampled_again_and_trained_once() -> None:
    graph = SessionGraph("s")
    _, lost = ask(graph, [1, 2], [3], [user("a")], answer("b"), retry_key="k", delivered=False)
    placement, again = ask(graph, [1, 2], [4], [user("a")], answer("c"), retry_key="k")
    assert (placement.fork, placement.retry_of) == (ForkKind.RETRY, lost.turn_id)
    assert again.prompt_delta == b""
    assert trained(graph) == [[4]]
    assert graph.count().left_turns == {"undelivered": 1}


def test_a_turn_whose_answer_was_superseded_by_a_retry_is_not_trained() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [3], [user("a")], answer("b"), retry_key="k")
    ask(graph, [1, 2], [4], [user("a")], answer("c"), retry_key="k")
    ask(graph, [1, 2, 4, 5], [6], [user("a"), answer("c"), user("d")], answer("e"))
    assert trained(graph) == [[4, 6]]
    count = graph.count()
    assert (count.left_turns, count.left_tokens) == ({"superseded": 1}, {"superseded": 1})


def test_of_two_equal_answers_the_one_that_arrived_goes_on() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [3], retry_key="k", delivered=True)
    ask(graph, [1, 2], [3], retry_key="k", delivered=False)
    placement, _ = ask(graph, [1, 2, 3, 4], [5])
    assert placement.parent == "s/0"
    assert graph.count().left_turns == {"undelivered": 1}


def test_a_replayed_answer_was_delivered_whatever_the_connection_said() -> None:
    graph = SessionGraph("s")
    _, first = ask(graph, [1, 2], [3], [user("a")], answer("b"))
    graph.mark_delivered(first.turn_id, False)
    assert graph.rows() == []
    ask(graph, [1, 2, 3, 4], [5], [user("a"), answer("b"), user("c")], answer("d"))
    assert trained(graph) == [[3, 5]]


def test_choices_share_their_prompt_and_each_is_trained_in_a_row_of_its_own() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [3], [user("a")], answer("b"))
    placement, _ = ask(graph, [1, 2], [4, 5], [user("a")], answer("c"), choice=1)
    assert placement.fork is ForkKind.CHOICE
    assert placement.shared == 2
    assert trained(graph) == [[3], [4, 5]]


def test_ids_are_shared_with_the_branch_that_has_most_of_them() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [3])
    ask(graph, [1, 2], [4, 5], choice=1)
    placement = graph.place(prompt_ids=[1, 2, 4, 9])
    assert (placement.parent, placement.shared) == ("s/1", 3)


def test_the_choice_that_the_agent_kept_goes_on() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], [user("a")], answer("x", reasoning="one"))
    ask(graph, [1], [3], [user("a")], answer("x", reasoning="two"), choice=1)
    history = [user("a"), answer("x", reasoning="one"), user("c")]
    assert graph.place(messages=history).continues == "s/0"


def test_turns_of_an_untrained_model_are_recorded_and_give_no_rows() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [3], [user("a")], answer("b"), model="policy")
    placement = graph.place(model="judge", messages=[user("rate: b")])
    turn = graph.make_turn(placement, train=False, response=b'{"content": "good"}')
    graph.commit(turn)
    ask(graph, [1, 2], [9], [user("a")], answer("b"), model="judge", train=False)
    assert trained(graph) == [[3]]
    assert graph.count().left_turns == {"untrained_model": 2}


def test_turns_that_failed_are_recorded_and_not_trained() -> None:
    graph = SessionGraph("s")
    placement = graph.place(messages=[user("a")], prompt_ids=[1, 2])
    turn = graph.make_turn(
        placement, sampled=[5], error="engine closed the stream", delivered=False
    )
    graph.commit(turn)
    assert graph.rows() == []
    assert graph.count().left_turns == {"failed": 1}


def test_a_broken_answer_that_the_agent_built_on_is_trained() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2], [3], error="engine closed the stream", delivered=False)
    ask(graph, [1, 2, 3, 4], [5])
    assert trained(graph) == [[3, 5]]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", RowStatus.COMPLETED),
        ("tool_calls", RowStatus.COMPLETED),
        ("length", RowStatus.TRUNCATED),
        ("abort", RowStatus.ABORTED),
    ],
)
def test_status_follows_the_last_turn(reason: str, status: RowStatus) -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], finish_reason="length")
    ask(graph, [1, 2, 3], [4], finish_reason=reason)
    assert graph.rows()[0].status is status


def test_without_messages_kinds_are_told_by_ids() -> None:
    graph = SessionGraph("s")
    ask(graph, [1, 2, 3], [4, 5])
    ask(graph, [1, 2, 3, 4, 5, 6], [7, 8])
    kinds = [
        graph.place(prompt_ids=ids).fork
        for ids in (
            [1, 2, 3, 4, 5, 6, 7, 8, 9],
            [1, 2, 3, 4, 5, 6],
            [1, 2, 3, 4, 5, 9],
            [1, 2, 3, 4, 9],
            [1, 2, 3, 4, 9, 9, 9, 9, 9, 9],
            [7, 7],
        )
    ]
    assert kinds == [
        None,
        ForkKind.CHOICE,
        ForkKind.REWRITE,
        ForkKind.COMPACTION,
        ForkKind.REWRITE,
        ForkKind.SUBAGENT,
    ]


def test_two_calls_in_flight_from_one_point_both_keep_their_tokens() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2])
    left, right = graph.place(prompt_ids=[1, 2, 3]), graph.place(prompt_ids=[1, 2, 4])
    for placement, sampled in ((left, [5]), (right, [6])):
        graph.commit(graph.make_turn(placement, sampled=sampled, logprobs=[-1.0]))
    rows = graph.rows()
    assert [row.token_ids.tolist() for row in rows] == [[1, 2, 3, 5], [1, 2, 4, 6]]
    assert [row.loss_mask.tolist() for row in rows] == [[0, 1, 0, 1], [0, 0, 0, 1]]


def test_a_trained_turn_without_prompt_ids_is_refused() -> None:
    graph = SessionGraph("s")
    with pytest.raises(ContractError, match="prompt ids"):
        graph.make_turn(graph.place(messages=[user("a")]), sampled=[1], logprobs=[-1.0])
    with pytest.raises(ContractError, match="at least one id"):
        graph.place(prompt_ids=[])


def test_routed_experts_stay_bytes_on_their_turn() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], routed_experts=b"\x00\x01")
    ask(graph, [1, 2, 3], [4], routed_experts=b"\x02")
    assert graph.rows()[0].routed_experts == [(0, 2, b"\x00\x01"), (2, 4, b"\x02")]


def test_a_graph_rebuilt_from_its_turns_places_and_trains_the_same() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], [user("a")], answer("b"), retry_key="k")
    ask(graph, [1, 2, 3], [4], [user("a"), answer("b"), user("c")], answer("d"))
    ask(graph, [1, 2, 5], [6], [user("a"), answer("b"), user("e")], answer("f"))
    frames = [msgspec.msgpack.encode(turn) for turn in graph.turns()]
    again = rebuild("s", [msgspec.msgpack.decode(frame, type=Turn) for frame in frames])
    history = [user("a"), answer("b"), user("e"), answer("f"), user("g")]
    assert again.place(messages=history) == graph.place(messages=history)
    assert again.place(messages=[user("a")], retry_key="k").retry_of == "s/0"
    for mine, theirs in zip(again.rows(), graph.rows(), strict=True):
        assert mine.token_ids.tolist() == theirs.token_ids.tolist()
        assert mine.loss_mask.tolist() == theirs.loss_mask.tolist()


def test_a_turn_that_was_not_journalled_is_taken_back_with_what_hangs_on_it() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], [user("a")], answer("b"), retry_key="k")
    history = [user("a"), answer("b"), user("c")]
    ask(graph, [1, 2, 3], [4], history, answer("d"), retry_key="l", delivered=False)
    ask(graph, [1, 2, 3], [5], history, answer("e"), choice=1)
    assert graph.retract("s/1") == ["s/1", "s/2"]
    assert graph.retract("s/1") == []
    assert trained(graph) == [[2]]
    assert graph.find_retry("l") is None
    placement, turn = ask(graph, [1, 2, 3], [6], history, answer("f"), retry_key="l")
    assert (placement.fork, placement.parent, turn.seq) == (None, "s/0", 3)
    assert trained(graph) == [[2, 6]]
    assert graph.drift.clean == 1


def test_a_long_session_is_small_in_memory() -> None:
    import tracemalloc

    rng = np.random.default_rng(0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    graph = SessionGraph("s")
    ids = np.zeros(0, np.int32)
    messages: list[bytes] = []
    for i in range(50):
        ids = np.concatenate([ids, rng.integers(0, 150_000, 500, dtype=np.int32)])
        messages.append(json.dumps(user(f"{i} " + "word " * 500)).encode())
        said = json.dumps(answer(f"answer {i} " * 20)).encode()
        placement = graph.place(messages=messages, prompt_ids=ids)
        sampled = rng.integers(0, 150_000, 155, dtype=np.int32)
        fields = {"response": said, "request": b"".join(messages)}
        turn = graph.make_turn(placement, sampled=sampled, logprobs=np.full(155, -1.0), **fields)
        graph.commit(turn)
        messages.append(said)
        ids = np.concatenate([ids, sampled])
    del messages, turn, placement, fields, said
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert ids.size > 32_000
    assert used < 2_000_000


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ids were compared in finding a parent: the work is counted, not timed."""
    from agentcore_rl_toolkit.trajectory.strand import Prompt, TokenStore

    lengths: list[int] = []
    begins = TokenStore.begins

    def counting(self: TokenStore, slot: int, length: int, prompt: Prompt) -> bool:
        lengths.append(length)
        return begins(self, slot, length, prompt)

    monkeypatch.setattr(TokenStore, "begins", counting)
    return lengths


def test_lookups_do_not_read_the_prompt_once_for_each_turn(compared: list[int]) -> None:
    rng = random.Random(0)
    graph = SessionGraph("s")
    ids = [rng.randrange(1000) for _ in range(10)]
    for _ in range(128):
        ask(graph, ids, [rng.randrange(1000) for _ in range(5)])
        ids = [*graph.ids(f"s/{len(graph) - 1}").tolist(), *(rng.randrange(1000) for _ in range(5))]
    compared.clear()
    graph.place(prompt_ids=ids)
    assert sum(compared) <= len(ids)


def test_what_is_asked_again_and_again_costs_no_more_than_the_first_time(
    compared: list[int],
) -> None:
    graph = SessionGraph("s")
    prompt, history = list(range(20)), [user("a"), answer("b"), user("c")]
    for _ in range(100):
        ask(graph, prompt, [20, 21], [user("a")], answer("b"))
    ask(graph, [*prompt, 20, 21, 22], [23], history, answer("d"))
    compared.clear()
    assert graph.place(prompt_ids=prompt, messages=[user("a")]).parent == "s/99"
    assert graph.place(prompt_ids=[*prompt, 20, 21, 30]).parent == "s/99"
    assert len(compared) <= 2


@given(seed=st.integers(0, 10_000))
def test_a_prompt_known_to_begin_as_a_turn_hangs_where_its_ids_do(seed: int) -> None:
    rng = random.Random(seed)
    graph, prompts = SessionGraph("s"), [[1, 2, 3]]
    for turn in range(12):
        ask(graph, rng.choice(prompts), [rng.randrange(3) for _ in range(rng.randrange(1, 4))])
        ids = graph.ids(f"s/{turn}").tolist()
        cut = ids[: rng.randrange(1, len(ids) + 1)] if rng.random() < 0.3 else ids
        prompts.append([*cut, *(rng.randrange(3) for _ in range(rng.randrange(3)))])
    for prompt in prompts:
        whole = graph.place(prompt_ids=prompt)
        for head in graph.heads():
            n_known = head.n_prompt
            if graph.ids(head.turn_id).tolist()[:n_known] == prompt[:n_known]:
                more = array.array("i", prompt[n_known:]).tobytes()
                assert graph.place(prompt_ids=graph.prompt(head.turn_id, n_known, more)) == whole


def test_a_settled_turn_is_read_back_from_where_it_was_written() -> None:
    graph, journal = SessionGraph("s"), {}
    graph.load = journal.__getitem__
    history = [user("a"), answer("b"), user("c")]
    _, first = ask(graph, [1], [2], [user("a")], answer("b"), retry_key="k")
    ask(graph, [1, 2, 3], [4, 5], history, answer("d"), routed_experts=b"x")
    before = graph.rows()
    assert graph.places() is None
    for place, turn in enumerate(graph.turns()):
        journal[place] = turn
        graph.settle(turn.turn_id, place)
    assert graph.places() == [0, 1]
    assert graph.turn("s/0") is journal[0]
    assert graph.head("s/0").n_sampled == first.n_sampled
    (mine,), (theirs,) = graph.rows(), before
    assert mine.logprobs.tolist() == theirs.logprobs.tolist()
    assert mine.routed_experts == theirs.routed_experts == [(2, 5, b"x")]
    journal.clear()
    assert graph.place(messages=[*history, answer("d"), user("e")]).continues == "s/1"
    with pytest.raises(KeyError):
        graph.rows()


def test_settled_turns_leave_only_ids_in_memory() -> None:
    import tracemalloc

    rng = np.random.default_rng(0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    graph = SessionGraph("s")
    for i in range(200):
        sampled = rng.integers(0, 150_000, 256, dtype=np.int32)
        said = json.dumps(answer("word " * 256)).encode()
        placement = graph.place(prompt_ids=[1, 2, i], retry_key=str(i))
        turn = graph.make_turn(placement, sampled=sampled, logprobs=[-1.0] * 256, response=said)
        graph.commit(turn)
        graph.settle(turn.turn_id, i)
    del sampled, said, placement, turn
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used < 200 * 2_600, "1 kB of ids, and the head of a turn"
