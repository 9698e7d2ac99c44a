"""Does the small world's tasks by code, as a model would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from world import TASKS, load_task_ids

LOOK = "print(apis.api_docs.show_app_descriptions())"
LOGIN = """accounts = apis.supervisor.show_account_passwords()
words = {each["account_name"]: each["password"] for each in accounts}
wallet = apis.wallet.login(password=words["wallet"])
music = apis.music.login(password=words["music"])
print(apis.wallet.show_transactions(access_token=wallet))"""
ALL = """every, page = [], 0
while found := apis.wallet.show_transactions(access_token=wallet, page=page):
    every, page = every + found, page + 1
mia = apis.contacts.search(name="Mia")
"""
STEPS = {
    "paid_to_mia": [
        LOOK,
        LOGIN,
        ALL + "total = sum(t['amount'] for t in every if t['to'] == mia)\n"
        "apis.supervisor.complete_task(answer=total)",
    ],
    "lunch": [
        LOGIN,
        "mia = apis.contacts.search(name='Mia')\n"
        "apis.wallet.send_money(access_token=wallet, to=mia, amount=25, note='lunch')\n"
        "apis.supervisor.complete_task()",
    ],
    "blue_door": [
        LOGIN,
        "songs = apis.music.search_songs(query='Blue Door')\n"
        "song = next(key for key, title in songs.items() if title == 'Blue Door')\n"
        "apis.music.add_song(access_token=music, playlist='Run', song_id=song)\n"
        "apis.supervisor.complete_task()",
    ],
    "loans": [
        LOGIN,
        ALL + "loans = [t for t in every if t['to'] == 'me' and t['note'] == 'loan']\n"
        "for t in loans:\n"
        "    apis.wallet.send_money(access_token=wallet, to=t['from'], amount=t['amount'],\n"
        "                           note='thanks')\n"
        "apis.supervisor.complete_task(answer=sum(t['amount'] for t in loans))",
    ],
}


def tasks() -> Iterator[dict[str, Any]]:
    for task_id in load_task_ids():
        yield {"task_id": task_id}


def label(task: dict[str, Any]) -> str:
    return str(task["task_id"])


def reply(request: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    messages = request["messages"]
    asked = str(next(m["content"] for m in messages if m["role"] == "user"))
    steps = next(STEPS[name] for name, task in TASKS.items() if task.instruction[:20] in asked)
    done = sum(m["role"] == "tool" for m in messages)
    return ("", [("execute", {"code": steps[done]})]) if done < len(steps) else ("It is done.", [])
