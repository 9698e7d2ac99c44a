"""The contract between agent and client: where a result goes, what it looks like, how it fails.

Both sides import this module and nothing of each other. It owns the ``_rollout`` block of a
payload, the key and envelope of a saved result, the one list of failure kinds, what counts as a
secret, and how a result becomes JSON. It does no I/O and needs only the base install.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

from .errors import ConfigError

ROLLOUT = "_rollout"
"""Payload key under which the client tells the agent about the rollout."""

LOCATION_FIELDS = ("exp_id", "input_id", "s3_bucket")
"""All of them name a result location; none of them means a production call."""

PROCESSING = "processing"
HIDDEN = "***"
MAX_PART_CHARS = 256
MAX_KEY_BYTES = 1024
"""S3's own limit."""


class FailureKind(enum.StrEnum):
    AGENT = "agent"
    MODEL = "model"
    TIMEOUT = "timeout"
    SESSION_LOST = "session_lost"
    THROTTLED = "throttled"
    QUOTA = "quota"
    STORE = "store"
    CONTRACT = "contract"
    CANCELLED = "cancelled"

    @property
    def infrastructure(self) -> bool:
        """Not the agent's doing: may be run again, is never trained."""
        return self not in (FailureKind.AGENT, FailureKind.CONTRACT)


@dataclasses.dataclass(frozen=True)
class Failure:
    kind: FailureKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


# --- where a result goes ----------------------------------------------------------------------


def check_part(field: str, value: object) -> str:
    """One part of a result key, or ConfigError: the caller chooses it, so nothing is trusted."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{ROLLOUT}.{field} must be a non-empty string, got {value!r}")
    if len(value) > MAX_PART_CHARS:
        raise ConfigError(f"{ROLLOUT}.{field} is {len(value)} characters, at most {MAX_PART_CHARS}")
    if value.startswith("/") or value.endswith("/"):
        raise ConfigError(f"{ROLLOUT}.{field} must not begin or end with '/': {value!r}")
    if any(part in ("", ".", "..") for part in value.split("/")):
        raise ConfigError(f"{ROLLOUT}.{field} must not hold empty, '.' or '..' parts: {value!r}")
    if not value.isprintable() or "\\" in value:
        raise ConfigError(f"{ROLLOUT}.{field} holds a control character or backslash: {value!r}")
    return value


def check_bucket(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]", value):
        raise ConfigError(
            f"{ROLLOUT}.s3_bucket must be an S3 bucket name (3 to 63 of a-z, 0-9, '.', '-'), "
            f"got {value!r}"
        )
    if ".." in value:
        raise ConfigError(f"{ROLLOUT}.s3_bucket must not hold '..': {value!r}")
    return value


def result_key(exp_id: str, input_id: str, session_id: str) -> str:
    parts = {"exp_id": exp_id, "input_id": input_id, "session_id": session_id}
    key = "/".join(check_part(field, value) for field, value in parts.items()) + ".json"
    if len(key.encode()) > MAX_KEY_BYTES:
        raise ConfigError(f"the result key is longer than {MAX_KEY_BYTES} bytes: {key[:80]}…")
    return key


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """What the agent side needs of ``_rollout``; the handler gets the whole block untouched."""

    exp_id: str
    input_id: str
    session_id: str
    s3_bucket: str
    done_url: str | None = None

    @property
    def result_key(self) -> str:
        return result_key(self.exp_id, self.input_id, self.session_id)

    @classmethod
    def from_payload(cls, payload: object, session_id: str | None) -> RolloutConfig | None:
        """None for a production call; ConfigError, naming the field, for half a location."""
        block = rollout_block(payload)
        given = [field for field in LOCATION_FIELDS if block.get(field) is not None]
        if not given:
            return None
        block = {"session_id": session_id} | {k: v for k, v in block.items() if v is not None}
        missing = [f for f in (*LOCATION_FIELDS, "session_id") if block.get(f) is None]
        if missing:
            raise ConfigError(
                f"{ROLLOUT} has {', '.join(given)} but lacks {', '.join(missing)}: "
                "give all of them to run a rollout, or none for a plain answer"
            )
        done_url = block.get("done_url")
        if done_url is not None and not re.match(r"https?://", str(done_url)):
            raise ConfigError(f"{ROLLOUT}.done_url must be an http(s) URL, got {done_url!r}")
        config = cls(
            exp_id=check_part("exp_id", block["exp_id"]),
            input_id=check_part("input_id", block["input_id"]),
            session_id=check_part("session_id", block["session_id"]),
            s3_bucket=check_bucket(block["s3_bucket"]),
            done_url=done_url,
        )
        result_key(config.exp_id, config.input_id, config.session_id)
        return config


def rollout_block(payload: object) -> dict[str, Any]:
    """The ``_rollout`` block, or ConfigError when it is there but is not an object."""
    block = payload.get(ROLLOUT) if isinstance(payload, Mapping) else None
    if block is None:
        return {}
    if not isinstance(block, Mapping):
        raise ConfigError(f"{ROLLOUT} must be an object, got {type(block).__name__}")
    return dict(block)


# --- what a result looks like -----------------------------------------------------------------


def processing(config: RolloutConfig) -> dict[str, str]:
    """What an accepted rollout answers at once."""
    return {
        "status": PROCESSING,
        "s3_bucket": config.s3_bucket,
        "result_key": config.result_key,
    }


def envelope(
    result: Mapping[str, Any],
    config: RolloutConfig,
    payload: object,
    timing: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The handler's keys, completed with those that every saved result has."""
    return {
        "status_code": 200,
        "stop_reason": "end_turn",
        **({} if timing is None else {"timing": dict(timing)}),
        **result,
        "input_id": config.input_id,
        "s3_bucket": config.s3_bucket,
        "result_key": config.result_key,
        "payload": redact(payload),
    }


