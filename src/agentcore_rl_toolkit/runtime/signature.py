"""AWS Signature Version 4 from the side that checks it. Pure: text in, a verdict out.

A request claims who signed it, in its ``Authorization`` header or, presigned, in its query
(``read_claim``). ``verify`` computes the signature again from what came over the wire and compares
in constant time. What the wire says is taken literally, nothing is tidied first, so that a request
which is routed differently is also signed differently. ``Chunks`` does the same for an upload whose
pieces are signed one by one.

Who the keys belong to and how a refusal is worded are the caller's business: ``guard.py``.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote, unquote

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_S = 15 * 60
MAX_EXPIRES_S = 7 * 24 * 3600
UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

Fault = Literal["missing", "malformed", "skewed", "expired", "mismatch", "unknown", "token"]
Headers = Iterable[tuple[str, str]]

_AUTHORIZATION = re.compile(
    ALGORITHM + r" +Credential=([^\s,]+), *SignedHeaders=([^\s,]+), *Signature=([0-9a-f]{64})"
)
_CREDENTIAL = re.compile(
    r"([\x21-\x2e\x30-\x7e]{1,128})/(\d{8})/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/aws4_request"
)
_STAMP = re.compile(r"\d{8}T\d{6}Z")
_SIGNED_NAMES = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+(;[!#$%&'*+.^_`|~0-9a-z-]+)*")
_PAYLOAD = re.compile(r"[0-9a-f]{64}")
_QUERY = ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders")


class Rejected(Exception):
    """The request is not what its signer signed, or nobody signed it."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(fault, message)
        self.fault: Fault = fault
        self.message = message


@dataclass(frozen=True)
class Claim:
    access_key: str
    stamp: str
    """When it was signed, as on the wire: 20260131T235959Z."""
    region: str
    service: str
    signed: tuple[str, ...]
    """Lower-case names of the signed headers, sorted."""
    signature: str
    expires_s: int | None = None
    """Of a presigned URL."""
    token: bool = False
    """It brings a session token."""

    @property
    def scope(self) -> str:
        return f"{self.stamp[:8]}/{self.region}/{self.service}/aws4_request"


def read_claim(target: str, headers: Headers) -> Claim:
    """``target``: path and query as on the request line."""
    given = _grouped(headers)
    query = _pairs(target)
    presigned = any(name == "X-Amz-Algorithm" for name, _ in query)
    authorization = given.get("authorization", [])
    if authorization and presigned:
        raise Rejected("malformed", "Only one of the Authorization header and the query may sign")
    if presigned:
        claim = _from_query(query)
    elif not authorization:
        if any(name == "AWSAccessKeyId" for name, _ in query):
            raise Rejected("malformed", f"Please use {ALGORITHM}: signature_version='s3v4'")
        raise Rejected("missing", "The request is not signed")
    else:
        claim = _from_header(authorization, given)
    _check_signed(claim, given)
    return claim


def _from_header(authorization: list[str], given: dict[str, list[str]]) -> Claim:
    match = _AUTHORIZATION.fullmatch(authorization[0].strip()) if len(authorization) == 1 else None
    if match is None:
        raise Rejected(
            "malformed",
            f"Authorization must be '{ALGORITHM} Credential=…, SignedHeaders=…, Signature=…'",
        )
    stamps = given.get("x-amz-date", [])
    if len(stamps) != 1:
        raise Rejected("malformed", "The header X-Amz-Date must be there once")
    claim = _claim(match[1], stamps[0].strip(), match[2], match[3])
    if "x-amz-security-token" in given:
        claim = Claim(**{**vars(claim), "token": True})
    return claim


def _from_query(query: list[tuple[str, str]]) -> Claim:
    found: dict[str, str] = {}
    for name, value in query:
        if name.lower().startswith("x-amz-"):
            if name in found:
                raise Rejected("malformed", f"{name[:40]} is there twice")
            found[name] = value
    if found["X-Amz-Algorithm"] != ALGORITHM:
        raise Rejected("malformed", f"X-Amz-Algorithm only supports {ALGORITHM}")
    missing = [name for name in (*_QUERY, "X-Amz-Signature") if name not in found]
    if missing:
        raise Rejected("malformed", f"The query lacks {missing[0]}")
    if not re.fullmatch(r"[0-9a-f]{64}", found["X-Amz-Signature"]):
        raise Rejected("malformed", "X-Amz-Signature is not a signature")
    expires = found["X-Amz-Expires"]
    if not re.fullmatch(r"[0-9]{1,6}", expires) or not 1 <= int(expires) <= MAX_EXPIRES_S:
        raise Rejected("malformed", f"X-Amz-Expires must be 1 to {MAX_EXPIRES_S} seconds")
    claim = _claim(
        found["X-Amz-Credential"],
        found["X-Amz-Date"],
        found["X-Amz-SignedHeaders"],
        found["X-Amz-Signature"],
    )
    token = "X-Amz-Security-Token" in found
    return Claim(**{**vars(claim), "expires_s": int(expires), "token": token})


