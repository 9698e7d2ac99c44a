"""The S3 subset over HTTP: path style, on the runtime's own port.

``ObjectServer.handle`` takes every request that is not the runtime's own and answers as S3 does,
errors included. What is not in ``_ROUTES`` is refused with 501 NotImplemented (or 405) and never
answered as something else: the table names every query parameter that a call understands.
Signatures are checked before this (``guard.py``), versions and ACLs do not exist.

A request may come with a ``Scope``: that is a session of an agent, which may write one key once
and read it back, and nothing else. Who the request comes from is the caller's to know.

The store and the uploads are touched on the event loop only, with no await between a check and
the write that relies on it: of two racing conditional puts exactly one wins.

Serve it under ``ROUTE`` of a ``web.Application``, whose default handler answers
``Expect: 100-continue``, with ``web.AppRunner(app, **RUNNER_OPTIONS)``.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from . import document, transfer
from .listing import MAX_KEYS, Page, read_token
from .multipart import Uploads
from .refusal import Refused, no_such_bucket
from .store import ObjectStore, StoredObject
from .target import Target, tags

logger = logging.getLogger(__name__)

ROUTE = "/{path:(?s:.*)}"
"""Matches every path; a plain ``.*`` would not match a key with a line break in it."""
RUNNER_OPTIONS: dict[str, Any] = {"auto_decompress": False}
"""A body sent with ``Content-Encoding: gzip`` is the object; unpacking it would be corruption."""
SCOPED_OBJECT_BYTES = 256 * 1024**2


@dataclass(frozen=True)
class Scope:
    """All that one session may touch."""

    bucket: str
    key: str
    max_bytes: int = SCOPED_OBJECT_BYTES


@dataclass(frozen=True)
class Call:
    request: web.Request
    target: Target
    scope: Scope | None

    @property
    def place(self) -> tuple[str, str]:
        return self.target.bucket, self.target.key


class ObjectServer:
    def __init__(
        self,
        store: ObjectStore,
        on_put: Callable[[StoredObject], None] | None = None,
        on_refused: Callable[[Scope, str], None] | None = None,
    ) -> None:
        """``on_put`` hears of every object once it is visible; ``on_refused`` of every request
        that a scope did not permit, such as a second, different write of a result."""
        self.store = store
        self.uploads = Uploads(store)
        self._on_put = on_put
        self._on_refused = on_refused
        self._epoch = secrets.token_hex(4).upper()
        self._serial = itertools.count(1)

    async def handle(self, request: web.Request, scope: Scope | None = None) -> web.StreamResponse:
        request_id = f"{self._epoch}{next(self._serial):08X}"
        try:
            response = await self._answer(request, scope)
        except Refused as refused:
            response = _refusal(request, refused, request_id)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            logger.exception("path=<%s> | object request failed", request.raw_path[:200])
            failed = Refused("InternalError", f"The object store failed: {type(error).__name__}")
            response = _refusal(request, failed, request_id)
        if not response.prepared:
            response.headers["x-amz-request-id"] = request_id
        return response

    def refuse(self, request: web.Request, refused: Refused) -> web.Response:
        """S3's words for a request that is not even looked at."""
        request_id = f"{self._epoch}{next(self._serial):08X}"
        response = _refusal(request, refused, request_id)
        response.headers["x-amz-request-id"] = request_id
        return response

    async def _answer(self, request: web.Request, scope: Scope | None) -> web.StreamResponse:
        target = Target.of(request.raw_path)
        if scope is not None:
            self._check_scope(request, target, scope)
        handler = _route(request.method, target)
        call = Call(request, target, scope)
        try:
            return await handler(self, call)
        except Refused as refused:
            if scope and request.method == "PUT" and refused.code == "PreconditionFailed":
                self._flag(scope, "a second, different write of the result")
            raise

    def _check_scope(self, request: web.Request, target: Target, scope: Scope) -> None:
        permitted = (
            request.method in ("PUT", "HEAD", "GET")
            and (target.bucket, target.key) == (scope.bucket, scope.key)
            and not target.query
            and "x-amz-copy-source" not in request.headers
        )
        if not permitted:
            self._flag(scope, f"{request.method} {request.raw_path[:200]}")
            raise Refused("AccessDenied", "A session may write its own result and read it back.")

    def _flag(self, scope: Scope, what: str) -> None:
        logger.warning("bucket=<%s> key=<%s> | refused: %s", scope.bucket, scope.key, what)
        if self._on_refused is not None:
            self._on_refused(scope, what)

    def announce(self, found: StoredObject, content: bytes | None) -> None:
        """The put stands whatever the listener does."""
        if self._on_put is None:
            return
        try:
            self._on_put(msgspec.structs.replace(found, content=content))
        except Exception:
            logger.exception("bucket=<%s> key=<%s> | put listener failed", found.bucket, found.key)

    # --- buckets ------------------------------------------------------------------------------

    async def list_buckets(self, call: Call) -> web.Response:
        return transfer.xml(document.buckets(self.store.buckets()))

    async def create_bucket(self, call: Call) -> web.Response:
        body = await transfer.small_body(call.request, self.store)
        if body:
            document.read(body, "CreateBucketConfiguration")
        self.store.create_bucket(call.target.bucket)
        return web.Response(headers={"Location": f"/{call.target.bucket}"})

    async def head_bucket(self, call: Call) -> web.Response:
        if not self.store.has_bucket(call.target.bucket):
            raise no_such_bucket(call.target.bucket)
        return web.Response(headers={"x-amz-bucket-region": "us-east-1"})

    async def delete_bucket(self, call: Call) -> web.Response:
        name = call.target.bucket
        self.store.delete_bucket(name)
        for upload in self.uploads.of_bucket(name):
            self.uploads.abort(upload)
        return web.Response(status=204)

    async def locate_bucket(self, call: Call) -> web.Response:
        await self.head_bucket(call)
        return transfer.xml(document.location())

    async def list_uploads(self, call: Call) -> web.Response:
        await self.head_bucket(call)
        name = call.target.bucket
        return transfer.xml(document.uploads(name, self.uploads.of_bucket(name)))

    # --- listing ------------------------------------------------------------------------------

    async def list_objects(self, call: Call) -> web.Response:
        """Version 1: goes on after a key or a common prefix by name."""
        query = call.target.query
        marker, delimiter = query.get("marker", ""), query.get("delimiter", "")
        rolled = bool(delimiter) and marker.endswith(delimiter)
        page = self.store.list(
            call.target.bucket,
            query.get("prefix", ""),
            delimiter,
            marker,
            marker if rolled else "",
            call.target.number("max-keys", MAX_KEYS, MAX_KEYS),
        )
        head = self._listing_head(call) | {"Marker": marker}
        if page.truncated and delimiter:
            head["NextMarker"] = page.last
        return self._listing(call, page, head, owner=True)

    async def list_objects_v2(self, call: Call) -> web.Response:
        query = call.target.query
        if query["list-type"] != "2":
            raise Refused("InvalidArgument", "list-type is 2, or is not given.")
        token, after = query.get("continuation-token"), query.get("start-after", "")
        after_prefix = ""
        if token is not None:
            after, after_prefix = read_token(token)
        page = self.store.list(
            call.target.bucket,
            query.get("prefix", ""),
            query.get("delimiter", ""),
            after,
            after_prefix,
            call.target.number("max-keys", MAX_KEYS, MAX_KEYS),
        )
        head = self._listing_head(call) | {"KeyCount": str(len(page.keys) + len(page.prefixes))}
        if token is not None:
            head["ContinuationToken"] = token
        if page.truncated:
            head["NextContinuationToken"] = page.token
        if "start-after" in query:
            head["StartAfter"] = query["start-after"]
        return self._listing(call, page, head, query.get("fetch-owner") == "true")

    def _listing_head(self, call: Call) -> dict[str, str]:
        query = call.target.query
        head = {"Name": call.target.bucket, "Prefix": query.get("prefix", "")}
        if query.get("delimiter"):
            head["Delimiter"] = query["delimiter"]
        return head | {"MaxKeys": str(call.target.number("max-keys", MAX_KEYS, MAX_KEYS))}

    def _listing(self, call: Call, page: Page, head: dict[str, str], owner: bool) -> web.Response:
        encoding = call.target.query.get("encoding-type")
        if encoding not in (None, "url"):
            raise Refused("InvalidArgument", "Invalid Encoding Method specified in Request")
        bucket = call.target.bucket
        found = [self.store.head(bucket, key) for key in page.keys]
        return transfer.xml(document.listing(page, found, head, encoding == "url", owner))

    # --- objects ------------------------------------------------------------------------------

    async def head_object(self, call: Call) -> web.Response:
        return transfer.head(call.request, self.store.head(*call.place))

    async def get_tagging(self, call: Call) -> web.Response:
        return transfer.xml(document.tagging(tags(self.store.head(*call.place))))

    async def delete_object(self, call: Call) -> web.Response:
        self.store.delete(*call.place)
        return web.Response(status=204)

    async def delete_objects(self, call: Call) -> web.Response:
        await self.head_bucket(call)
        body = await transfer.small_body(call.request, self.store)
        wanted, quiet = document.read_delete(body)
        done: list[str] = []
        refused: list[tuple[str, Refused]] = []
        for key, versioned in wanted:
            if versioned:
                no = Refused("NotImplemented", "Object versions are not supported here.")
                refused.append((key, no))
                continue
            self.store.delete(call.target.bucket, key)
            done.append(key)
        return transfer.xml(document.deleted(done, refused, quiet))

    # --- uploads in parts ---------------------------------------------------------------------

    async def abort_upload(self, call: Call) -> web.Response:
        self.uploads.abort(self.uploads.get(call.target.query["uploadId"], *call.place))
        return web.Response(status=204)

    async def list_parts(self, call: Call) -> web.Response:
        upload = self.uploads.get(call.target.query["uploadId"], *call.place)
        after = call.target.number("part-number-marker", 0, 10_000)
        return transfer.xml(
            document.parts(upload, after, call.target.number("max-parts", 1000, 1000))
        )


