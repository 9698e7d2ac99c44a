"""What a request names: bucket, key and query, and what its headers ask of an object.

Pure. Reads the raw request target because a key may hold anything: ``..``, ``//``, ``%2F`` and
``+`` mean themselves here, while URL libraries tidy them away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

from .refusal import Refused, precondition
from .store import DEFAULT_CONTENT_TYPE, Condition, StoredObject

KEPT_HEADERS = (
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Expires",
    "x-amz-tagging",
)
REFUSED_HEADERS = (
    "x-amz-server-side-encryption-customer-",
    "x-amz-object-lock-",
    "x-amz-website-redirect-location",
    "x-amz-write-offset-bytes",
    "x-amz-copy-source-if-",
)
"""Beginnings of those that would change what the caller gets. Storage class, ACL and server-side
encryption headers are accepted without effect: all is private and on one disk here."""
MAX_METADATA_BYTES = 2048

_SIGNING = frozenset(
    {
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-signedheaders",
        "x-amz-signature",
        "x-amz-security-token",
        "x-amz-content-sha256",
        "x-amz-user-agent",
        "x-id",
        "awsaccesskeyid",
        "signature",
        "expires",
    }
)
"""Query parameters of presigned URLs and of SDKs' own book-keeping."""
_META = "x-amz-meta-"
_BAD_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")
_RANGE = re.compile(r"bytes=(?:(\d{1,19})-(\d{0,19})|-(\d{1,19}))")
_HEADER_SAFE = re.compile(r"[\t\x20-\x7e\u0080-\ud7ff\ue000-\U0010ffff]*")


