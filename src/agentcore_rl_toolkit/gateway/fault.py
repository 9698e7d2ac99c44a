"""What the gateway says when it does not answer with a model's reply.

A ``Refusal`` carries everything an error reply needs; the dialect that was spoken decides its
shape. ``retry`` becomes ``x-should-retry``, which the OpenAI and Anthropic SDKs obey: a refusal
that cannot change is not asked for three times.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import GatewayError


class Refusal(GatewayError):
    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry: bool | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message
        self.code, self.param = code, param
        self.retry = status >= 500 if retry is None else retry
        self.headers = dict(headers or {})
        self.body = body
        """An engine's own error in the dialect's shape, passed on as it came."""

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.status, self.message, self.code, self.param, self.retry)

    @property
    def type(self) -> str:
        """OpenAI's ``error.type``."""
        if self.status in (401, 403):
            return "authentication_error" if self.status == 401 else "permission_error"
        if self.status == 404:
            return "not_found_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"


def _rebuild(
    status: int, message: str, code: str | None, param: str | None, retry: bool
) -> Refusal:
    return Refusal(status, message, code=code, param=param, retry=retry)


def bad_request(message: str, param: str | None = None) -> Refusal:
    return Refusal(400, message, param=param, code="invalid_value", retry=False)


def engine_fault(message: str, *, retry: bool = True) -> Refusal:
    """The engine answered, but not with what capture needs: never a turn."""
    return Refusal(502, message, code="engine_error", retry=retry)
