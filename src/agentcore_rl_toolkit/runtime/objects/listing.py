"""One page of a sorted list of keys: prefix, delimiter, where to go on.

Pure. Every step is a bisection, so a page costs what it returns and not what the bucket holds;
a common prefix is stepped over in one, however many keys share it. Python orders strings by code
point, which is the order of their UTF-8 bytes, which is S3's.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from .refusal import Refused

MAX_KEYS = 1000
"""S3's bound of one page; a greater max-keys is answered with this many."""


@dataclass
class Page:
    keys: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    truncated: bool = False
    last: str = ""
    """The last key or common prefix returned."""
    last_is_prefix: bool = False

    @property
    def token(self) -> str:
        """Opaque, without state on the server: it survives a restart."""
        kind = "p" if self.last_is_prefix else "k"
        return base64.urlsafe_b64encode((kind + self.last).encode()).decode()


def take(
    keys: Sequence[str],
    prefix: str = "",
    delimiter: str = "",
    after: str = "",
    after_prefix: str = "",
    max_keys: int = MAX_KEYS,
) -> Page:
    """Keys past ``after``, and past everything under the common prefix ``after_prefix``."""
    at, end = bisect_left(keys, prefix), end_of(keys, prefix)
    if after:
        at = max(at, bisect_right(keys, after))
    if after_prefix:
        at = max(at, end_of(keys, after_prefix))
    page = Page()
    room = min(max_keys, MAX_KEYS)
    while at < end and len(page.keys) + len(page.prefixes) < room:
        key = keys[at]
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        page.last_is_prefix = cut >= 0
        if page.last_is_prefix:
            page.last = key[: cut + len(delimiter)]
            page.prefixes.append(page.last)
            at = end_of(keys, page.last)
        else:
            page.last = key
            page.keys.append(key)
            at += 1
    page.truncated = at < end and room > 0
    return page


def end_of(keys: Sequence[str], prefix: str) -> int:
    """Index of the first key past all those that begin with the prefix."""
    bound = prefix.rstrip("\U0010ffff")
    if not bound:
        return len(keys)
    return bisect_left(keys, bound[:-1] + chr(ord(bound[-1]) + 1))


def read_token(token: str) -> tuple[str, str]:
    """(after, after_prefix) of a continuation token."""
    try:
        text = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        text = ""
    if text[:1] == "k":
        return text[1:], ""
    if text[:1] == "p":
        return "", text[1:]
    raise Refused("InvalidArgument", "The continuation token provided is incorrect")
