"""The apps of the small world: a wallet, a music player, contacts, and their documentation.

One ``Phone`` is one person's day: its data and the functions that code may call as
``apis.{app}.{name}(…)``. Refusals are ``AppError``; nothing else reaches the data.
"""

from __future__ import annotations

import copy
import inspect
import secrets
from typing import Any

APPS = ("supervisor", "api_docs", "contacts", "wallet", "music")
PAGE = 4
MAX_NOTE = 200


class AppError(Exception):
    """An app refuses."""


class Phone:
    """The method ``{app}_{name}`` is the API ``apis.{app}.{name}``."""

    def __init__(self, data: dict[str, Any]) -> None:
        """``data``: passwords, contacts, balance, transactions, songs, playlists."""
        self.data: dict[str, Any] = copy.deepcopy(data)
        self.completed, self.answer = False, None
        self._tokens = {app: secrets.token_hex(8) for app in self.data["passwords"]}

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
        for app in APPS:
            for full in vars(Phone):
                if full.startswith(f"{app}_"):
                    found[app, full.removeprefix(f"{app}_")] = getattr(self, full)
        return found

    def supervisor_show_account_passwords(self) -> Any:
        """The passwords of the accounts."""
        words = self.data["passwords"]
        return [{"account_name": app, "password": word} for app, word in words.items()]

    def supervisor_complete_task(self, answer: Any = None) -> Any:
        """Says that the task is done, with the answer if it asks for one: a text or a number."""
        if answer is not None and not isinstance(answer, str | int | float):
            raise AppError("the answer must be one text or one number")
        self.completed, self.answer = True, answer
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
        return self.data["transactions"][PAGE * page : PAGE * page + PAGE]

    def wallet_send_money(self, access_token: str, to: str, amount: int, note: str = "") -> Any:
        """Sends money to an address."""
        self._check("wallet", access_token)
        if to not in self.data["contacts"].values():
            raise AppError(f"{to!r} has no account")
        if type(amount) is not int or not 0 < amount <= self.data["balance"]:
            raise AppError("the amount must be a whole number that the balance covers")
        if not isinstance(note, str) or len(note) > MAX_NOTE:
            raise AppError("the note is too long, or no text")
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
        if password != self.data["passwords"][app]:
            raise AppError("the password is wrong")
        return self._tokens[app]

    def _check(self, app: str, token: str) -> None:
        if token != self._tokens[app]:
            raise AppError(f"log in first: apis.{app}.login")