def _claim(credential: str, stamp: str, signed: str, signature: str) -> Claim:
    match = _CREDENTIAL.fullmatch(credential)
    if match is None:
        raise Rejected(
            "malformed", "Credential must be <access key>/<date>/<region>/<service>/aws4_request"
        )
    if not _STAMP.fullmatch(stamp) or _moment(stamp) is None:
        raise Rejected("malformed", "X-Amz-Date must look like 20260131T235959Z")
    if match[2] != stamp[:8]:
        raise Rejected("malformed", "Credential and X-Amz-Date name different days")
    names = tuple(signed.split(";"))
    if not _SIGNED_NAMES.fullmatch(signed) or list(names) != sorted(set(names)):
        raise Rejected("malformed", "SignedHeaders must be lower-case names in order, once each")
    return Claim(match[1], stamp, match[3], match[4], names, signature)


def _check_signed(claim: Claim, given: dict[str, list[str]]) -> None:
    """A header that changes what a request means must not be added on the way."""
    if "host" not in claim.signed:
        raise Rejected("malformed", "'Host' must be a signed header")
    for name in given:
        if name.startswith("x-amz-") and name not in claim.signed:
            raise Rejected(
                "mismatch", f"There were headers in the request which were not signed: {name[:80]}"
            )
    for name in claim.signed:
        if name not in given:
            raise Rejected("mismatch", f"The signed header {name[:80]} did not come")


def check_time(claim: Claim, now: float) -> None:
    signed = _moment(claim.stamp)
    assert signed is not None
    if signed > now + SKEW_S:
        raise Rejected(
            "skewed", f"Signature not yet current: {claim.stamp} is later than {stamp(now)}"
        )
    if claim.expires_s is not None:
        if now >= signed + claim.expires_s:
            raise Rejected("expired", "Request has expired")
    elif signed < now - SKEW_S:
        raise Rejected("skewed", f"Signature expired: {claim.stamp} is earlier than {stamp(now)}")


def stamp(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def _moment(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def verify(
    claim: Claim, secret: str, method: str, target: str, headers: Headers, payload: str
) -> None:
    """``payload``: the SHA-256 of the body in hex, or the word that stands for it."""
    canonical = canonical_request(claim, method, target, headers, payload)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
    text = "\n".join((ALGORITHM, claim.stamp, claim.scope, digest))
    expected = _sign(signing_key(secret, claim), text)
    if not hmac.compare_digest(expected, claim.signature):
        raise Rejected(
            "mismatch",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method",
        )


def canonical_request(
    claim: Claim, method: str, target: str, headers: Headers, payload: str
) -> str:
    path, _, query = target.partition("?")
    # S3 signs the path as it is sent; every other service encodes it once more.
    path = quote(path, safe="/%-_.~" if claim.service == "s3" else "/-_.~", **_RAW)
    pairs = []
    for pair in query.split("&") if query else []:
        name, _, value = pair.partition("=")
        if name != "X-Amz-Signature":
            pairs.append(
                (quote(name, safe=_QUERY_SAFE, **_RAW), quote(value, safe=_QUERY_SAFE, **_RAW))
            )
    given = _grouped(headers)
    lines = [
        f"{name}:{','.join(' '.join(value.split()) for value in given[name])}"
        for name in claim.signed
    ]
    query = "&".join(f"{name}={value}" for name, value in sorted(pairs))
    return "\n".join((method, path, query, *lines, "", ";".join(claim.signed), payload))


_RAW: dict[str, str] = {"encoding": "utf-8", "errors": "surrogateescape"}
_QUERY_SAFE = "%+-_.~"
"""A plus stays one: read as a space later, it must not be signed like an encoded plus."""


def _grouped(headers: Headers) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in headers:
        grouped.setdefault(name.lower(), []).append(value)
    return grouped


def _pairs(target: str) -> list[tuple[str, str]]:
    query = target.partition("?")[2]
    split = (pair.partition("=") for pair in query.split("&") if pair)
    return [(unquote(name), unquote(value)) for name, _, value in split]


def signing_key(secret: str, claim: Claim) -> bytes:
    return _signing_key(secret, claim.stamp[:8], claim.region, claim.service)


@functools.lru_cache(64)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _sign(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode(), "sha256").hex()


def check_payload(word: str) -> str:
    """What ``x-amz-content-sha256`` may say."""
    known = (UNSIGNED, STREAMED, STREAMED_TRAILER, UNSIGNED_TRAILER)
    if word not in known and not _PAYLOAD.fullmatch(word):
        raise Rejected("malformed", f"x-amz-content-sha256 says {word[:80]!r}, which is not known")
    return word


class Chunks:
    """The signatures of an aws-chunked body, each over its data and the signature before it."""

    def __init__(self, claim: Claim, secret: str) -> None:
        self._key = signing_key(secret, claim)
        self._head = f"{claim.stamp}\n{claim.scope}"
        self._last = claim.signature

    def check(self, signature: str, data_sha256: str) -> None:
        text = f"{ALGORITHM}-PAYLOAD\n{self._head}\n{self._last}\n{EMPTY_SHA256}\n{data_sha256}"
        self._compare(signature, text)

    def check_trailer(self, signature: str, trailer: bytes) -> None:
        """``trailer``: its lines as ``name:value\\n``."""
        digest = hashlib.sha256(trailer).hexdigest()
        self._compare(signature, f"{ALGORITHM}-TRAILER\n{self._head}\n{self._last}\n{digest}")

    def _compare(self, signature: str, text: str) -> None:
        expected = _sign(self._key, text)
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            raise Rejected("mismatch", "The signature of a chunk of the body does not match")
        self._last = expected
