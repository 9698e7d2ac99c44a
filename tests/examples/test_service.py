"""The customer service example: two models behind one gateway, of which one is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore_rl_toolkit import RolloutClient
from agentcore_rl_toolkit.gateway import GatewaySettings, ModelSpec
from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.gateway.thread import GatewayThread

from .conftest import EXAMPLES, EngineThread, FakeScript, Say, trained

FOLDER = EXAMPLES / "customer_service_agent"


class Example:
    def __init__(self, runner: ModuleType) -> None:
        names = ("oracle", "reward", "tasks", "world")
        self.oracle, self.reward, self.tasks, self.world = runner.load(FOLDER, *names)

    def play(self, task: dict[str, Any], turns: list[Any]) -> float:
        """The reward of a script of texts and tool calls."""
        airline = self.world.Airline()
        tools: dict[str, Callable[..., str]] = {t.__name__: t for t in airline.tools()}
        for _, calls in turns:
            for name, arguments in calls:
                try:
                    tools[name](**arguments)
                except (KeyError, ValueError, TypeError):
                    pass  # Strands tells the model; the conversation goes on
        said = [text for text, _ in turns if text]
        return float(self.reward.ServiceReward()(airline=airline, said=said, **task))


@pytest.fixture(scope="module")
def example(runner: ModuleType) -> Example:
    return Example(runner)


def test_the_oracle_serves_every_customer(example: Example) -> None:
    tasks = example.tasks.TASKS
    assert [example.play(t, example.oracle.AGENTS[t["id"]]) for t in tasks] == [1.0] * len(tasks)


def test_doing_nothing_is_worth_nothing(example: Example) -> None:
    for turns in ([], [("Hello.", [])]):
        assert [example.play(t, turns) for t in example.tasks.TASKS] == [0.0] * 6


def record(customer: str, *amounts: int) -> list[Any]:
    return [("put_on_record", {"customer_id": customer, "amount": each}) for each in amounts]


def bags(*numbers: int) -> list[Any]:
    return [("add_bags", {"reservation_id": "B2XW", "bags": each}) for each in numbers]


def change(reservation: str, *flights: str) -> list[Any]:
    return [("change_flight", {"reservation_id": reservation, "flight": f}) for f in flights]


def voucher(*amounts: int) -> list[Any]:
    return [("give_voucher", {"customer_id": "chi_l", "amount": each}) for each in amounts]


HANDED_OVER = [("transfer_to_human", {"customer_id": "ben_o"})]
RIGHT: dict[str, tuple[list[Any], str]] = {
    "only-a-question": (record("anna_k", 150), "Amount: 150"),
    "change-to-cheapest": ([*change("R7KQ", "GL105"), *record("anna_k", 225)], "Amount: 225"),
    "voucher-for-three": ([*voucher(150), *record("chi_l", 150)], "Amount: 150"),
    "basic-fare-refused": (HANDED_OVER, "Refused: basic fare"),
}
WORDS = {
    "an-answer-in-other-words": ("only-a-question", ["It is 150."]),
    "every-answer-at-once": ("only-a-question", ["Amount: 95 120 150 180 200"]),
    "a-price-that-denies-its-number": (
        "only-a-question",
        ["It is certainly not 150; it costs 999."],
    ),
    "a-denial-beside-the-answer": ("only-a-question", ["It costs 999.", "Amount: 150"]),
    "a-denial-with-its-unit": ("only-a-question", ["It costs 999kr.", "Amount: 150"]),
    "a-denial-behind-its-unit": ("only-a-question", ["It costs EUR999.", "Amount: 150"]),
    "a-denial-in-the-answer": ("only-a-question", ["Amount: 150 is wrong"]),
    "a-denial-around-the-answer": ("only-a-question", ["You pay nothing.\nAmount: 150"]),
    "one-guess-a-message": ("only-a-question", ["Amount: 95", "Amount: 120", "Amount: 150"]),
    "a-number-inside-a-flight-s-name": ("only-a-question", ["Amount: GL150"]),
    "all-numbers-there-are": (
        "change-to-cheapest",
        ["95 120 150 180 200 215 225 230 245 255 275 350"],
    ),
    "a-voucher-that-is-denied": (
        "voucher-for-three",
        ["You get nothing at all. Goodbye, 150 times."],
    ),
    "a-rude-word-for-a-refusal": ("basic-fare-refused", ["Go away."]),
    "every-refusal-at-once": (
        "basic-fare-refused",
        ["Refused: no insurance", "Refused: too many bags", "Refused: basic fare"],
    ),
    "nothing-said": ("basic-fare-refused", []),
}
"""Texts beside the right actions."""


@pytest.mark.parametrize("cheat", WORDS)
def test_the_right_actions_with_other_words_are_worth_nothing(example: Example, cheat: str) -> None:
    name, said = WORDS[cheat]
    actions, right = RIGHT[name]
    task = next(t for t in example.tasks.TASKS if t["id"] == name)
    done = [("", [*task["looks"], *actions])]
    assert example.play(task, [*done, *((text, []) for text in said)]) == 0.0
    hello = "Hello. GL105 of 2026-03-03, for 2 passengers?"
    assert example.play(task, [*done, (hello, []), (right, [])]) == 1.0


@pytest.mark.parametrize("name", RIGHT)
def test_acting_before_looking_is_worth_nothing(example: Example, name: str) -> None:
    task = next(t for t in example.tasks.TASKS if t["id"] == name)
    actions, right = RIGHT[name]
    assert example.play(task, [(right, actions)]) == 0.0
    assert example.play(task, [(right, [*actions, *task["looks"]])]) == 0.0


CHEATS: dict[str, tuple[str, list[Any]]] = {
    "an-answer-that-is-not-on-record": ("only-a-question", [("Amount: 150", [])]),
    "several-records": (
        "only-a-question",
        [("Amount: 150", record("anna_k", 95, 120, 150))],
    ),
    "an-answer-without-its-action": (
        "insured-cancellation",
        [("Amount: 300", record("dora_m", 300))],
    ),
    "flights-tried-until-one-fits": (
        "change-to-cheapest",
        [("Amount: 225", [*change("R7KQ", "GL103", "GL105"), *record("anna_k", 225)])],
    ),
    "bags-tried-until-the-balance-suffices": (
        "as-many-bags-as-affordable",
        [("Amount: 15", [*bags(3, 2, 1), *record("ben_o", 15)])],
    ),
    "a-forbidden-wish-granted": (
        "basic-fare-refused",
        [("Refused: basic fare", change("B2XW", "GL105"))],
    ),
    "a-forbidden-wish-granted-and-taken-back": (
        "basic-fare-refused",
        [("Hm.", change("B2XW", "GL105", "GL101")), ("Refused: basic fare", HANDED_OVER)],
    ),
    "a-gift-on-top": (
        "voucher-for-three",
        [("Amount: 150", [*voucher(150, 50), *record("chi_l", 150)])],
    ),
    "the-conversation-ended-by-the-agent": (
        "change-to-cheapest",
        [("###DONE###", []), ("Amount: 225", [])],
    ),
    "tools-that-reach-for-the-database": (
        "insured-cancellation",
        [
            ("", [("get_customer", {"customer_id": "__class__"}), ("_pay", {}), ("data", {})]),
            ("Amount: 300", record("dora_m", 300)),
        ],
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_stays_below_one(example: Example, cheat: str) -> None:
    name, turns = CHEATS[cheat]
    task = next(t for t in example.tasks.TASKS if t["id"] == name)
    assert example.play(task, [("", task["looks"]), *turns]) == 0.0


def test_conversations_share_no_database(example: Example) -> None:
    example.world.Airline().cancel_reservation(reservation_id="D4MN")
    assert (
        json.loads(example.world.Airline().get_reservation(reservation_id="D4MN"))["state"]
        == "booked"
    )


def test_only_the_agent_s_tokens_are_trained(
    example: Example, runner: ModuleType, tmp_path: Path
) -> None:
    def say(body: dict[str, Any], _: int) -> Say:
        text, calls = example.oracle.reply(body)
        return Say(text, list(calls))

    agent, customer = (FakeScript(say) for _ in range(2))
    settings = GatewaySettings(run_dir=tmp_path / "run", fsync=False)
    with EngineThread(agent, customer), runner.deployed(FOLDER.name) as (url, arn):
        models = [
            ModelSpec.parse(f"policy=vllm:{agent.url}#tiny"),
            ModelSpec.parse(f"user!=vllm:{customer.url}#user"),
        ]
        with GatewayThread(models, settings) as gateway:
            opened = gateway.call(gateway.gateway.open_session(OpenSession()))
            with RolloutClient(
                arn, "rollouts", "x", base_url=opened.base_url, model_id="policy", endpoint_url=url
            ) as client:
                (item,) = client.run_batch([next(example.oracle.tasks())], 1, timeout=200)
            assert item.error is None
            assert item.result["rewards"] == 1.0
            finished = gateway.call(gateway.gateway.finish_session(opened.session_id))
    assert trained(finished) == ["".join(agent.said)]
    assert len(customer.said) == 3
    assert finished.count.turns == len(agent.said) + len(customer.said)
    assert finished.count.trained_turns == len(agent.said)
