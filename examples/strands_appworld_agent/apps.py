"""The apps of the small world: a wallet, a music player, contacts, and their documentation.

One ``Phone`` is one person's day: its data and the functions that code may call as
``apis.{app}.{name}(…)``. Refusals are ``AppError``; nothing else reaches the data.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

PASSWORDS = {"wallet": "w-7741", "music": "m-2093"}
DATA: dict[str, Any] = {
    "balance": 300,
    "transactions": [
        {"id": 1, "from": "me", "to": "mia@mail", "amount": 18, "note": "cinema"},
        {"id": 2, "from": "leo@mail", "to": "me", "amount": 40, "note": "loan"},
        {"id": 3, "from": "me", "to": "mia@mail", "amount": 27, "note": "dinner"},
        {"id": 4, "from": "me", "to": "leo@mail", "amount": 9, "note": "cinema"},
        {"id": 5, "from": "zoe@mail", "to": "me", "amount": 65, "note": "loan"},
        {"id": 6, "from": "zoe@mail", "to": "me", "amount": 12, "note": "dinner"},
    ],
    "contacts": {"Mia": "mia@mail", "Leo": "leo@mail", "Zoe": "zoe@mail"},
    "songs": {"1": "Blue Door", "2": "Night Bus", "3": "Blue Doors", "4": "Harbour"},
    "playlists": {"Run": ["2"], "Sleep": ["4", "1"]},
    "answer": None,
    "completed": False,
}


class AppError(Exception):
    """An app refuses."""


class Phone:
    """The method ``{app}_{name}`` is the API ``apis.{app}.{name}``."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = copy.deepcopy(DATA)

    def call(self, app: str, name: str, arguments: dict[str, Any]) -> Any:
        function = self.apis().get((app, name))
        if function is None:
            raise AppError(f"there is no API {app}.{name}; see apis.api_docs.show_api_descriptions")
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            raise AppError(f"{app}.{name}: {error}") from None
        return copy.deepcopy(function(**arguments))

    def apis(self) -> dict[tuple[str, str], Any]:
        found = {}
        for app in ("supervisor", "api_docs", "contacts", "wallet", "music"):
            for full in vars(Phone):
                if full.startswith(f"{app}_"):
                    found[app, full.removeprefix(f"{app}_")] = getattr(self, full)
        return found

    def supervisor_show_account_passwords(self) -> Any:
        """The passwords of the accounts."""
        return [{"account_name": app, "password": word} for app, word in PASSWORDS.items()]

    def supervisor_complete_task(self, answer: Any = None) -> Any:
        """Says that the task is done, with the answer if it asks for one."""
        self.data |= {"answer": answer, "completed": True}
        return "completed"

    def api_docs_show_app_descriptions(self) -> Any:
        """The apps."""
        return sorted({app for app, _ in self.apis()})

    def api_docs_show_api_descriptions(self, app_name: str) -> Any:
        """The APIs of an app."""
        return {
            name: {"arguments": str(inspect.signature(function)), "text": function.__doc__}
            for (app, name), function in self.apis().items()
            if app == app_name
        }

    def contacts_search(self, name: str) -> Any:
        """The address of a person."""
        if name not in self.data["contacts"]:
            raise AppError(f"nobody is called {name!r}")
        return self.data["contacts"][name]

    def wallet_login(self, password: str) -> Any:
        """An access token."""
        return self._login("wallet", password)

    def wallet_show_transactions(self, access_token: str, page: int = 0) -> Any:
        """Transactions, four a page; the page after the last one is empty."""
        self._check("wallet", access_token)
        return self.data["transactions"][4 * page : 4 * page + 4]

    def wallet_send_money(self, access_token: str, to: str, amount: int, note: str = "") -> Any:
        """Sends money to an address."""
        self._check("wallet", access_token)
        if to not in self.data["contacts"].values():
            raise AppError(f"{to!r} has no account")
        if type(amount) is not int or not 0 < amount <= self.data["balance"]:
            raise AppError("the amount must be a whole number that the balance covers")
        self.data["balance"] -= amount
        sent = {"from": "me", "to": to, "amount": amount, "note": note}
        self.data["transactions"].append({"id": len(self.data["transactions"]) + 1, **sent})
        return "sent"

    def music_login(self, password: str) -> Any:
        """An access token."""
        return self._login("music", password)

    def music_search_songs(self, query: str) -> Any:
        """Songs whose title has the text, by id."""
        return {key: title for key, title in self.data["songs"].items() if query in title}

    def music_show_playlists(self, access_token: str) -> Any:
        """Ids of the songs of each playlist."""
        self._check("music", access_token)
        return self.data["playlists"]

    def music_add_song(self, access_token: str, playlist: str, song_id: str) -> Any:
        """Adds a song to the end of a playlist."""
        self._check("music", access_token)
        if playlist not in self.data["playlists"] or song_id not in self.data["songs"]:
            raise AppError("there is no such playlist or song")
        self.data["playlists"][playlist].append(song_id)
        return "added"

    def _login(self, app: str, password: str) -> str:
        if password != PASSWORDS[app]:
            raise AppError("the password is wrong")
        return f"{app}-token"

    def _check(self, app: str, token: str) -> None:
        if token != f"{app}-token":
            raise AppError(f"log in first: apis.{app}.login")
