"""The tasks, in tau-bench's shape: what the customer wants, the actions and answers that are right.

``looks`` must have been looked up before anything was done. ``actions`` are the calls of tools that
change something, all of them; the database that they leave is the one to reach. ``outputs`` are
the messages of the form that the airline's rules give, all of them. They stay with the reward:
neither model sees them, and this file is not deployed (``.dockerignore``).
"""

from __future__ import annotations

from typing import Any

TASKS: list[dict[str, Any]] = [
    {
        "id": "change-to-cheapest",
        "instruction": "You are Anna Krol, customer id anna_k. You want to fly from OSL to LIS on "
        "2026-03-03 instead of the day before, on the cheapest flight (reservation R7KQ). At the "
        "end ask what your balance is.",
        "looks": [
            ["search_flights", {"origin": "OSL", "destination": "LIS", "date": "2026-03-03"}],
        ],
        "actions": [
            ["change_flight", {"reservation_id": "R7KQ", "flight": "GL105"}],
            ["put_on_record", {"customer_id": "anna_k", "amount": 225}],
        ],
        "outputs": ["Amount: 225"],
    },
    {
        "id": "basic-fare-refused",
        "instruction": "You are Ben Okafor, customer id ben_o, reservation B2XW. You want to move "
        "to 2026-03-03 and insist. If it really is not possible, accept that "
        "somebody else calls you.",
        "looks": [["get_reservation", {"reservation_id": "B2XW"}]],
        "actions": [["transfer_to_human", {"customer_id": "ben_o"}]],
        "outputs": ["Refused: basic fare"],
    },
    {
        "id": "voucher-for-three",
        "instruction": "You are Chi Lam, customer id chi_l. Your flight of reservation C9TD was "
        "cancelled. You want to know what you get for it, and take it.",
        "looks": [["get_reservation", {"reservation_id": "C9TD"}]],
        "actions": [
            ["give_voucher", {"customer_id": "chi_l", "amount": 150}],
            ["put_on_record", {"customer_id": "chi_l", "amount": 150}],
        ],
        "outputs": ["Amount: 150"],
    },
    {
        "id": "insured-cancellation",
        "instruction": "You are Dora Meier, customer id dora_m. You cannot fly and want "
        "reservation D4MN cancelled, and to know how much you get back.",
        "looks": [["get_reservation", {"reservation_id": "D4MN"}]],
        "actions": [
            ["cancel_reservation", {"reservation_id": "D4MN"}],
            ["put_on_record", {"customer_id": "dora_m", "amount": 300}],
        ],
        "outputs": ["Amount: 300"],
    },
    {
        "id": "as-many-bags-as-affordable",
        "instruction": "You are Ben Okafor, customer id ben_o. You want as many bags on "
        "reservation B2XW as your balance pays for, but you do not know how much is left. "
        "Ask what remains.",
        "looks": [["get_customer", {"customer_id": "ben_o"}]],
        "actions": [
            ["add_bags", {"reservation_id": "B2XW", "bags": 1}],
            ["put_on_record", {"customer_id": "ben_o", "amount": 15}],
        ],
        "outputs": ["Amount: 15"],
    },
    {
        "id": "only-a-question",
        "instruction": "You are Anna Krol, customer id anna_k. You only want to know what the "
        "dearest flight from OSL to LIS on 2026-03-03 costs. You book nothing.",
        "looks": [
            ["search_flights", {"origin": "OSL", "destination": "LIS", "date": "2026-03-03"}],
        ],
        "actions": [["put_on_record", {"customer_id": "anna_k", "amount": 150}]],
        "outputs": ["Amount: 150"],
    },
]
