"""The three shipped projects: their payloads, with questions and what is right to answer.

A question goes to the project's code through ``checks/*/Probe.java``, which knows no answers; the
answers are worked out here, in Python, and compared in the reward's own process. This file and
``checks`` are not deployed (``.dockerignore``): a session has the payload in memory only.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_plus

from dataset import HERE, PROMPT

Cases = Iterator[tuple[str, str]]
"""Questions and answers; texts in them are quoted, so that each is one line of words."""
ROUNDS = 20


def shipped(seed: int = 1) -> Iterator[dict[str, Any]]:
    for name, cases in CASES.items():
        folder = HERE / "checks" / name
        probe = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.java")}
        drawn = [list(case) for case in cases(random.Random(f"{seed}/{name}"))]
        held_out = {"probe": probe, "cases": drawn}
        yield {"prompt": PROMPT, "repo_uri": f"projects/{name}", "held_out": held_out}


def invoices(draw: random.Random) -> Cases:
    for _ in range(ROUNDS):
        note = "".join(chr(draw.randrange(32, 600)) for _ in range(draw.randrange(1, 40)))
        number, cents = draw.randrange(1 << 30), draw.randrange(1 << 40)
        line = _encoded(number, cents, note)
        yield f"encode {number} {cents} {_quoted(note)}", _quoted(line)
        yield f"decode {_quoted(line)}", f"{number} {cents} {_quoted(note)}"
        several = [draw.randrange(1, 1 << 30) for _ in range(draw.randrange(2, 6))]
        numbers = range(1000, 1000 + len(several))
        yield _line("ledger", *several), _line(*numbers, sum(several))
    yield "decode 1%3A2%3AdGVh%3A000000000000", "!IllegalArgumentException"


def plugins(draw: random.Random) -> Cases:
    for _ in range(ROUNDS):
        limit, names, taken = draw.randrange(2, 50), list[str](), ""
        tried = [f"plugin-{chr(draw.randrange(200, 1100))}{draw.randrange(3)}" for _ in range(60)]
        tried += draw.sample(tried, 20)
        for name in tried:
            fits = len(names) < limit and name not in names
            names += [name] if fits else []
            taken += "y" if fits else "n"
        asked = _line(limit, *map(_quoted, tried))
        yield f"names {asked}", f"{limit} {taken} {_quoted(' '.join(names))}"
        yield f"fingerprint {asked}", str(_fingerprint(names))


def reports(draw: random.Random) -> Cases:
    for _ in range(ROUNDS):
        words = [f"{draw.choice('abcdefghi')}{draw.randrange(3)}" for _ in range(40)]
        table = "".join(f"{word} {count}\n" for word, count in sorted(Counter(words).items()))
        shown = [draw.choice((word, word.upper())) for word in words]
        lines = [_quoted(f" {'  '.join(shown[at : at + 8])} ") for at in range(0, 40, 8)]
        yield _line("table", *lines), _quoted(table)
        yield _line("packed", *lines), _quoted(base64.b64encode(table.encode()).decode())


CASES: dict[str, Callable[[random.Random], Cases]] = {
    "invoice_codec": invoices,
    "plugin_registry": plugins,
    "text_report": reports,
}


def _encoded(number: int, cents: int, note: str) -> str:
    body = f"{number}:{cents}:{base64.b64encode(note.encode()).decode()}"
    return f"{body}:{hashlib.sha256(body.encode()).hexdigest()[:12].upper()}"


def _fingerprint(names: list[str]) -> int:
    """In Java's 32 bits."""
    value = 17
    for letter in "".join(f"{name}/" for name in names):
        value = (31 * value + ord(letter)) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


def _line(*words: object) -> str:
    return " ".join(map(str, words))


def _quoted(text: str) -> str:
    """As Java's URLEncoder does it."""
    return quote_plus(text, safe="*").replace("~", "%7E")
