"""Plays both parts: the customer of a task, and an agent that serves the customer rightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import make_data
from customer import DONE
from tasks import TASKS

Turn = tuple[str, list[tuple[str, dict[str, Any]]]]


def call(name: str, **arguments: Any) -> Turn:
    return "", [(name, arguments)]


def say(text: str) -> Turn:
    return text, []


CUSTOMERS = {
    "change-to-cheapest": [
        "I am anna_k. Can R7KQ be moved to 3 March, please?",
        "Yes. My balance?",
    ],
    "basic-fare-refused": ["ben_o here: move B2XW to 3 March.", "I insist!"],
    "voucher-for-three": ["chi_l: you cancelled my flight, C9TD. What do I get?"],
    "insured-cancellation": ["I am dora_m, please cancel D4MN. What do I get back?"],
    "as-many-bags-as-affordable": ["ben_o again: put all the bags I can pay for on B2XW."],
    "only-a-question": ["anna_k: what is the dearest flight OSL-LIS on 3 March?"],
}
"""What the customer of each task says, one message after the other."""

AGENTS: dict[str, list[Turn]] = {
    "change-to-cheapest": [
        call("get_reservation", reservation_id="R7KQ"),
        call("search_flights", origin="OSL", destination="LIS", date="2026-03-03"),
        say("GL105 is the cheapest on 2026-03-03. Shall I change to it?"),
        call("change_flight", reservation_id="R7KQ", flight="GL105"),
        call("get_customer", customer_id="anna_k"),
        call("put_on_record", customer_id="anna_k", amount=225),
        say("Amount: 225"),
    ],
    "basic-fare-refused": [
        call("get_reservation", reservation_id="B2XW"),
        say("Refused: basic fare"),
        call("transfer_to_human", customer_id="ben_o"),
        say("A colleague will call you."),
    ],
    "voucher-for-three": [
        call("get_reservation", reservation_id="C9TD"),
        call("get_flight", flight="GL220"),
        call("give_voucher", customer_id="chi_l", amount=150),
        call("put_on_record", customer_id="chi_l", amount=150),
        say("Amount: 150"),
    ],
    "insured-cancellation": [
        call("get_reservation", reservation_id="D4MN"),
        call("get_flight", flight="GL103"),
        call("cancel_reservation", reservation_id="D4MN"),
        call("put_on_record", customer_id="dora_m", amount=300),
        say("Amount: 300"),
    ],
    "as-many-bags-as-affordable": [
        call("get_customer", customer_id="ben_o"),
        call("add_bags", reservation_id="B2XW", bags=1),
        call("put_on_record", customer_id="ben_o", amount=15),
        say("Amount: 15"),
    ],
    "only-a-question": [
        call("search_flights", origin="OSL", destination="LIS", date="2026-03-03"),
        call("put_on_record", customer_id="anna_k", amount=150),
        say("Amount: 150"),
    ],
}


def tasks() -> Iterator[dict[str, Any]]:
    return make_data.rows()


def label(task: dict[str, Any]) -> str:
    return str(task["id"])


def reply(request: dict[str, Any]) -> Turn:
    messages = request["messages"]
    if request["model"] == "user":
        return customer(messages)
    first = text(next(m for m in messages if m["role"] == "user"))
    task = next(name for name, lines in CUSTOMERS.items() if lines[0] in first)
    spoken: int = sum(m["role"] == "assistant" for m in messages)
    return AGENTS[task][spoken]


def customer(messages: list[dict[str, Any]]) -> Turn:
    task = next(t["id"] for t in TASKS if t["instruction"] in text(messages[0]))
    spoken = sum(m["role"] == "assistant" for m in messages)
    lines = CUSTOMERS[task]
    return say(lines[spoken] if spoken < len(lines) else DONE)


def text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
