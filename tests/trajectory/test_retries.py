"""Calls that come again: which answer is theirs, and what a new one is called."""

from itertools import islice
from typing import Any

from agentcore_rl_toolkit.trajectory import SessionGraph


def ask(
    graph: SessionGraph, prompt: list[int], sampled: list[int], retry_key: str = "k", **fields: Any
) -> None:
    placement = graph.place(prompt_ids=prompt, retry_key=retry_key)
    logprobs = [-1.0] * len(sampled)
    graph.commit(graph.make_turn(placement, sampled=sampled, logprobs=logprobs, **fields))


def free(graph: SessionGraph, count: int) -> list[str]:
    return list(islice(graph.retries.free("q"), count))


def test_asking_twice_makes_two_calls() -> None:
    graph = SessionGraph("s")
    assert free(graph, 2) == ["q/0", "q/1"]
    ask(graph, [1], [2], retry_key="q/0")
    ask(graph, [1], [3], retry_key="q/1")
    ask(graph, [1], [4], retry_key="other/0")
    assert free(graph, 1) == ["q/2"]


def test_a_call_that_failed_gives_its_name_to_the_next() -> None:
    graph = SessionGraph("s")
    ask(graph, [1], [2], retry_key="q/0")
    ask(graph, [1], [], retry_key="q/1", error="the engine died")
    ask(graph, [1], [4], retry_key="q/2")
    assert free(graph, 2) == ["q/1", "q/3"]
    ask(graph, [1], [5], retry_key="q/1")
    assert free(graph, 1) == ["q/3"]


def test_an_answer_that_did_not_arrive_is_found_whoever_asks() -> None:
    graph = SessionGraph("s")
    for number in range(4):
        ask(graph, [1], [number], retry_key=f"q/{number}", delivered=number not in (1, 2))
    assert graph.retries.answered("q", arrived=False) == "q/2"
    assert graph.retries.answered("q", arrived=True) == "q/3"
    graph.mark_delivered("s/2", True)
    assert graph.retries.answered("q", arrived=False) == "q/1"
    ask(graph, [1, 1, 9], [8])  # goes on from it, so it did arrive
    assert graph.retries.answered("q", arrived=False) is None
    graph.mark_delivered("s/3", False)
    assert graph.retries.answered("q", arrived=False) == "q/3"


def test_what_failed_answers_nobody() -> None:
    graph = SessionGraph("s")
    assert graph.retries.answered("q", arrived=True) is None
    ask(graph, [1], [2], retry_key="q/0")
    ask(graph, [1], [], retry_key="q/1", error="cut", delivered=False)
    assert graph.retries.answered("q", arrived=True) == "q/0"
    assert graph.retries.answered("q", arrived=False) is None
