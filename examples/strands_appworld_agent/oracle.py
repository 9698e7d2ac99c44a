"""Does the small world's tasks by code, as a model would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tasks import rows

LOOK = "print(apis.api_docs.show_app_descriptions())"
LOGIN = """accounts = apis.supervisor.show_account_passwords()
words = {each["account_name"]: each["password"] for each in accounts}
wallet = apis.wallet.login(password=words["wallet"])
music = apis.music.login(password=words["music"])
print(apis.wallet.show_transactions(access_token=wallet))"""
ALL = """every, page = [], 0
while found := apis.wallet.show_transactions(access_token=wallet, page=page):
    every, page = every + found, page + 1
"""
PAID = (
    ALL
    + """address = apis.contacts.search(name="{0}")
total = sum(t["amount"] for t in every if t["to"] == address)
apis.supervisor.complete_task(answer=total)"""
)
SEND = """address = apis.contacts.search(name="{0}")
apis.wallet.send_money(access_token=wallet, to=address, amount={1}, note="{2}")
apis.supervisor.complete_task()"""
SONG = """songs = apis.music.search_songs(query="{0}")
song = next(key for key, title in songs.items() if title == "{0}")
apis.music.add_song(access_token=music, playlist="{1}", song_id=song)
apis.supervisor.complete_task()"""
LOANS = (
    ALL
    + """loans = [t for t in every if t["to"] == "me" and t["note"] == "loan"]
for t in loans:
    apis.wallet.send_money(access_token=wallet, to=t["from"], amount=t["amount"], note="thanks")
apis.supervisor.complete_task(answer=sum(t["amount"] for t in loans))"""
)
CODES = {
    r"paid to (\w+) in all": PAID,
    r"Send (\w+) (\d+) with the note '(\w+)'": SEND,
    r"Add '([\w ]+)' to my playlist '(\w+)'": SONG,
    r"Pay every loan back": LOANS,
}


def steps(instruction: str) -> list[str]:
    for pattern, code in CODES.items():
        if found := re.search(pattern, instruction):
            for number, word in enumerate(found.groups()):
                code = code.replace(f"{{{number}}}", word)
            return [LOOK, LOGIN, code]
    raise ValueError(f"the oracle does not know what to do with {instruction!r}")


def tasks() -> Iterator[dict[str, Any]]:
    return rows()


def label(task: dict[str, Any]) -> str:
    return str(task["instruction"])


def reply(request: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    messages = request["messages"]
    codes = steps(str(next(m["content"] for m in messages if m["role"] == "user")))
    done = sum(m["role"] == "tool" for m in messages)
    return ("", [("execute", {"code": codes[done]})]) if done < len(codes) else ("It is done.", [])