Handler = Callable[[ObjectServer, Call], Awaitable[web.StreamResponse]]
_PAGE = {"prefix", "delimiter", "max-keys", "encoding-type"}
_OVERRIDES = {
    f"response-{name}"
    for name in (
        "content-type",
        "content-language",
        "expires",
        "cache-control",
        "content-disposition",
        "content-encoding",
    )
}
_ROUTES: dict[tuple[str, str, str], tuple[Handler, set[str]]] = {
    ("service", "GET", ""): (ObjectServer.list_buckets, set()),
    ("bucket", "PUT", ""): (ObjectServer.create_bucket, set()),
    ("bucket", "HEAD", ""): (ObjectServer.head_bucket, set()),
    ("bucket", "DELETE", ""): (ObjectServer.delete_bucket, set()),
    ("bucket", "GET", "location"): (ObjectServer.locate_bucket, set()),
    ("bucket", "GET", "uploads"): (ObjectServer.list_uploads, {"encoding-type"}),
    ("bucket", "GET", ""): (ObjectServer.list_objects, _PAGE | {"marker"}),
    ("bucket", "GET", "list-type"): (
        ObjectServer.list_objects_v2,
        _PAGE | {"start-after", "continuation-token", "fetch-owner"},
    ),
    ("bucket", "POST", "delete"): (ObjectServer.delete_objects, set()),
    ("object", "PUT", ""): (transfer.put, set()),
    ("object", "HEAD", ""): (ObjectServer.head_object, _OVERRIDES),
    ("object", "GET", ""): (transfer.get, _OVERRIDES),
    ("object", "GET", "tagging"): (ObjectServer.get_tagging, set()),
    ("object", "DELETE", ""): (ObjectServer.delete_object, set()),
    ("object", "POST", "uploads"): (transfer.create_upload, set()),
    ("object", "PUT", "uploadId"): (transfer.put_part, {"partNumber"}),
    ("object", "POST", "uploadId"): (transfer.complete_upload, set()),
    ("object", "DELETE", "uploadId"): (ObjectServer.abort_upload, set()),
    ("object", "GET", "uploadId"): (ObjectServer.list_parts, {"max-parts", "part-number-marker"}),
}
"""(what is named, method, sub-resource) to (handler, other query parameters it understands)."""
_SUB_RESOURCES = frozenset(sub for _, _, sub in _ROUTES if sub)


def _route(method: str, target: Target) -> Handler:
    level = "object" if target.key else "bucket" if target.bucket else "service"
    subs = [name for name in target.query if name in _SUB_RESOURCES]
    found = _ROUTES.get((level, method, subs[0] if subs else ""))
    if found is None and not target.query:
        raise Refused("MethodNotAllowed", "The method is not allowed against this resource.")
    known = found[1] | set(subs[:1]) if found else set()
    unknown = sorted(set(target.query) - known)
    if found is None or unknown:
        names = ", ".join(unknown)[:200]
        raise Refused("NotImplemented", f"{method} of a {level} with {names} is not supported.")
    return found[0]


def _refusal(request: web.Request, refused: Refused, request_id: str) -> web.Response:
    if request.method == "HEAD" or refused.status == 304:
        return web.Response(status=refused.status, headers=refused.headers)
    body = document.error(refused, request.raw_path.partition("?")[0], request_id)
    return transfer.xml(body, refused.status, refused.headers)
