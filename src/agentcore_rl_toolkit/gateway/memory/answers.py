"""Answers that a later request of the session may go on with by their id.

An id is made of the session and of the call's retry key, so an answer that is given again, from
memory or from the journal, has the id that it had. A conversation that grows shares the messages
that it has in common with the one before it; above a number the oldest answers are forgotten.
"""

from __future__ import annotations

import hashlib

from ..dialects.base import Ask, join
from ..fault import Refusal

MAX_REMEMBERED = 256


class Answers(dict[str, list[bytes]]):
    """``answer_id`` to the conversation in chat shape, the answer included."""

    def remember(self, ask: Ask, answer: bytes) -> None:
        own = (ask.messages or [])[ask.n_instructions :]
        last = next(reversed(self.values()), [])
        same = [a if a == b else b for a, b in zip(last, own, strict=False)]
        self[ask.answer_id] = [*same, *own[len(same) :], answer]
        if len(self) > MAX_REMEMBERED:
            del self[next(iter(self))]

    def go_on(self, ask: Ask) -> None:
        """Puts the answers that a request names into its messages, or before them."""
        if ask.references and ask.messages is not None:
            for at, name in ask.references.items():
                ask.messages[at] = self._named(name, "Item", "input")[-1]
            ask.fields["messages"] = join(ask.messages)
        if ask.previous is not None:
            ask.prepend(self._named(ask.previous, "Previous response", "previous_response_id"))

    def _named(self, name: str, what: str, param: str) -> list[bytes]:
        earlier = self.get(name.rpartition("_")[2])
        if earlier is None:
            raise Refusal(
                400,
                f"{what} with id '{name}' not found in this session.",
                code=f"{what.lower().replace(' ', '_')}_not_found",
                param=param,
                retry=False,
            )
        return earlier


def answer_id(session_id: str, retry_key: str | None) -> str:
    name = f"{session_id}/{retry_key}".encode()
    return hashlib.blake2b(name, digest_size=12).hexdigest()
