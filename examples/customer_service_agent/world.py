"""A small airline: its database, and the tools of whoever serves its customers.

Tools do what they are told: whether something is allowed is the agent's to know (``POLICY``).
Every conversation has a database of its own, made by ``Airline()``, and a log of what was done or
tried to it: a change that was refused, or taken back, is in the log all the same. What was looked
up before the first change is logged, too.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from typing import Any

POLICY = """You serve the customers of a small airline.
- Ask for the customer id or the reservation id first.
- Look up before you act, do not guess: whatever you change, or try to, cannot be taken back.
- A basic fare cannot be changed. It can be cancelled only with insurance.
- A flexible fare can be changed to another flight of the same route, and cancelled.
- A bag costs 30, paid from the customer's balance. At most 3 bags on a reservation.
- A flight that was cancelled by us earns a voucher of 50 for each passenger, if asked for.
- A wish that these rules forbid you answer with a message that is only "Refused: basic fare",
  "Refused: no insurance" or "Refused: too many bags". If the customer insists, you hand over to a
  colleague with transfer_to_human, once.
- An amount that the customer asks for goes on record with put_on_record, once; then you answer
  with a message that is only "Amount: 150", say. No other message has an amount in it.
- Write days as 2026-03-03. One thing at a time, and only what the customer wants."""


def _flight(origin: str, to: str, date: str, price: int, state: str = "on time") -> Any:
    return {"from": origin, "to": to, "date": date, "price": price, "state": state}


def _reservation(customer: str, flight: str, *, insured: bool = False, **fields: Any) -> Any:
    start = {"customer": customer, "flight": flight, "bags": 0, "state": "booked"}
    return {**start, "insured": insured, **fields}


DATA: dict[str, Any] = {
    "customers": {
        "anna_k": {"name": "Anna Krol", "balance": 200, "vouchers": []},
        "ben_o": {"name": "Ben Okafor", "balance": 45, "vouchers": []},
        "chi_l": {"name": "Chi Lam", "balance": 500, "vouchers": []},
        "dora_m": {"name": "Dora Meier", "balance": 90, "vouchers": []},
    },
    "flights": {
        "GL101": _flight("OSL", "LIS", "2026-03-02", 120),
        "GL103": _flight("OSL", "LIS", "2026-03-03", 150),
        "GL105": _flight("OSL", "LIS", "2026-03-03", 95),
        "GL220": _flight("LIS", "ATH", "2026-03-05", 80, "cancelled"),
        "GL222": _flight("LIS", "ATH", "2026-03-06", 110),
    },
    "reservations": {
        "R7KQ": _reservation("anna_k", "GL101", passengers=1, fare="flexible"),
        "B2XW": _reservation("ben_o", "GL101", passengers=1, fare="basic"),
        "C9TD": _reservation("chi_l", "GL220", passengers=3, fare="basic"),
        "D4MN": _reservation("dora_m", "GL103", passengers=2, fare="basic", insured=True),
    },
    "transfers": [],
    "records": [],
}  # fmt: skip
Action = tuple[str, dict[str, Any]]
Method = Callable[..., str]


def looked(method: Method) -> Method:
    """A tool that changes nothing. What is looked up after a change did not help to decide it."""

    @functools.wraps(method)
    def call(self: Airline, **arguments: Any) -> str:
        if not self.actions:
            self.looks.append((method.__name__, arguments))
        return method(self, **arguments)

    return call


def logged(method: Method) -> Method:
    """A tool that changes the database: the call is in the log before anything happens."""

    @functools.wraps(method)
    def call(self: Airline, **arguments: Any) -> str:
        self.actions.append((method.__name__, arguments))
        return method(self, **arguments)

    return call


class Airline:
    """One conversation's database and tools. A tool answers text; what it refuses, it raises."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = copy.deepcopy(DATA)
        self.looks: list[Action] = []
        self.actions: list[Action] = []

    @looked
    def get_customer(self, customer_id: str) -> str:
        """Name, balance and vouchers of a customer, and the ids of the reservations.

        Args:
            customer_id: Such as "anna_k".
        """
        customer = self._one("customers", customer_id)
        booked = [k for k, r in self.data["reservations"].items() if r["customer"] == customer_id]
        return json.dumps({**customer, "reservations": booked})

    @looked
    def get_reservation(self, reservation_id: str) -> str:
        """All of a reservation.

        Args:
            reservation_id: Four letters and digits.
        """
        return json.dumps(self._one("reservations", reservation_id))

    @looked
    def get_flight(self, flight: str) -> str:
        """Route, date, price and state of a flight.

        Args:
            flight: Such as "GL101".
        """
        return json.dumps(self._one("flights", flight))

    @looked
    def search_flights(self, origin: str, destination: str, date: str) -> str:
        """Flights of a route on a day.

        Args:
            origin: Airport, three letters.
            destination: Airport, three letters.
            date: YYYY-MM-DD.
        """
        wanted = (origin, destination, date)
        flights = self.data["flights"].items()
        return json.dumps({k: f for k, f in flights if (f["from"], f["to"], f["date"]) == wanted})

    @logged
    def change_flight(self, reservation_id: str, flight: str) -> str:
        """Books a reservation on another flight; the difference in price goes by the balance.

        Args:
            reservation_id: Four letters and digits.
            flight: The new flight.
        """
        reservation = self._one("reservations", reservation_id)
        new, old = self._one("flights", flight), self._one("flights", reservation["flight"])
        self._pay(reservation, (new["price"] - old["price"]) * reservation["passengers"])
        reservation["flight"] = flight
        return "changed"

    @logged
    def add_bags(self, reservation_id: str, bags: int) -> str:
        """Adds bags to a reservation, 30 each.

        Args:
            reservation_id: Four letters and digits.
            bags: How many more.
        """
        if not 1 <= bags <= 3:
            raise ValueError("between 1 and 3 bags can be added")
        reservation = self._one("reservations", reservation_id)
        self._pay(reservation, 30 * bags)
        reservation["bags"] += bags
        return "added"

    @logged
    def cancel_reservation(self, reservation_id: str) -> str:
        """Cancels a reservation and pays its price back to the balance.

        Args:
            reservation_id: Four letters and digits.
        """
        reservation = self._one("reservations", reservation_id)
        if reservation["state"] == "cancelled":
            raise ValueError("it is cancelled already")
        price = self._one("flights", reservation["flight"])["price"]
        self._pay(reservation, -price * reservation["passengers"])
        reservation["state"] = "cancelled"
        return "cancelled"

    @logged
    def give_voucher(self, customer_id: str, amount: int) -> str:
        """Gives a customer a voucher.

        Args:
            customer_id: Such as "anna_k".
            amount: What it is worth.
        """
        self._one("customers", customer_id)["vouchers"].append(amount)
        return "given"

    @logged
    def transfer_to_human(self, customer_id: str) -> str:
        """Hands the customer to a colleague.

        Args:
            customer_id: Such as "anna_k".
        """
        self._one("customers", customer_id)
        self.data["transfers"].append(customer_id)
        return "a colleague takes over"

    @logged
    def put_on_record(self, customer_id: str, amount: int) -> str:
        """Notes an amount that the customer is told. A record cannot be taken back.

        Args:
            customer_id: Such as "anna_k".
            amount: The one that was asked for.
        """
        self._one("customers", customer_id)
        self.data["records"].append([customer_id, amount])
        return "noted"

    def tools(self) -> list[Callable[..., str]]:
        chosen = (self.get_customer, self.get_reservation, self.get_flight, self.search_flights)
        return [*chosen, self.change_flight, self.add_bags, self.cancel_reservation,
                self.give_voucher, self.transfer_to_human, self.put_on_record]  # fmt: skip

    def _one(self, table: str, key: str) -> dict[str, Any]:
        found = self.data[table].get(key)
        if found is None:
            raise ValueError(f"there is no {key!r} among the {table}")
        row: dict[str, Any] = found
        return row

    def _pay(self, reservation: dict[str, Any], amount: int) -> None:
        customer = self.data["customers"][reservation["customer"]]
        if customer["balance"] < amount:
            raise ValueError("the balance is too low")
        customer["balance"] -= amount
