"""What a client asked for, in whichever API it speaks.

A dialect reads the body once, refuses what cannot be honoured exactly, and shapes errors. It knows
nothing of engines: an engine takes the ``Ask`` and makes its own request of it.

Behind this seam there is one shape only. ``parse`` of every dialect but completions gives
``messages`` and ``fields`` as chat completions have them, whatever the client spoke (``chat_ask``
builds that), and ``body`` as it came; so engines, renderers, the graph, retries and caps know one
conversation in any mixture of dialects. The way back is an ``Outlet``, one for a call: it turns
the engine's chat answer into the client's API. None: the client speaks chat and bytes pass as
they are. ``usage`` comes from the engine's usage chunk, which ``chat_ask`` asks for.

The relay sets ``Ask.answer_id`` and ``Ask.secret`` before it asks for an outlet: an id that is the
same when the answer is given again, also after a restart, and a secret of the session to sign with.
``Ask.previous`` names an earlier answer of the session, by ``answer_id`` after any prefix that ends
in ``_``; the relay then puts that answer's conversation before the request's own messages, after
``n_instructions`` leading ones, which are never carried over. Answers with ``Ask.remember`` can be
named so later: ``session.responses`` holds them, and a restart brings them back. So can those that
``Ask.references`` puts in the place of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Raw

from ...trajectory.turn import Edit
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
    known: int = 0
    """How many of them are the turn's that it continues."""
    begun: bytes = b""
    """Packed ids at the end of ``prompt`` that the answer begins with: a forced tool call's."""
    hides_reasoning: bool = False
    """The client asked for none; the engine is still asked, since capture needs it."""
    flags: list[str] = []
    """What was done to the request, such as a changing header left out; put on the turn."""
    fresh: bytes = b""
    """The body without the messages that an earlier request had, when there are any."""
    edits: list[Edit] = []
    """How ``messages`` and tools differ from what was sent, see ``gateway.normal``."""
    previous: str | None = None
    """Id of the answer whose conversation this request goes on with."""
    references: dict[int, str] = {}
    """Places in ``messages`` that stand for an earlier answer, by its id."""
    remember: bool = False
    """A later request may go on with this one's answer by its id."""
    n_instructions: int = 0
    """Leading messages that belong to this request alone."""
    answer_id: str = ""
    secret: bytes = b""

    @property
    def chat(self) -> bool:
        """In chat shape, whatever the client speaks."""
        return self.dialect != "completions"

    @property
    def shape(self) -> str:
        return "chat" if self.chat else "completions"

    def raw(self, name: str) -> bytes | None:
        field = self.fields.get(name)
        return None if field is None else bytes(field)

    def prepend(self, earlier: list[bytes]) -> None:
        """Puts an earlier conversation before the request's own messages."""
        own = self.messages or []
        self.messages = [*own[: self.n_instructions], *earlier, *own[self.n_instructions :]]
        self.fields["messages"] = join(self.messages)


AskT = TypeVar("AskT", bound=Ask)


class Outlet:
    """One call's way back: the engine's chat answer in the client's dialect. Stateful."""

    def whole(self, body: bytes) -> bytes:
        """A ``chat.completion`` as the dialect's JSON."""
        raise NotImplementedError

    def events(self, data: bytes) -> bytes:
        """Complete chat events (``data: {...}\\n\\n``, at last ``[DONE]``) as the dialect's.

        May be empty. The finish chunk and all after it come once the turn is journalled.
        """
        raise NotImplementedError

    def sent(self, message: bytes) -> bytes:
        """The assistant message, in chat shape, as the client will replay it."""
        return message


class Dialect:
    """One API. Stateless; an instance a module."""

    name: ClassVar[str]
    refused: ClassVar[Mapping[str, str]] = {}
    """Parameter to the reason why it is refused when set to anything that switches it on."""

    translated: ClassVar[bool] = False
    """Requests and answers are rewritten, so the client does not replay the engine's bytes."""
    salt: ClassVar[bytes] = b""
    """Told apart from other dialects with it, where the same body may be sent to both."""
    named_answers: ClassVar[bool] = False
    """Some of its asks have ``remember``."""
    keep_alive: ClassVar[bytes] = b": keep-alive\n\n"
    """Sent on a silent stream."""

    def parse(self, body: bytes) -> Ask:
        raise NotImplementedError

    def outlet(self, ask: Ask) -> Outlet | None:
        return None

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


def join(messages: list[bytes]) -> Raw:
    return Raw(b"[%b]" % b",".join(messages))


def chat_ask(
    dialect: str,
    body: bytes,
    fields: Mapping[str, Any],
    messages: list[bytes],
    *,
    stream: bool = False,
    kind: type[AskT] = Ask,  # type: ignore[assignment]
    **known: Any,
) -> AskT:
    """A translated request; ``fields`` in chat shape, with neither messages nor stream."""
    raws = {name: v if isinstance(v, Raw) else Raw(encode(v)) for name, v in fields.items()}
    raws["messages"] = join(messages)
    if stream:
        raws["stream"] = Raw(b"true")
        raws["stream_options"] = Raw(b'{"include_usage":true}')
    return kind(
        dialect=dialect,
        body=body,
        fields=raws,
        messages=messages,
        model=take_model(raws),
        stream=stream,
        n=1,
        wants_logprobs=False,
        wants_ids=False,
        **known,
    )


def read_fields(body: bytes) -> dict[str, Raw]:
    try:
        if not body.isascii():
            body.decode()  # raw values are not looked into below
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
