"""What a client asked for, in whichever API it speaks.

A dialect reads the body once into raw fields, refuses what cannot be honoured exactly, and shapes
errors. It never looks inside messages and knows nothing of engines: an engine takes the ``Ask``
and makes its own request of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Raw

from ..fault import Refusal, bad_request

T = TypeVar("T")

_fields = msgspec.json.Decoder(dict[str, Raw])
_bools = msgspec.json.Decoder(bool)
_ints = msgspec.json.Decoder(int)
_strings = msgspec.json.Decoder(str)
_any = msgspec.json.Decoder(Any)
encode = msgspec.json.Encoder().encode

MAX_CHOICES = 128


class Ask(msgspec.Struct):
    """One request, read. ``fields`` holds every parameter that is not null, as raw JSON."""

    dialect: str
    body: bytes
    fields: dict[str, Raw]
    model: str
    stream: bool
    n: int
    wants_logprobs: bool
    """Whether the client itself asked for log-probabilities: else they are stripped."""
    wants_ids: bool
    messages: list[bytes] | None = None
    """Raw JSON of each message of a chat."""
    prompt: bytes | None = None
    """Packed prompt ids, when the gateway rendered them."""
    hides_reasoning: bool = False
    """The client asked for none; the engine is still asked, since capture needs it."""

    def raw(self, name: str) -> bytes | None:
        field = self.fields.get(name)
        return None if field is None else bytes(field)


class Dialect:
    """One API. Stateless; an instance a module."""

    name: ClassVar[str]
    refused: ClassVar[Mapping[str, str]] = {}
    """Parameter to the reason why it is refused when set to anything that switches it on."""

    def parse(self, body: bytes) -> Ask:
        raise NotImplementedError

    def error(self, refusal: Refusal) -> bytes:
        if refusal.body is not None:
            return refusal.body
        return encode(
            {
                "error": {
                    "message": refusal.message,
                    "type": refusal.type,
                    "param": refusal.param,
                    "code": refusal.code,
                }
            }
        )

    def error_event(self, refusal: Refusal) -> bytes:
        """How a stream that has begun says that it failed."""
        return b"data: %b\n\n" % self.error(refusal).replace(b"\n", b" ")


def read_fields(body: bytes) -> dict[str, Raw]:
    try:
        fields = _fields.decode(body)
    except msgspec.ValidationError:
        raise bad_request("the body must be a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    return {name: raw for name, raw in fields.items() if not is_null(raw)}


def is_null(raw: Raw) -> bool:
    view = memoryview(raw)
    return len(view) == 4 and bytes(view) == b"null"


def first_byte(raw: Raw) -> bytes:
    return bytes(memoryview(raw)[:1])


def take(
    fields: Mapping[str, Raw], name: str, read: Callable[[Raw], T], default: T, kind: str
) -> T:
    raw = fields.get(name)
    if raw is None:
        return default
    try:
        return read(raw)
    except msgspec.DecodeError:
        raise bad_request(f"{name!r} must be {kind}", name) from None


def take_bool(fields: Mapping[str, Raw], name: str) -> bool:
    return take(fields, name, _bools.decode, False, "true or false")


def take_int(fields: Mapping[str, Raw], name: str, default: int) -> int:
    return take(fields, name, _ints.decode, default, "an integer")


def take_model(fields: Mapping[str, Raw]) -> str:
    return take(fields, "model", _strings.decode, "", "a string")


def take_n(fields: Mapping[str, Raw]) -> int:
    n = take_int(fields, "n", 1)
    if not 1 <= n <= MAX_CHOICES:
        raise bad_request(f"'n' must be between 1 and {MAX_CHOICES}, got {n}", "n")
    return n


def refuse(fields: Mapping[str, Raw], refused: Mapping[str, str]) -> None:
    """400 for a parameter that is on and cannot be honoured exactly."""
    for name in refused.keys() & fields.keys():
        value: object = _any.decode(fields[name])
        if value and value != ["text"]:
            raise bad_request(f"{name!r} is not supported by this gateway: {refused[name]}", name)
