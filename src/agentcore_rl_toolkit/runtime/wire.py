"""AWS answers as boto3 reads them: JSON bodies, typed errors, request ids.

The header ``x-amzn-ErrorType`` is what makes boto3 raise the modelled exception; a body alone gives
a bare ``ClientError``. Every refusal of the runtime is a ``WireError`` raised somewhere inside and
turned into an answer in one place, ``server.py``.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from . import signature

SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
SESSION_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{32,255}")
REQUEST_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Request-Id"
ERROR_HEADER = "x-amzn-ErrorType"
REQUEST_ID_HEADER = "x-amzn-RequestId"
BODY = web.RequestKey("body", bytes)
"""Of a request: its body, where it had to be read before the request could be trusted."""
CHUNKS = web.RequestKey("chunks", signature.Chunks)
"""Of a request: what checks its body, where that is signed piece by piece."""


class WireError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, name: str, message: str, **members: Any) -> None:
        super().__init__(status, name, message)
        self.status, self.name, self.message, self.members = status, name, message, members

    def __str__(self) -> str:
        return f"{self.name} ({self.status}): {self.message}"

    def response(self, session_id: str = "") -> web.Response:
        """An id that is none is not said back."""
        headers = {ERROR_HEADER: self.name}
        if SESSION_ID.fullmatch(session_id):
            headers[SESSION_HEADER] = session_id
        return json_response({"message": self.message, **self.members}, self.status, headers)


def invalid(message: str, field: str | None = None) -> WireError:
    members: dict[str, Any] = {"reason": "FieldValidationFailed" if field else "CannotParse"}
    if field:
        members["fieldList"] = [{"name": field, "message": message}]
    return WireError(400, "ValidationException", message, **members)


def not_found(message: str) -> WireError:
    return WireError(404, "ResourceNotFoundException", message)


def conflict(message: str) -> WireError:
    return WireError(409, "ConflictException", message)


def retry_conflict() -> WireError:
    return WireError(
        409, "RetryableConflictException", "Session operation in progress, please retry"
    )


def runtime_error(message: str) -> WireError:
    return WireError(424, "RuntimeClientError", message)


def throttled() -> WireError:
    return WireError(429, "ThrottlingException", "Rate exceeded")


def quota_exceeded(message: str) -> WireError:
    return WireError(402, "ServiceQuotaExceededException", message)


def denied(message: str) -> WireError:
    return WireError(403, "AccessDeniedException", message)


def internal(message: str) -> WireError:
    return WireError(500, "InternalServerException", message)


def unavailable(message: str) -> WireError:
    return WireError(503, "ServiceUnavailableException", message)


def not_implemented(what: str) -> WireError:
    return WireError(
        501,
        "NotImplementedException",
        f"{what} is not implemented by the local AgentCore Runtime yet",
    )


def json_response(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        # half of a surrogate pair, as an agent's error may hold it, stays an escape
        body=json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace"),
        status=status,
        content_type="application/json",
        headers={REQUEST_ID_HEADER: str(uuid.uuid4()), **(headers or {})},
    )


def timestamp(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