def failure_of(result: object) -> Failure | None:
    """Reads a saved result: None when it is a success."""
    if not isinstance(result, Mapping):
        return Failure(FailureKind.AGENT, f"result is a JSON {type(result).__name__}, not object")
    status = result.get("status_code", 200)
    if status in (None, 200):
        return None
    try:
        kind = FailureKind(result.get("failure_kind", FailureKind.AGENT))
    except ValueError:
        kind = FailureKind.AGENT
    return Failure(kind, f"status {status}: {result.get('stop_reason') or 'no reason given'}")


def dump_result(result: object) -> bytes:
    """JSON bytes. Converts what has one meaning, else ConfigError naming the field."""
    value = plain(result, "result")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as a model cut off mid-way leaves it
        return json.dumps(value, allow_nan=False).encode()


def plain(value: Any, where: str) -> Any:
    """The JSON form of a value; numpy and torch are recognised by shape, never imported."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{where} is {value!r}, which JSON cannot hold: return a number")
        return float(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value, where)
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(
            {f.name: getattr(value, f.name) for f in dataclasses.fields(value)},
            where,
        )
    for convert in ("model_dump", "tolist"):  # pydantic models; numpy and torch values
        method = getattr(value, convert, None)
        if callable(method) and not isinstance(value, type):
            return plain(method(), where)
    raise ConfigError(
        f"{where} is {a_type(value)}, which has no JSON form: convert it to "
        "dict, list, str, number, bool or None first"
    )


def a_type(value: object) -> str:
    """Such as "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _plain_mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(key, enum.Enum):
            key = key.value
        if not isinstance(key, str):
            if isinstance(key, bool) or not hasattr(key, "__index__"):
                raise ConfigError(f"{where} has the key {key!r}: JSON keys are strings")
            key = str(key.__index__())
        if key in out:
            raise ConfigError(f"{where} has the key {key!r} twice once keys are strings")
        out[key] = plain(item, f"{where}.{key}")
    return out


# --- secrets ----------------------------------------------------------------------------------

_SESSION_IN_URL = re.compile(r"(/sessions/)([^/?#]+)")
_USERINFO_IN_URL = re.compile(r"(://)[^/@\s]+@")
_QUERY_IN_URL = re.compile(r"\?.*$")
_NOT_SECRET = frozenset({"", "EMPTY", "empty", "none", "None", "local", "dummy"})


def redact(payload: Any) -> Any:
    """A copy without the keys that ``_rollout`` carries."""
    if not isinstance(payload, Mapping) or not isinstance(payload.get(ROLLOUT), Mapping):
        return payload
    block = dict(payload[ROLLOUT])
    if block.get("api_key") not in (None, "EMPTY"):
        block["api_key"] = HIDDEN
    for field in ("base_url", "done_url", "anthropic_base_url"):
        if isinstance(block.get(field), str):
            block[field] = redact_url(block[field])
    return {**payload, ROLLOUT: block}


def redact_url(url: str) -> str:
    url = _USERINFO_IN_URL.sub(rf"\1{HIDDEN}@", url)
    url = _SESSION_IN_URL.sub(rf"\1{HIDDEN}", url)
    return _QUERY_IN_URL.sub(f"?{HIDDEN}", url)


def scrub(text: str, payload: Any) -> str:
    """Text, such as a traceback, with the payload's secrets taken out."""
    for secret in secrets_of(payload):
        text = text.replace(secret, HIDDEN)
    return text


def secrets_of(payload: Any) -> list[str]:
    block = payload.get(ROLLOUT) if isinstance(payload, Mapping) else None
    if not isinstance(block, Mapping):
        return []
    found = {str(block.get("api_key") or "")}
    for field in ("base_url", "done_url", "anthropic_base_url"):
        if match := _SESSION_IN_URL.search(str(block.get(field) or "")):
            found.add(match.group(2))
    return sorted(found - _NOT_SECRET, key=len, reverse=True)
