"""Content in and out over HTTP: put, part, copy, get, and joining parts.

Small content is handled on the event loop, which costs less than a thread hop; larger content
moves in blocks through the store's threads. A write becomes visible in ``ObjectStore.commit`` or
``Uploads.add_part`` and is announced after that; whatever goes wrong before leaves nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from . import document
from .body import INLINE_BYTES, Promise, in_thread, receive
from .draft import ALGORITHMS, Draft
from .multipart import MAX_PARTS, Upload, WantedPart, joined_checksum, joined_etag
from .refusal import Refused, no_such_bucket
from .store import Condition, ObjectStore, StoredObject, check_key
from .target import (
    answered,
    byte_range,
    check_read,
    checksum_headers,
    copy_source,
    described,
    header_value,
    write_condition,
)

if TYPE_CHECKING:
    from .server import Call, ObjectServer

EVENT_CONTENT_BYTES = 64 * 1024
"""``on_put`` gets the content of objects up to this size."""
MAX_XML_BYTES = 4 * 1024**2
_BLOCK_BYTES = 1 << 20


def xml(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    head = {"Content-Type": "application/xml", **(headers or {})}
    return web.Response(body=body, status=status, headers=head)


async def small_body(
    request: web.Request, store: ObjectStore, headers: Mapping[str, str] | None = None
) -> bytes:
    promise = Promise.of(request.headers if headers is None else headers)
    draft = store.draft(promise.algorithms(), spill=2 * MAX_XML_BYTES)
    await receive(request, store, promise, MAX_XML_BYTES, draft)
    return draft.content or b""


# --- in ---------------------------------------------------------------------------------------


async def put(server: ObjectServer, call: Call) -> web.Response:
    headers = call.request.headers
    if "x-amz-copy-source" in headers:
        return await copy(server, call)
    store, (bucket, key) = server.store, call.place
    check_key(key)
    content_type, metadata, kept = described(headers)
    condition = write_condition(headers, once=call.scope is not None)
    existing = store.find(bucket, key)
    if not condition.once:  # which needs the content to compare
        condition.check(existing)
    promise = _promise(call)
    draft = store.draft(promise.algorithms())
    try:
        limit = store.max_object_bytes
        if call.scope is not None:
            limit = min(limit, call.scope.max_bytes)
        await receive(call.request, store, promise, limit, draft)
        wanted = StoredObject(
            bucket,
            key,
            draft.size,
            draft.md5.hex(),
            int(time.time()),
            content_type,
            metadata,
            kept,
            _stored_checksum(promise, draft),
        )
        found = await _publish(server, wanted, draft, condition)
    finally:
        draft.discard()
    return web.Response(headers={"ETag": f'"{found.etag}"', **checksum_headers(found)})


async def copy(server: ObjectServer, call: Call) -> web.Response:
    headers, store, (bucket, key) = call.request.headers, server.store, call.place
    check_key(key)
    source = store.head(*copy_source(headers["x-amz-copy-source"]))
    directive = headers.get("x-amz-metadata-directive", "COPY")
    content_type, metadata, kept = described(headers)
    if directive == "COPY":
        if (source.bucket, source.key) == call.place:
            raise Refused("InvalidRequest", "A copy to itself must change the metadata.")
        content_type, metadata, kept = source.content_type, source.metadata, source.headers
    elif directive != "REPLACE":
        raise Refused("InvalidArgument", "x-amz-metadata-directive is COPY or REPLACE.")
    condition = write_condition(headers, once=False)
    condition.check(store.find(bucket, key))
    algorithm = headers.get("x-amz-checksum-algorithm", "").lower()
    if not algorithm and source.checksum is not None:
        algorithm = source.checksum[0]
    algorithms = [_algorithm(algorithm)] if algorithm else []
    draft = store.draft(algorithms)
    file = store.open(source)
    try:
        await in_thread(store, partial(_copy_content, file, source.size), draft)
        checksum = (algorithm, draft.checksum_text(algorithm)) if algorithm else None
        wanted = StoredObject(
            bucket,
            key,
            draft.size,
            draft.md5.hex(),
            int(time.time()),
            content_type,
            metadata,
            kept,
            checksum,
        )
        found = await _publish(server, wanted, draft, condition)
    finally:
        os.close(file)
        draft.discard()
    return xml(document.copied(found))


async def _publish(
    server: ObjectServer, wanted: StoredObject, draft: Draft, condition: Condition | None
) -> StoredObject:
    content = draft.content if draft.size <= EVENT_CONTENT_BYTES else None
    sealed = await _seal(server.store, wanted, draft)
    found, new = server.store.commit(wanted, sealed, condition)
    if new:
        server.announce(found, content)
    return found


async def _seal(store: ObjectStore, wanted: StoredObject, draft: Draft) -> str:
    if draft.size <= INLINE_BYTES and not store.sync:
        return store.seal(wanted, draft)
    return await in_thread(store, partial(store.seal, wanted), draft)


def _promise(call: Call) -> Promise:
    promise = Promise.of(call.request.headers)
    if promise.length is None:
        raise Refused("MissingContentLength", "You must provide the Content-Length HTTP header.")
    return promise


def _stored_checksum(promise: Promise, draft: Draft) -> tuple[str, str] | None:
    if promise.algorithm is None:
        return None
    return promise.algorithm, draft.checksum_text(promise.algorithm)


def _algorithm(name: str) -> str:
    if name not in ALGORITHMS:
        raise Refused("NotImplemented", f"{name.upper()[:40]} checksums are not computed here.")
    return name


def _copy_content(file: int, size: int, draft: Draft) -> None:
    at = 0
    while at < size and (block := os.pread(file, min(_BLOCK_BYTES, size - at), at)):
        draft.write(block)
        at += len(block)


# --- in parts ---------------------------------------------------------------------------------


async def create_upload(server: ObjectServer, call: Call) -> web.Response:
    headers, (bucket, key) = call.request.headers, call.place
    algorithm = headers.get("x-amz-checksum-algorithm", "").lower()
    kind = headers.get("x-amz-checksum-type", "COMPOSITE")
    if kind not in ("COMPOSITE", "FULL_OBJECT") or (
        kind == "FULL_OBJECT" and algorithm[:3] == "sha"
    ):
        raise Refused("InvalidRequest", "That checksum type does not go with that algorithm.")
    content_type, metadata, kept = described(headers)
    template = StoredObject(bucket, key, 0, "", int(time.time()), content_type, metadata, kept)
    upload = server.uploads.create(
        template, _algorithm(algorithm) if algorithm else None, kind == "FULL_OBJECT"
    )
    answer = {}
    if algorithm:
        answer = {"x-amz-checksum-algorithm": algorithm.upper(), "x-amz-checksum-type": kind}
    return xml(document.created_upload(upload), headers=answer)


async def put_part(server: ObjectServer, call: Call) -> web.Response:
    store, (bucket, key) = server.store, call.place
    if "x-amz-copy-source" in call.request.headers:
        raise Refused("NotImplemented", "Copying into a part is not supported here.")
    number = call.target.number("partNumber", 0, MAX_PARTS + 1)
    if not 1 <= number <= MAX_PARTS:
        raise Refused("InvalidArgument", f"Part number must be from 1 to {MAX_PARTS}.")
    if not store.has_bucket(bucket):
        raise no_such_bucket(bucket)
    upload = server.uploads.get(call.target.query["uploadId"], bucket, key)
    promise = _promise(call)
    draft = store.draft(promise.algorithms())
    try:
        await receive(call.request, store, promise, store.max_object_bytes, draft)
        checksum = _stored_checksum(promise, draft)
        now = int(time.time())
        part = StoredObject(bucket, key, draft.size, draft.md5.hex(), now, checksum=checksum)
        server.uploads.add_part(upload, number, part, await _seal(store, part, draft))
    finally:
        draft.discard()
    answer = {"ETag": f'"{part.etag}"', **checksum_headers(part)}
    answer.pop("x-amz-checksum-type", None)
    return web.Response(headers=answer)


async def complete_upload(server: ObjectServer, call: Call) -> web.Response:
    uploads, store = server.uploads, server.store
    upload = uploads.get(call.target.query["uploadId"], *call.place)
    # a checksum in this call is about the object, not about the XML in its body
    checksum = {name.lower(): v for name, v in call.request.headers.items() if _is_checksum(name)}
    others = {n: v for n, v in call.request.headers.items() if not _is_checksum(n)}
    body = await small_body(call.request, store, CIMultiDict(others))
    wanted_parts = document.read_complete(body)
    condition = write_condition(call.request.headers, once=False)
    condition.check(store.find(*call.place))
    parts = uploads.begin_join(upload, wanted_parts)
    try:
        found = await _join(server, upload, wanted_parts, parts, condition, checksum)
    except BaseException:
        uploads.give_back(upload)
        raise
    uploads.abort(upload)
    return xml(document.completed(found, f"/{found.bucket}/{found.key}"))


async def _join(
    server: ObjectServer,
    upload: Upload,
    wanted_parts: list[WantedPart],
    parts: list[StoredObject],
    condition: Condition,
    promised: Mapping[str, str],
) -> StoredObject:
    algorithms = [upload.algorithm] if upload.algorithm and upload.full_object else []
    draft = server.store.draft(algorithms)
    try:
        await in_thread(server.store, partial(server.uploads.join, upload, wanted_parts), draft)
        wanted = msgspec.structs.replace(
            upload.template,
            size=draft.size,
            etag=joined_etag(parts),
            modified=int(time.time()),
            checksum=joined_checksum(upload, parts, draft),
        )
        if not promised.items() <= checksum_headers(wanted).items():
            raise Refused("BadDigest", "The checksum you specified is not that of the object.")
        return await _publish(server, wanted, draft, condition)
    finally:
        draft.discard()


def _is_checksum(name: str) -> bool:
    return name.lower().startswith("x-amz-checksum-")


# --- out --------------------------------------------------------------------------------------


def head(request: web.Request, found: StoredObject) -> web.Response:
    check_read(request.headers, found)
    span = byte_range(request.headers.get("Range"), found.size)
    headers = answered(found, span is None and _wants_checksum(request))
    if span is not None:
        headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{found.size}"
    first, end = span or (0, found.size)
    headers["Content-Length"] = str(end - first)
    return web.Response(status=200 if span is None else 206, headers=headers)


async def get(server: ObjectServer, call: Call) -> web.StreamResponse:
    store = server.store
    found = store.head(*call.place)
    plan = head(call.request, found)
    for name, value in call.target.query.items():
        header = name.removeprefix("response-").title()
        plan.headers[header] = header_value(name, value)
    first, end = byte_range(call.request.headers.get("Range"), found.size) or (0, found.size)
    file = store.open(found)
    try:
        if end - first <= INLINE_BYTES:
            plan.body = os.pread(file, end - first, first)
            return plan
        response = web.StreamResponse(status=plan.status, headers=plan.headers)
        await response.prepare(call.request)
        while first < end:
            size = min(_BLOCK_BYTES, end - first)
            block = await in_thread(store, partial(_block, file, size), first)
            await response.write(block)
            first += len(block)
        await response.write_eof()
        return response
    finally:
        os.close(file)


def _block(file: int, size: int, first: int) -> bytes:
    """The head of the answer is sent already: what fails here can only cut the connection."""
    try:
        block = os.pread(file, size, first)
    except OSError as error:
        raise ConnectionResetError(f"object file cannot be read: {error}") from error
    if not block:
        raise ConnectionResetError("object file is shorter than its record")
    return block


def _wants_checksum(request: web.Request) -> bool:
    return request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
