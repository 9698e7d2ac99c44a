"""A request body on its way to a draft: decoded, bounded, and checked against its promises.

The headers of a put promise digests of the content (``x-amz-content-sha256``, ``Content-MD5``,
one ``x-amz-checksum-*``, perhaps only in a trailer). ``Promise`` reads them before the body is,
``receive`` streams the body, and nothing is sealed unless all of them hold. Where the pieces of a
body are signed one by one, the request carries what checks them (``ChunksLike``).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from aiohttp import ClientError, web

from .. import wire
from ..signature import Rejected
from .draft import ALGORITHMS, SPILL_BYTES, UNSUPPORTED_ALGORITHMS, Draft
from .refusal import Refused
from .store import ObjectStore

INLINE_BYTES = 256 * 1024
"""Up to here hashing on the event loop costs less than a millisecond; beyond, a thread does it."""
MAX_LINE_BYTES = 4096

P = TypeVar("P")
T = TypeVar("T")

_CHECKSUM = "x-amz-checksum-"
_NOT_DIGESTS = frozenset({"x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-checksum-mode"})
_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,16})(?:;[^\r\n]*?)?")
_SIGNED_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,16});chunk-signature=([0-9a-f]{64})")
_TRAILER_SIGNATURE = "x-amz-trailer-signature"


@dataclass(frozen=True)
class Promise:
    length: int | None
    """Of the decoded content."""
    chunked: bool
    """aws-chunked: sizes, data and trailers inside the HTTP body."""
    md5: bytes | None
    sha256: bytes | None
    algorithm: str | None
    checksum: bytes | None
    """None while it is still to come, in the trailer."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Promise:
        sha256 = headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        streaming = sha256.startswith("STREAMING-")
        chunked = streaming or "aws-chunked" in headers.get("Content-Encoding", "")
        length = headers.get("x-amz-decoded-content-length" if chunked else "Content-Length")
        if length is not None and not re.fullmatch(r"[0-9]{1,18}", length):
            raise Refused("InvalidArgument", f"The length {length[:40]!r} is not a number.")
        algorithm, checksum = _promised_checksum(headers)
        return cls(
            length=None if length is None else int(length),
            chunked=chunked,
            md5=_promised_md5(headers.get("Content-MD5")),
            sha256=None if streaming else _promised_sha256(sha256),
            algorithm=algorithm,
            checksum=checksum,
        )

    def algorithms(self) -> set[str]:
        wanted = {"sha256"} if self.sha256 is not None else set()
        return wanted | ({self.algorithm} if self.algorithm else set())

    def check(self, draft: Draft, trailers: Mapping[str, str]) -> None:
        if self.length is not None and draft.size != self.length:
            raise Refused(
                "IncompleteBody", f"{self.length} bytes were announced, {draft.size} came."
            )
        if self.md5 is not None and draft.md5 != self.md5:
            raise Refused("BadDigest", "The Content-MD5 you specified did not match the content.")
        if self.sha256 is not None and draft.checksum("sha256") != self.sha256:
            raise Refused(
                "XAmzContentSHA256Mismatch",
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            )
        if self.algorithm is None:
            return
        promised = self.checksum
        if promised is None:
            promised = _trailing_checksum(self.algorithm, trailers)
        if draft.checksum(self.algorithm) != promised:
            raise Refused(
                "BadDigest",
                f"The {self.algorithm.upper()} you specified did not match the content.",
            )


def _promised_md5(value: str | None) -> bytes | None:
    if value is None:
        return None
    digest = _decode(value)
    if digest is None or len(digest) != 16:
        raise Refused("InvalidDigest", "The Content-MD5 you specified is not valid.")
    return digest


def _promised_sha256(value: str) -> bytes | None:
    if value == "UNSIGNED-PAYLOAD":
        return None
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise Refused(
            "InvalidArgument",
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-… or a valid sha256 value.",
        )
    return bytes.fromhex(value)


def _promised_checksum(headers: Mapping[str, str]) -> tuple[str | None, bytes | None]:
    given = [
        name.lower()
        for name in headers
        if name.lower().startswith(_CHECKSUM) and name.lower() not in _NOT_DIGESTS
    ]
    trailer = headers.get("x-amz-trailer", "").strip().lower()
    if trailer and not trailer.startswith(_CHECKSUM):
        raise Refused("InvalidRequest", "x-amz-trailer must name one x-amz-checksum-* header.")
    if len(given) + bool(trailer) > 1:
        raise Refused("InvalidRequest", "Expecting a single x-amz-checksum- header.")
    asked = headers.get("x-amz-sdk-checksum-algorithm")
    if not given and not trailer:
        if asked is not None:
            raise Refused(
                "InvalidRequest",
                "x-amz-sdk-checksum-algorithm specified, but no corresponding "
                "x-amz-checksum-* or x-amz-trailer headers were found.",
            )
        return None, None
    name = given[0] if given else trailer
    algorithm = _known(name.removeprefix(_CHECKSUM))
    return algorithm, _checksum(algorithm, headers[name]) if given else None


def _trailing_checksum(algorithm: str, trailers: Mapping[str, str]) -> bytes:
    value = trailers.get(_CHECKSUM + algorithm)
    if value is None:
        raise Refused("InvalidRequest", f"The trailer {_CHECKSUM}{algorithm} did not come.")
    return _checksum(algorithm, value)


def _known(algorithm: str) -> str:
    if algorithm in UNSUPPORTED_ALGORITHMS:
        raise Refused(
            "NotImplemented",
            f"{algorithm.upper()} checksums are not computed here: use CRC32, SHA1 or SHA256.",
        )
    if algorithm not in ALGORITHMS:
        raise Refused("InvalidRequest", f"{_CHECKSUM}{algorithm[:40]} is not a checksum header.")
    return algorithm


