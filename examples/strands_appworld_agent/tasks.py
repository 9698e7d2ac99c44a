"""The small world's tasks, drawn from a seed: a phone, what is asked, and what is right.

This file is not deployed (``.dockerignore``). A row takes the phone and the ground truth into the
session's memory; its files hold neither.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from apps import Phone

NAMES = ("Mia", "Leo", "Zoe", "Ada", "Tom", "Eva")
TITLES = ("Blue Door", "Blue Doors", "Night Bus", "Harbour", "Night Buses", "Paper Moon")
NOTES = ("cinema", "dinner", "loan", "loan", "rent")
PLAYLISTS = ("Run", "Sleep", "Work")
Data = dict[str, Any]
Right = tuple[str, Phone]
"""What is asked, and the phone after it was done."""
Make = Callable[[random.Random, Data], Right]


def rows(count: int = 4, seed: int = 1) -> Iterator[Data]:
    kinds = list(KINDS.items())
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        kind, make = kinds[number % len(kinds)]
        data, asked, right = drawn(draw, make)
        yield {
            "task_id": f"{kind}_{seed}_{number // len(kinds) + 1}",
            "instruction": asked,
            "phone": data,
            "ground_truth": {"answer": right.answer, "changed": changed(data, right.data)},
        }


def drawn(draw: random.Random, make: Make) -> tuple[Data, str, Phone]:
    """Draws until the answer has to be worked out: it is neither 0 nor one transaction's amount."""
    while True:
        data = phone(draw)
        asked, right = make(draw, data)
        if right.answer not in {0, *(t["amount"] for t in data["transactions"])}:
            return data, asked, right


def changed(before: Data, after: Data) -> Data:
    return {table: rows for table, rows in after.items() if rows != before[table]}


def phone(draw: random.Random) -> Data:
    contacts = {name: f"{name.lower()}{draw.randrange(100)}@mail" for name in draw.sample(NAMES, 3)}
    moved = [
        {"from": "me", "to": who} if draw.random() < 0.5 else {"from": who, "to": "me"}
        for who in draw.choices(list(contacts.values()), k=draw.randrange(9, 15))
    ]
    songs = dict(zip(map(str, draw.sample(range(100, 999), 6)), TITLES, strict=True))
    return {
        "passwords": {app: f"{draw.randrange(16**6):06x}" for app in ("wallet", "music")},
        "contacts": contacts,
        "balance": 2000,
        "transactions": [
            {"id": i, **one, "amount": draw.randrange(5, 90), "note": draw.choice(NOTES)}
            for i, one in enumerate(moved, 1)
        ],
        "songs": songs,
        "playlists": {name: draw.sample(list(songs), 2) for name in PLAYLISTS},
    }


def paid(draw: random.Random, data: Data) -> Right:
    name, right = draw.choice(list(data["contacts"])), Phone(data)
    sent = (t["amount"] for t in data["transactions"] if t["to"] == data["contacts"][name])
    right.supervisor_complete_task(answer=sum(sent))
    return f"How much have I paid to {name} in all?", right


def send(draw: random.Random, data: Data) -> Right:
    name, right, amount = draw.choice(list(data["contacts"])), Phone(data), draw.randrange(10, 50)
    _pay(right, data["contacts"][name], amount, "lunch")
    return f"Send {name} {amount} with the note 'lunch'.", right


def song(draw: random.Random, data: Data) -> Right:
    title, playlist, right = draw.choice(TITLES), draw.choice(PLAYLISTS), Phone(data)
    key = next(key for key, each in data["songs"].items() if each == title)
    right.data["playlists"][playlist].append(key)
    return f"Add '{title}' to my playlist '{playlist}'.", right


def loans(draw: random.Random, data: Data) -> Right:
    right = Phone(data)
    lent = [t for t in data["transactions"] if (t["to"], t["note"]) == ("me", "loan")]
    for one in lent:
        _pay(right, one["from"], one["amount"], "thanks")
    right.supervisor_complete_task(answer=sum(one["amount"] for one in lent))
    asked = "Pay every loan back that people sent me with the note 'loan', oldest first, the same "
    asked += "amount with the note 'thanks'. Then tell me how much that was in all."
    return asked, right


KINDS: dict[str, Make] = {
    "paid": paid,
    "send": send,
    "song": song,
    "loans": loans,
}


def _pay(right: Phone, to: str, amount: int, note: str) -> None:
    token = right.wallet_login(right.data["passwords"]["wallet"])
    right.wallet_send_money(token, to, amount, note)
