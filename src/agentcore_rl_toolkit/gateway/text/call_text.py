"""A block of tool calls while the model writes it: names and arguments, told as they come.

Only where a call's arguments are a JSON object in the text itself: they are then passed on as the
model wrote them. A block that begins in any other way tells nothing, and is read when it is whole.
Every character is looked at a bounded number of times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

MAX_HEAD = 512
"""Characters within which a call must have come to its arguments, and again to its end."""
_OUTSIDE = re.compile(r'["{}]')
_INSIDE = re.compile(r'["\\]')


@dataclass(frozen=True)
class CallForm:
    """What stands around a call's arguments, inside its block."""

    begins: re.Pattern[str]
    """Up to the first brace of the arguments; its groups are ``name`` and maybe ``id``."""
    ends: re.Pattern[str]


_SCALAR = r'(?:"[^"\\]*"|[-+.\w]+)'
JSON_FORM = CallForm(
    re.compile(
        r'\s{0,64}\{\s{0,64}"name"\s{0,8}:\s{0,8}"(?P<name>[^"\\\x00-\x1f]+)"\s{0,64},'
        r'\s{0,64}"arguments"\s{0,8}:\s{0,64}\{'
    ),
    re.compile(rf'\s{{0,64}}(?:,\s{{0,64}}"[^"\\]*"\s{{0,8}}:\s{{0,8}}{_SCALAR}\s{{0,64}})*\}}'),
)
"""``{"name": …, "arguments": {…}}``"""


class Written(NamedTuple):
    """One step of a call: its name first, then its arguments piece by piece."""

    name: str | None = None
    own_id: str | None = None
    arguments: str = ""


class CallText:
    """One block; fed in any portions with the same outcome."""

    def __init__(self, form: CallForm) -> None:
        self._form = form
        self._step = self._head
        self._held = ""
        self._rest: list[str] = []
        self._depth = 0
        self._quoted = self._escaped = False
        self.names: list[str] = []
        """Of the calls that have begun."""

    def feed(self, text: str) -> list[Written]:
        out: list[Written] = []
        if self._rest:
            self._rest.append(text)
            return out
        self._held += text
        while self._held and self._step(out):
            pass
        if len(self._held) > MAX_HEAD:
            self._rest, self._held = [self._held], ""
        return out

    @property
    def left(self) -> str:
        """What came after the last call and is no part of it."""
        return "".join(self._rest) or self._held

    def _head(self, out: list[Written]) -> bool:
        found = self._form.begins.match(self._held)
        if found is None:
            return False
        self.names.append(found["name"])
        out.append(Written(found["name"], found.groupdict().get("id")))
        self._held, self._step = self._held[found.end() - 1 :], self._object
        return True

    def _object(self, out: list[Written]) -> bool:
        text, at = self._held, 0
        closed = False
        while at < len(text) and not closed:
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = (_INSIDE if self._quoted else _OUTSIDE).search(text, at)
            at = found.end() if found else len(text)
            closed = found is not None and self._mark(found.group())
        out.append(Written(arguments=text[:at]))
        self._held = text[at:]
        if closed:
            self._step = self._tail
        return closed

    def _mark(self, char: str) -> bool:
        """Takes one character that matters; whether the object ends with it."""
        if char == '"':
            self._quoted = not self._quoted
        elif char == "\\":
            self._escaped = True
        else:
            self._depth += 1 if char == "{" else -1
        return char == "}" and not self._depth

    def _tail(self, out: list[Written]) -> bool:
        found = self._form.ends.match(self._held)
        if found is None:
            return False
        self._held, self._step = self._held[found.end() :], self._head
        return True
