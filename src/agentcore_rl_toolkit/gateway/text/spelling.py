"""Single tokens as text and bytes, for clients that ask for log-probabilities.

A token may be part of a character: its text is then not whole, and its bytes still are, where the
tokenizer says which they are.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Spelt(NamedTuple):
    text: str
    data: list[int] | None
    """None where the tokenizer does not tell."""


class Speller:
    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, Spelt] = {}

    def spell(self, token: int) -> Spelt:
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._spell(token)
        return known

    def _spell(self, token: int) -> Spelt:
        text = str(self._tokenizer.decode([token], skip_special_tokens=False))
        if "\ufffd" not in text:
            return Spelt(text, list(text.encode()))
        name = getattr(self._tokenizer, "convert_ids_to_tokens", lambda _: None)(token)
        return Spelt(text, _bytes(name) if isinstance(name, str) else None)


def _bytes(name: str) -> list[int] | None:
    """Bytes of a vocabulary's own name for a token."""
    if found := _BYTE.fullmatch(name):
        return [int(found.group(1), 16)]
    data = [_OF_LETTER.get(letter) for letter in name]
    return [byte for byte in data if byte is not None] if None not in data else None


def _letters() -> dict[str, int]:
    """Byte-level vocabularies write every byte as a letter that can be printed."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    shifted = {chr(256 + at): byte for at, byte in enumerate(others)}
    return {chr(byte): byte for byte in plain} | shifted


_OF_LETTER = _letters()