@dataclass(frozen=True)
class Target:
    bucket: str
    key: str
    query: dict[str, str]
    """Without what only signs."""

    @classmethod
    def of(cls, raw: str) -> Target:
        path, _, query = raw.partition("?")
        if not path.startswith("/"):  # absolute form: http://host/path
            path = "/" + path.partition("://")[2].partition("/")[2]
        bucket, _, key = path[1:].partition("/")
        if not query:
            return cls(_decoded(bucket), _decoded(key), {})
        _decoded(query)
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64, errors="strict")
        except ValueError:
            raise Refused("InvalidURI", "Couldn't parse the specified URI.") from None
        return cls(
            _decoded(bucket),
            _decoded(key),
            {name: value for name, value in pairs if name.lower() not in _SIGNING},
        )

    def number(self, name: str, default: int, most: int) -> int:
        value = self.query.get(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > 2**31 - 1:
            raise Refused("InvalidArgument", f"Argument {name} must be an integer from 0.")
        return min(int(value), most)


def _decoded(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    if b"%" not in raw and raw.isascii():
        return text
    try:
        if _BAD_ESCAPE.search(raw):
            raise ValueError
        return unquote_to_bytes(raw).decode()
    except ValueError:
        raise Refused("InvalidURI", "Couldn't parse the specified URI.") from None


def write_condition(headers: Mapping[str, str], once: bool) -> Condition:
    absent = headers.get("If-None-Match")
    if absent not in (None, "*"):
        raise Refused("NotImplemented", "If-None-Match of a write is * or nothing.")
    match = headers.get("If-Match")
    return Condition(absent is not None, match.strip().strip('"') if match else None, once)


def check_read(headers: Mapping[str, str], found: StoredObject) -> None:
    """Refused with PreconditionFailed or NotModified, in HTTP's order of precedence."""
    match, none = headers.get("If-Match"), headers.get("If-None-Match")
    if match is not None:
        if not _names(match, found.etag):
            raise precondition("If-Match")
    elif (since := _moment(headers.get("If-Unmodified-Since"))) and found.modified > since:
        raise precondition("If-Unmodified-Since")
    if none is not None:
        if _names(none, found.etag):
            raise _not_modified(found)
    elif (since := _moment(headers.get("If-Modified-Since"))) and found.modified <= since:
        raise _not_modified(found)


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """(first, past the last) of a satisfiable range; None when the whole object is meant."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    if match[3] is not None:
        first, end = max(0, size - int(match[3])), size
    else:
        first, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < first:
            return None
    if first >= end:
        refused = Refused("InvalidRange", "The requested range is not satisfiable")
        refused.headers["Content-Range"] = f"bytes */{size}"
        raise refused
    return first, end


def described(
    headers: Mapping[str, str],
) -> tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """(content type, user metadata, kept headers) that a write gives its object."""
    metadata: list[tuple[str, str]] = []
    for name, value in headers.items():
        low = name.lower()
        if low.startswith(_META):
            metadata.append((low.removeprefix(_META), header_value(name, value)))
        elif low.startswith(REFUSED_HEADERS):
            raise Refused("NotImplemented", f"The header {name} is not supported here.")
    if sum(len(name) + len(value.encode()) for name, value in metadata) > MAX_METADATA_BYTES:
        raise Refused("MetadataTooLarge", f"User metadata is at most {MAX_METADATA_BYTES} bytes.")
    kept = []
    for name in KEPT_HEADERS:
        value = headers.get(name, "")
        if name == "Content-Encoding":
            parts = [part.strip() for part in value.split(",")]
            value = ",".join(part for part in parts if part and part != "aws-chunked")
        if value:
            kept.append((name, header_value(name, value)))
    content_type = headers.get("Content-Type") or DEFAULT_CONTENT_TYPE
    return header_value("Content-Type", content_type), tuple(metadata), tuple(kept)


def answered(found: StoredObject, checksum: bool) -> dict[str, str]:
    """The headers that describe an object in an answer."""
    headers = {
        "ETag": f'"{found.etag}"',
        "Last-Modified": http_date(found.modified),
        "Content-Type": found.content_type,
        "Accept-Ranges": "bytes",
    }
    for name, value in found.headers:
        if name == "x-amz-tagging":
            headers["x-amz-tagging-count"] = str(len(tags(found)))
        else:
            headers[name] = value
    for name, value in found.metadata:
        headers[_META + name] = value
    if checksum:
        headers |= checksum_headers(found)
    return headers


def checksum_headers(found: StoredObject) -> dict[str, str]:
    if found.checksum is None:
        return {}
    algorithm, value = found.checksum
    return {f"x-amz-checksum-{algorithm}": value, "x-amz-checksum-type": found.checksum_type}


def tags(found: StoredObject) -> list[tuple[str, str]]:
    return parse_qsl(dict(found.headers).get("x-amz-tagging", ""), keep_blank_values=True)


def copy_source(value: str) -> tuple[str, str]:
    path, _, query = value.partition("?")
    if query:
        raise Refused("NotImplemented", "Object versions are not supported here.")
    try:
        bucket, _, key = unquote(path, errors="strict").removeprefix("/").partition("/")
    except UnicodeError:
        bucket = key = ""
    if not bucket or not key:
        raise Refused("InvalidArgument", "Copy source must mention the source bucket and key.")
    return bucket, key


def header_value(name: str, value: str) -> str:
    """The value, unless it could not be sent back in a header."""
    if not _HEADER_SAFE.fullmatch(value):
        raise Refused("InvalidArgument", f"The value of {name} cannot be a header.")
    return value


def http_date(unix: int) -> str:
    return formatdate(unix, usegmt=True)


def _names(header: str, etag: str) -> bool:
    given = [item.strip().removeprefix("W/").strip('"') for item in header.split(",")]
    return "*" in given or etag in given


def _moment(value: str | None) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if value else None
    except ValueError:
        return None


def _not_modified(found: StoredObject) -> Refused:
    refused = Refused("NotModified", "Not Modified")
    refused.headers |= {"ETag": f'"{found.etag}"', "Last-Modified": http_date(found.modified)}
    return refused
