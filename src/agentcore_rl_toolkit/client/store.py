"""Reads results from S3, or from the local runtime's subset of it.

Knows what each refusal means and nothing of who waits: absent is an answer, trouble that passes
is ``Transient`` (the caller asks again), what would recur for every rollout is ContractError.
S3 answers 403 instead of 404 for a missing key when the caller may not list the bucket: that
counts as absent, is said once, and is remembered for the message of a timeout.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from ..errors import AgentError, ConfigError, ContractError

logger = logging.getLogger(__name__)

LISTED_PER_HEAD = 25
"""Reading this many entries of a listing costs about as much as one HEAD request."""


class Transient(Exception):
    """The store had a passing problem."""


BROKEN = (BotoCoreError, ResponseParserError, OSError)
"""No answer, half of one, or none that could be read."""


class Denied(Exception):
    """Listing is not permitted, or not possible: ask key by key."""


@dataclasses.dataclass(frozen=True)
class Looks:
    """How often one key is asked for when listing does not pay."""

    initial_s: float = 0.5
    max_s: float = 30.0
    factor: float = 1.5

    def __post_init__(self) -> None:
        if not (self.initial_s > 0 and self.max_s >= self.initial_s and self.factor >= 1):
            raise ConfigError(
                "initial_interval must be above 0, max_interval not below it, backoff_factor at "
                f"least 1; got {self.initial_s}, {self.max_s} and {self.factor}"
            )

    def after(self, every_s: float, age_s: float) -> float:
        """The next pause: it grows, but a result never waits for more than a twentieth of the
        time that it took."""
        return min(self.max_s, max(self.initial_s, min(every_s * self.factor, age_s / 20)))


class Store:
    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self.hint = ""
        """Why results may never be seen, once known; empty otherwise."""

    def exists(self, bucket: str, key: str) -> bool:
        try:
            self._client().head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            status = status_of(error)
            if status == 404:
                return False
            if status == 403:
                self._note_denied(bucket)
                return False
            raise _store_error(error, bucket) from error
        except BROKEN as error:
            raise _store_error(error, bucket) from error
        return True

    def read(self, bucket: str, key: str) -> dict[str, Any] | None:
        """The result, or None when there is none."""
        try:
            response = self._client().get_object(Bucket=bucket, Key=key)
            body = response["Body"]
            try:
                data = body.read()
            finally:
                body.close()
            check_whole(response, data)
        except ClientError as error:
            if status_of(error) == 404 and code_of(error) != "NoSuchBucket":
                return None
            raise _store_error(error, bucket) from error
        except BROKEN as error:
            raise _store_error(error, bucket) from error
        return parse_result(data, key)

    def keys(self, bucket: str, prefix: str, start_after: str) -> Iterator[list[str]]:
        """Pages of keys in order. Denied when the bucket cannot be listed."""
        token: dict[str, str] = {"StartAfter": start_after} if start_after else {}
        while True:
            try:
                with _keys_only():
                    page = self._client().list_objects_v2(Bucket=bucket, Prefix=prefix, **token)
            except ClientError as error:
                if status_of(error) == 403:
                    raise Denied(bucket) from error
                raise _store_error(error, bucket) from error
            except BROKEN as error:
                raise _store_error(error, bucket) from error
            if not isinstance(page, dict):
                raise Denied(bucket)
            yield [entry["Key"] for entry in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _note_denied(self, bucket: str) -> None:
        if not self.hint:
            self.hint = (
                f"S3 answers 403 for keys of bucket {bucket}: the caller needs s3:GetObject and "
                "s3:ListBucket on it"
            )
            logger.warning("bucket=<%s> | reading it is denied: %s", bucket, self.hint)


_listing = threading.local()
_UNREAD = re.compile(rb"<(LastModified|ETag|Size|StorageClass|Checksum\w+)>[^<]*</\1>")


def spare_listings(client: Any) -> None:
    """Of a listing only the keys are wanted here, and botocore takes 0.1 ms to read one date."""
    client.meta.events.register("before-parse.s3.ListObjectsV2", _leave_out)


@contextlib.contextmanager
def _keys_only() -> Iterator[None]:
    """For this thread's request: others may use the client as well, and read it all."""
    _listing.ours = True
    try:
        yield
    finally:
        _listing.ours = False


def _leave_out(response_dict: dict[str, Any], **_: Any) -> None:
    if getattr(_listing, "ours", False):
        response_dict["body"] = _UNREAD.sub(b"", response_dict["body"])


def check_whole(response: Any, data: bytes) -> None:
    """ConnectionError when the connection ended inside the head of the answer.

    What was cut in the body is noticed by botocore. A head that was cut is read as far as it goes:
    a success without a length and without a body.
    """
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders")
    framed = headers is None or "content-length" in headers or "transfer-encoding" in headers
    if not data and not framed:
        raise ConnectionError("the connection ended inside the head of the answer")


def parse_result(data: bytes, key: str) -> dict[str, Any]:
    try:
        result = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AgentError(f"the result at {key} is not JSON: {error}") from error
    if not isinstance(result, dict):
        raise AgentError(f"the result at {key} is a JSON {type(result).__name__}, not an object")
    return result


def common_prefix(keys: Iterable[str]) -> str:
    """The longest common prefix that ends with '/', or the empty string."""
    low, high = min(keys), max(keys)
    shared = 0
    while shared < min(len(low), len(high)) and low[shared] == high[shared]:
        shared += 1
    return low[: low.rfind("/", 0, shared) + 1]


def listing_pays(pages: int, listed: int, pending: int) -> bool:
    """Whether one listing costs no more than asking for each pending key."""
    return pages + listed / LISTED_PER_HEAD <= max(1, pending)


def status_of(error: ClientError) -> int:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if isinstance(status, int):
        return status
    code = code_of(error)
    if code.isdigit():
        return int(code)
    return {"NoSuchKey": 404, "NoSuchBucket": 404, "NotFound": 404, "AccessDenied": 403}.get(
        code, 500
    )


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def message_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", "")) or str(error)


def _store_error(error: Exception, bucket: str) -> Exception:
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return ContractError(f"no AWS credentials to read bucket {bucket}: {error}")
    if not isinstance(error, ClientError):
        return Transient(str(error))
    status, code = status_of(error), code_of(error)
    if code == "NoSuchBucket":
        return ContractError(f"bucket {bucket} does not exist: create it, or correct s3_bucket")
    passing = {"RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling"}
    if status >= 500 or status in (408, 409, 429) or code in passing:
        return Transient(f"{code}: {message_of(error)}")
    return ContractError(
        f"the result store refuses to be read ({status} {code}: {message_of(error)}): "
        f"the caller needs s3:GetObject and s3:ListBucket on bucket {bucket}"
    )
