"""The kinds of frames in a journal, besides ``Turn`` itself.

Keys of sessions are secrets: a journal holds their SHA-256 only, which is enough for a gateway
that restarts to know a key again.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..trajectory.turn import Turn


class SessionOpened(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="open"
):
    session_id: str
    at: float
    """Unix seconds."""
    rollout_id: str | None = None
    group_id: str | None = None
    key_sha256: str = ""
    settings: dict[str, Any] = {}
    """Sampling, caps and what else the gateway needs to serve the session again."""


class Delivery(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="delivery"
):
    """Learnt after a turn was journalled: written when the answer did not reach the agent."""

    session_id: str
    turn_id: str
    at: float
    delivered: bool = False


class SessionSealed(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="seal"
):
    """No turn of the session comes after it."""

    session_id: str
    at: float
    reason: str = ""


class SessionClosed(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="close"
):
    """The session's rows were handed over or are not wanted: retention may drop its frames."""

    session_id: str
    at: float
    reason: str = ""


Frame: TypeAlias = Turn | SessionOpened | Delivery | SessionSealed | SessionClosed

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    return _encoder.encode(frame)


def decode(payload: bytes) -> Frame:
    """msgspec.ValidationError when it is of a kind that this version does not know."""
    try:
        return _decoder.decode(payload)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.ValidationError(str(error)) from error
