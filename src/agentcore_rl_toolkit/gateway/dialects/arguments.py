"""A tool call's arguments as one valid JSON object, whatever the model wrote.

Fed in pieces, gives back pieces: each is passed on as soon as it is certain to be part of valid
JSON, and ``close`` adds what a text that was cut off still needs. What cannot be JSON is left out
from there on. A JSON object passes unchanged, up to white space around it. Linear and bounded.
"""

from __future__ import annotations

import enum
import re

_RUN = re.compile(r'[^"\\\x00-\x1f]+')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_NUMBER_CHARS = frozenset("0123456789+-.eE")
_NUMBER_STARTS = frozenset("0123456789-")
_SPACE = frozenset(" \t\r\n")
_HEX = frozenset("0123456789abcdefABCDEF")
_WORDS = {"t": "true", "f": "false", "n": "null"}
_CLOSES = {"{": "}", "[": "]"}

MAX_DEPTH = 256
"""Deeper nesting is left out: clients' parsers do not go deeper either."""


class State(enum.Enum):
    TOP = enum.auto()  # before the object
    FIRST_KEY = enum.auto()  # after {
    NEXT_KEY = enum.auto()  # after a comma in an object
    KEY = enum.auto()  # inside a key
    COLON = enum.auto()  # after a key
    VALUE = enum.auto()  # after a colon
    FIRST_ITEM = enum.auto()  # after [
    ITEM = enum.auto()  # after a comma in a list
    STRING = enum.auto()
    NUMBER = enum.auto()
    WORD = enum.auto()
    AFTER = enum.auto()  # after a value
    DONE = enum.auto()


_TEXT = (State.KEY, State.STRING)
_VALUES = (State.VALUE, State.FIRST_ITEM, State.ITEM)


class Arguments:
    def __init__(self) -> None:
        self._state = State.TOP
        self._stack: list[str] = []
        self._lead = ""
        """White space and commas that are passed on with what follows them."""
        self._part = ""
        """An escape, number or word that has not ended."""
        self._dead = False

    def feed(self, text: str) -> str:
        out: list[str] = []
        at = 0
        while at < len(text) and not self._dead and self._state is not State.DONE:
            at = self._text(text, at, out) if self._state in _TEXT else self._step(text, at, out)
        return "".join(out)

    def close(self) -> str:
        """What makes the object whole."""
        out: list[str] = []
        if self._state is State.TOP:
            self._state = State.DONE
            return "{}"
        if self._state in (State.NUMBER, State.WORD):
            self._end_scalar(out)
        if self._state in _TEXT:
            out.append('"')
        if self._state in (State.KEY, State.COLON):
            out.append(":null")
        elif self._state is State.VALUE:
            out.append("null")
        out += [_CLOSES[bracket] for bracket in reversed(self._stack)]
        self._stack.clear()
        self._state = State.DONE
        return "".join(out)

    def _text(self, text: str, at: int, out: list[str]) -> int:
        if self._part:
            return self._escape(text, at, out)
        if run := _RUN.match(text, at):
            out.append(run.group())
            return run.end()
        char = text[at]
        if char == '"':
            out.append(char)
            self._state = State.COLON if self._state is State.KEY else State.AFTER
        elif char == "\\":
            self._part = char
        else:  # models write new lines inside strings as they are
            out.append(f"\\u{ord(char):04x}")
        return at + 1

    def _escape(self, text: str, at: int, out: list[str]) -> int:
        char = text[at]
        if len(self._part) == 1 and char not in '"\\/bfnrtu':
            self._part = "\\\\"  # a lone backslash, as in a path or a pattern
            out.append(self._part)
            self._part = ""
            return at
        if len(self._part) > 1 and char not in _HEX:
            self._dead, self._part = True, ""
            return at
        self._part += char
        if self._part[1] != "u" or len(self._part) == 6:
            out.append(self._part)
            self._part = ""
        return at + 1

    def _step(self, text: str, at: int, out: list[str]) -> int:
        char, state = text[at], self._state
        if state is State.NUMBER or state is State.WORD:
            return self._scalar(char, at, out)
        if char in _SPACE:
            self._lead += char if state is not State.TOP else ""
        elif state in _VALUES and char != "]":
            self._value(char, out)
        elif state is State.AFTER and char == ",":
            self._lead += char
            self._state = State.NEXT_KEY if self._stack[-1] == "{" else State.ITEM
        elif state is State.COLON and char == ":":
            self._pass(char, out, State.VALUE)
        elif state in (State.FIRST_KEY, State.NEXT_KEY) and char == '"':
            self._pass(char, out, State.KEY)
        elif state is State.TOP and char == "{":
            self._open(char, out)
        elif self._shuts(char):
            self._stack.pop()
            self._pass(char, out, State.AFTER if self._stack else State.DONE)
        else:
            self._dead = True
        return at + 1

    def _shuts(self, char: str) -> bool:
        ends = self._state in (State.AFTER, State.FIRST_KEY, State.FIRST_ITEM)
        return ends and char == _CLOSES[self._stack[-1]]

    def _value(self, char: str, out: list[str]) -> None:
        if char == '"':
            self._pass(char, out, State.STRING)
        elif char in _CLOSES and len(self._stack) < MAX_DEPTH:
            self._open(char, out)
        elif char in _NUMBER_STARTS:
            self._part, self._state = char, State.NUMBER
        elif char in _WORDS:
            self._part, self._state = char, State.WORD
        else:
            self._dead = True

    def _scalar(self, char: str, at: int, out: list[str]) -> int:
        more = self._part + char
        goes_on = (
            char in _NUMBER_CHARS
            if self._state is State.NUMBER
            else _WORDS[more[0]].startswith(more)
        )
        if goes_on:
            self._part = more
            return at + 1
        self._dead = not self._end_scalar(out)
        return at

    def _end_scalar(self, out: list[str]) -> bool:
        """Passes a number or word on, with what it lacks; False when it lacked something."""
        word = _WORDS.get(self._part[0])
        if word is None:
            found = _NUMBER.match(self._part)
            word = found.group() if found else "0"
        as_it_was = word == self._part
        self._part = ""
        self._pass(word, out, State.AFTER)
        return as_it_was

    def _open(self, char: str, out: list[str]) -> None:
        self._stack.append(char)
        self._pass(char, out, State.FIRST_KEY if char == "{" else State.FIRST_ITEM)

    def _pass(self, text: str, out: list[str], state: State) -> None:
        out.append(self._lead + text)
        self._lead, self._state = "", state


def whole_object(text: str) -> str:
    """The same for a text that is all there."""
    arguments = Arguments()
    return arguments.feed(text) + arguments.close()
