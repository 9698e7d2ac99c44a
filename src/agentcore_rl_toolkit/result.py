"""What a handler's outcome becomes: the JSON bytes that are saved.

Whatever a handler returns or raises has a result; none of the keys it was given is in it, and a
traceback shows code and messages, never the values of variables. Does no I/O.
"""

from __future__ import annotations

import asyncio.base_events
import json
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import rollout
from .errors import ConfigError
from .rollout import RolloutConfig

TRACEBACK_CHARS = 20_000
"""The end is kept: the innermost frames and the message."""
MIN_SECRET_CHARS = 8
"""A shorter key is not searched for in results: it would match ordinary text."""


MODEL_CLIENTS = frozenset(
    {"openai", "anthropic", "litellm", "httpx", "httpcore", "aiohttp", "requests", "google"}
)


SAY_LITTLE = (KeyError, ArithmeticError, AssertionError)
"""Their messages mean little without their names: a KeyError says nothing but its key."""


CONNECTION_WORDS = ("Connect", "Timeout", "Network", "Protocol", "Payload")
"""In the names of errors that say that no whole answer came."""


class ResultError(ConfigError):
    """The handler returned what is no result: would recur on every rollout."""


class Outcome(NamedTuple):
    body: bytes
    status_code: Any
    problem: str
    """Empty, or what to log."""


def success(
    returned: Any,
    config: RolloutConfig,
    payload: Any,
    timing: Mapping[str, float] | None = None,
) -> Outcome:
    """ResultError when it is not a dict or holds a value that has no JSON form."""
    if not isinstance(returned, Mapping):
        raise ResultError(
            f"the handler returned {rollout.a_type(returned)}, not a dict: "
            'return something like {"rewards": 1.0}'
        )
    whole = rollout.envelope(returned, config, payload, timing)
    try:
        _check_rewards(returned.get("rewards"))
        body = rollout.dump_result(whole)
    except ConfigError as error:
        raise ResultError(str(error)) from None
    return Outcome(_without_secrets(body, config, payload), whole["status_code"], "")


def failure(
    error: BaseException,
    config: RolloutConfig,
    payload: Any,
    own: str,
    timing: Mapping[str, float] | None = None,
) -> Outcome:
    """``own`` is the file of the caller, whose frames the traceback leaves out."""
    message = str(error)
    if not isinstance(error, Exception) or isinstance(error, SAY_LITTLE) or not message:
        message = f"{type(error).__name__}: {message}".removesuffix(": ")
    message = rollout.scrub(message + _where_asked(error, payload), payload)
    text = rollout.scrub(_traceback(error, own), payload)
    fields = {
        "status_code": 500,
        "stop_reason": message,
        "traceback": text,
        "failure_kind": _kind(error),
    }
    whole = rollout.envelope(fields, config, payload, timing)
    try:
        body = rollout.dump_result(whole)
    except Exception:  # noqa: BLE001  (a payload that json read and cannot write, such as NaN)
        body = rollout.dump_result({**whole, "payload": None})
    return Outcome(_without_secrets(body, config, payload), 500, f"{message}\n{text}".rstrip())


def _kind(error: BaseException) -> rollout.FailureKind:
    if isinstance(error, ResultError):
        return rollout.FailureKind.CONTRACT
    of_model = _model_error(error) is not None
    return rollout.FailureKind.MODEL if of_model else rollout.FailureKind.AGENT


def _model_error(error: BaseException) -> BaseException | None:
    """The error of the model's client, however deep a framework has wrapped it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if _of_model(cause):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _where_asked(error: BaseException, payload: Any) -> str:
    """Of a model that is not there: a client's "Connection error." does not say whom it asked."""
    found = _model_error(error)
    block = payload.get(rollout.ROLLOUT) if isinstance(payload, Mapping) else None
    url = block.get("base_url") if isinstance(block, Mapping) else None
    if found is None or _status(found) not in (None, 404) or not isinstance(url, str):
        return ""
    return f" ({rollout.redact_url(url)}: is the model up, and does its base_url end in /v1?)"


def _of_model(error: BaseException) -> bool:
    """The model's client says that the endpoint failed; libraries are known by name, not imported.

    A refused request (400, 422) is the agent's: it asked for what the model cannot do.
    """
    if type(error).__module__.partition(".")[0] not in MODEL_CLIENTS:
        return False
    status = _status(error)
    if status is not None:
        return status in (401, 402, 403, 404, 408, 409, 429) or status >= 500
    # a ReadError is a NetworkError: the kind may stand in the name of a base
    names = [kind.__name__ for kind in type(error).__mro__]
    return any(word in name for name in names for word in CONNECTION_WORDS)


def _status(error: BaseException) -> int | None:
    """Of the HTTP answer that the error is about, wherever its library puts it."""
    response = getattr(error, "response", None)
    for place, name in ((error, "status_code"), (error, "status"), (response, "status_code")):
        status = getattr(place, name, None)
        if isinstance(status, int):
            return status
    return None


def _check_rewards(rewards: Any) -> None:
    """What no trainer could use is told at once, not after a night of rollouts."""
    plain = rollout.plain(rewards, "result.rewards")
    values = plain if isinstance(plain, list) else [plain]
    numbers = all(isinstance(value, int | float) for value in values)
    if plain is not None and not (values and numbers):
        raise ResultError(
            f"rewards is {rewards!r}: return a number, or a list with one number for each "
            "model turn"
        )


def _traceback(error: BaseException, own: str) -> str:
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename in (own, asyncio.base_events.__file__):
        frames = frames.tb_next
    whole = traceback.TracebackException(type(error), error, frames, capture_locals=False)
    return "".join(whole.format())[-TRACEBACK_CHARS:]


def _without_secrets(body: bytes, config: RolloutConfig, payload: Any) -> bytes:
    """Also what the handler itself returned must not carry the keys it was given."""
    for secret in rollout.secrets_of(payload):
        # A gateway may use the session id as key: then it is in the result key for all to see.
        if len(secret) >= MIN_SECRET_CHARS and secret not in config.result_key:
            written = json.dumps(secret, ensure_ascii=False)[1:-1].encode()
            body = body.replace(written, rollout.HIDDEN.encode())
    return body