def _checksum(algorithm: str, value: str) -> bytes:
    digest = _decode(value)
    if digest is None or len(digest) != ALGORITHMS[algorithm][1]:
        raise Refused("InvalidRequest", f"Value for {_CHECKSUM}{algorithm} header is invalid.")
    return digest


def _decode(value: str) -> bytes | None:
    try:
        return base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


class ChunksLike(Protocol):
    """Who checks the signatures in the body; ``Rejected`` when one is wrong."""

    def check(self, signature: str, data_sha256: str) -> None: ...

    def check_trailer(self, signature: str, trailer: bytes) -> None: ...


class AwsChunked:
    """Decodes ``aws-chunked`` as it comes. Without ``chunks`` signatures are stepped over."""

    def __init__(self, chunks: ChunksLike | None = None) -> None:
        self._chunks = chunks
        self._signature = ""
        self._hash = hashlib.sha256()
        self.trailers: dict[str, str] = {}
        self.done = False
        self._held = b""
        """An incomplete line, or the half of a line end."""
        self._left = 0
        """Bytes of the current chunk still to come, its CR LF included."""
        self._in_trailer = False

    def feed(self, data: bytes) -> list[bytes]:
        data = self._held + data
        out: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left > 2:
                piece = data[at : at + self._left - 2]
                at, self._left = at + len(piece), self._left - len(piece)
                if self._chunks is not None:
                    self._hash.update(piece)
                out.append(piece)
                continue
            end = data.find(b"\r\n", at, at + MAX_LINE_BYTES)
            if end < 0:
                if len(data) - at >= (2 if self._left else MAX_LINE_BYTES):
                    raise _broken("a line does not end")
                break
            self._line(data[at:end])
            at = end + 2
        self._held = data[at:]
        return out

    def _line(self, line: bytes) -> None:
        if self.done or (self._left and line):
            raise _broken("there is more than was announced")
        if self._left:
            self._left = 0
            self._check_chunk()
            return
        if self._in_trailer:
            self._trailer_line(line)
            return
        match = (_SIGNED_SIZE_LINE if self._chunks else _SIZE_LINE).fullmatch(line)
        if match is None:
            raise _broken("a chunk has no size, or no signature where it needs one")
        size = int(match[1], 16)
        self._left = size + 2 if size else 0
        self._in_trailer = size == 0
        if self._chunks is not None:
            self._signature, self._hash = match[2].decode(), hashlib.sha256()
            if size == 0:
                self._check_chunk()

    def _check_chunk(self) -> None:
        if self._chunks is not None:
            self._chunks.check(self._signature, self._hash.hexdigest())

    def _trailer_line(self, line: bytes) -> None:
        if not line:
            self._check_trailer()
            self.done = True
            return
        name, found, value = line.decode("latin-1").partition(":")
        if not found or len(self.trailers) > 16:
            raise _broken("a trailer is not a header")
        self.trailers[name.strip().lower()] = value.strip()

    def _check_trailer(self) -> None:
        if self._chunks is None or not self.trailers:
            return
        signature = self.trailers.pop(_TRAILER_SIGNATURE, "")
        lines = (f"{name}:{value}\n" for name, value in self.trailers.items())
        self._chunks.check_trailer(signature, "".join(lines).encode("latin-1"))


def _broken(why: str) -> Refused:
    return Refused("InvalidRequest", f"The aws-chunked body is malformed: {why}.")


async def receive(
    request: web.Request, store: ObjectStore, promise: Promise, limit: int, draft: Draft
) -> None:
    """Fills the draft with the body, or Refused; the caller discards it in either case."""
    if promise.length is not None and promise.length > limit:
        raise _too_large(limit)
    decoder = AwsChunked(request.get(wire.CHUNKS)) if promise.chunked else None
    pending: list[bytes] = []
    held = total = 0
    async for piece in _pieces(request, decoder):
        pending.append(piece)
        held, total = held + len(piece), total + len(piece)
        if total > limit:
            raise _too_large(limit)
        if held >= SPILL_BYTES:
            await in_thread(store, draft.write, b"".join(pending))
            pending, held = [], 0
    if held > INLINE_BYTES or (held and total > held):
        await in_thread(store, draft.write, b"".join(pending))
    elif held:
        draft.write(b"".join(pending))
    if decoder is not None and not decoder.done:
        raise Refused("IncompleteBody", "The aws-chunked body ends before its last chunk.")
    promise.check(draft, decoder.trailers if decoder else {})


async def _pieces(request: web.Request, decoder: AwsChunked | None) -> AsyncIterator[bytes]:
    stream = request.content
    while True:
        try:
            data = await stream.readany()
        except (ConnectionError, ClientError, web.PayloadAccessError) as error:
            raise Refused("IncompleteBody", "The connection ended before the body did.") from error
        if not data:
            return
        if decoder is None:
            yield data
        else:
            try:
                decoded = decoder.feed(data)
            except Rejected as rejected:
                raise Refused("SignatureDoesNotMatch", rejected.message) from rejected
            for piece in decoded:
                yield piece


async def in_thread(store: ObjectStore, call: Callable[[P], T], argument: P) -> T:
    """Waits for the thread even when cancelled: it may hold a file that is closed next."""
    future = asyncio.get_running_loop().run_in_executor(store.pool, call, argument)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


def _too_large(limit: int) -> Refused:
    return Refused("EntityTooLarge", f"Your upload exceeds the maximum of {limit} bytes.")
