"""What is sent for one rollout: the user's payload and the ``_rollout`` block, checked first."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..rollout import ROLLOUT, check_bucket, plain, result_key

MIN_SESSION_CHARS, MAX_SESSION_CHARS = 33, 256
MAX_BODY_BYTES = 100_000_000


@dataclasses.dataclass(frozen=True)
class Order:
    payload: Mapping[str, Any]
    block: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.payload, Mapping):
            raise ConfigError(
                f"payload must be a JSON object (a dict), got {type(self.payload).__name__}"
            )
        if not isinstance(self.payload.get(ROLLOUT, {}), Mapping):
            raise ConfigError(
                f"payload[{ROLLOUT!r}] belongs to the toolkit, which writes it itself: rename it"
            )
        for name in ("base_url", "model_id"):
            if not isinstance(self.block.get(name), str | None):
                raise ConfigError(f"{name} must be a string, got {self.block[name]!r}")
        check_bucket(self.block["s3_bucket"])
        result_key(self.block["exp_id"], self.block["input_id"], self.block["session_id"])
        length = len(self.session_id)
        if not MIN_SESSION_CHARS <= length <= MAX_SESSION_CHARS:
            raise ConfigError(
                f"session_id must have {MIN_SESSION_CHARS} to {MAX_SESSION_CHARS} characters "
                f"(a uuid4 string has 36), got {length}: {self.session_id!r}"
            )

    @property
    def session_id(self) -> str:
        return str(self.block["session_id"])

    @property
    def input_id(self) -> str:
        return str(self.block["input_id"])

    @property
    def bucket(self) -> str:
        return str(self.block["s3_bucket"])

    @property
    def key(self) -> str:
        return result_key(self.block["exp_id"], self.input_id, self.session_id)

    def renewed(self) -> Order:
        """The same task for another session."""
        return Order(self.payload, {**self.block, "session_id": new_id()})

    def body(self) -> bytes:
        whole = {**self.payload, ROLLOUT: self.block}
        try:
            text = json.dumps(whole, allow_nan=False)
        except (TypeError, ValueError):
            text = json.dumps(_plain(whole), allow_nan=False)
        data = text.encode()
        if len(data) > MAX_BODY_BYTES:
            raise ConfigError(
                f"payload is {len(data)} bytes as JSON, at most {MAX_BODY_BYTES}: put what is "
                "large into a store and send its address"
            )
        return data


def new_id() -> str:
    return str(uuid.uuid4())


def _plain(value: object) -> object:
    """Numpy values of a Parquet row become numbers and lists; the rest is refused by name."""
    try:
        return plain(value, "payload")
    except RecursionError:
        raise ConfigError("payload refers to itself, or is nested too deeply for JSON") from None
