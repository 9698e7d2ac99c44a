"""How the service makes words of a command: no shell reads it, unless the command names one.

Words are parted by white space. A word that begins with a single quote goes to the next one, as it
is; one that begins with a double quote goes to the next that is not escaped, and knows ``\\"`` and
``\\\\`` only. Nothing else is special, and a closing quote ends its word: there is no ``'a'b``.
Whoever needs a shell says so: ``/bin/sh -c '…'``, which reads the same if a shell does split it.
"""

from __future__ import annotations

import re

_WORD = re.compile(
    r"""\s*(?:
        '(?P<single>[^']*)'
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | (?P<plain>[^\s'"]\S*)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r'\\(["\\])')


def split(command: str) -> list[str]:
    """ValueError when a quote is not closed."""
    words: list[str] = []
    at = 0
    while at < len(command.rstrip()):
        found = _WORD.match(command, at)
        if found is None:
            raise ValueError(f"a quote is opened at character {at + 1} and never closed")
        if found["double"] is not None:
            words.append(_ESCAPED.sub(r"\1", found["double"]))
        else:
            words.append(found["single"] if found["single"] is not None else found["plain"])
        at = found.end()
    return words
