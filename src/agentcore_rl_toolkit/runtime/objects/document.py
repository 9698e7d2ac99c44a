"""S3's XML documents: those it answers with, and the three that it reads.

Written by hand because they are small and hot; every text goes through ``escape``. Reading takes
no document type declaration, so nothing expands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from urllib.parse import quote
from xml.etree import ElementTree

from .listing import Page
from .multipart import MAX_PARTS, Upload, WantedPart
from .refusal import Refused
from .store import Bucket, StoredObject

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
OWNER = "<Owner><ID>local</ID><DisplayName>local</DisplayName></Owner>"
MAX_DELETES = 1000

_SPECIAL = re.compile(r'[&<>"\x00-\x1f\x7f\ufffe\uffff]')
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def escape(text: str) -> str:
    return _SPECIAL.sub(lambda m: _NAMED.get(m[0]) or f"&#x{ord(m[0]):x};", text)


def node(name: str, *inner: str) -> str:
    return f"<{name}>{''.join(inner)}</{name}>"


def text(name: str, value: object) -> str:
    return f"<{name}>{escape(str(value))}</{name}>"


def document(root: str, *inner: str) -> bytes:
    body = "".join(inner)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{NAMESPACE}">{body}</{root}>'
    ).encode()


def moment(unix: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(unix))


def error(refused: Refused, resource: str, request_id: str) -> bytes:
    inner = (
        text("Code", refused.code),
        text("Message", refused.message),
        text("Resource", resource),
        text("RequestId", request_id),
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{node("Error", *inner)}'.encode()


def buckets(found: Iterable[Bucket]) -> bytes:
    items = (
        node("Bucket", text("Name", b.name), text("CreationDate", moment(b.created))) for b in found
    )
    return document("ListAllMyBucketsResult", OWNER, node("Buckets", *items))


def location() -> bytes:
    """us-east-1, which S3 writes as nothing."""
    return document("LocationConstraint")


def listing(
    page: Page, objects: Sequence[StoredObject], head: dict[str, str], url: bool, owner: bool
) -> bytes:
    """``head`` has the fields that version 1 and 2 of the call do not share."""

    def name(value: str) -> str:
        return quote(value, safe="/~") if url else escape(value)

    encoded = {"Prefix", "Delimiter", "StartAfter", "Marker", "NextMarker"}
    fields = [f"<{k}>{name(v) if k in encoded else escape(v)}</{k}>" for k, v in head.items()]
    if url:
        fields.append("<EncodingType>url</EncodingType>")
    fields.append(f"<IsTruncated>{'true' if page.truncated else 'false'}</IsTruncated>")
    contents = (_entry(name(found.key), found, owner) for found in objects)
    prefixes = (
        f"<CommonPrefixes><Prefix>{name(p)}</Prefix></CommonPrefixes>" for p in page.prefixes
    )
    return document("ListBucketResult", *fields, *contents, *prefixes)


def _entry(name: str, found: StoredObject, owner: bool) -> str:
    checksum = ""
    if found.checksum is not None:
        checksum = text("ChecksumAlgorithm", found.checksum[0].upper())
        checksum += text("ChecksumType", found.checksum_type)
    return (
        f"<Contents><Key>{name}</Key><LastModified>{moment(found.modified)}</LastModified>"
        f"<ETag>&quot;{found.etag}&quot;</ETag>{checksum}<Size>{found.size}</Size>"
        f"{OWNER if owner else ''}<StorageClass>STANDARD</StorageClass></Contents>"
    )


def checksum(found: StoredObject) -> str:
    if found.checksum is None:
        return ""
    algorithm, value = found.checksum
    return text(f"Checksum{algorithm.upper()}", value) + text("ChecksumType", found.checksum_type)


def copied(found: StoredObject) -> bytes:
    return document(
        "CopyObjectResult",
        text("LastModified", moment(found.modified)),
        text("ETag", f'"{found.etag}"'),
        checksum(found),
    )


def tagging(pairs: Iterable[tuple[str, str]]) -> bytes:
    items = (node("Tag", text("Key", k), text("Value", v)) for k, v in pairs)
    return document("Tagging", node("TagSet", *items))


def created_upload(upload: Upload) -> bytes:
    return document("InitiateMultipartUploadResult", *_upload_names(upload))


def completed(found: StoredObject, address: str) -> bytes:
    return document(
        "CompleteMultipartUploadResult",
        text("Location", address),
        text("Bucket", found.bucket),
        text("Key", found.key),
        text("ETag", f'"{found.etag}"'),
        checksum(found),
    )


def uploads(bucket: str, found: Iterable[Upload]) -> bytes:
    items = (
        node(
            "Upload",
            text("Key", upload.template.key),
            text("UploadId", upload.id),
            OWNER,
            text("Initiated", moment(upload.template.modified)),
        )
        for upload in found
    )
    return document(
        "ListMultipartUploadsResult", text("Bucket", bucket), text("IsTruncated", "false"), *items
    )


def parts(upload: Upload, after: int, max_parts: int) -> bytes:
    numbers = [n for n in sorted(upload.parts) if n > after]
    shown = numbers[:max_parts]
    items = (
        node(
            "Part",
            text("PartNumber", n),
            text("LastModified", moment(upload.parts[n].modified)),
            text("ETag", f'"{upload.parts[n].etag}"'),
            text("Size", upload.parts[n].size),
            checksum(upload.parts[n]).partition("<ChecksumType>")[0],
        )
        for n in shown
    )
    return document(
        "ListPartsResult",
        *_upload_names(upload),
        text("PartNumberMarker", after),
        text("NextPartNumberMarker", shown[-1] if shown else after),
        text("MaxParts", max_parts),
        text("IsTruncated", "true" if len(numbers) > len(shown) else "false"),
        *items,
    )


def _upload_names(upload: Upload) -> tuple[str, str, str]:
    return (
        text("Bucket", upload.template.bucket),
        text("Key", upload.template.key),
        text("UploadId", upload.id),
    )


def deleted(keys: Sequence[str], refused: Sequence[tuple[str, Refused]], quiet: bool) -> bytes:
    done = () if quiet else (node("Deleted", text("Key", key)) for key in keys)
    failed = (
        node("Error", text("Key", key), text("Code", r.code), text("Message", r.message))
        for key, r in refused
    )
    return document("DeleteResult", *done, *failed)


# --- reading ----------------------------------------------------------------------------------


def read(body: bytes, root: str) -> ElementTree.Element:
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise malformed()
    try:
        element = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise malformed() from None
    for child in element.iter():
        child.tag = str(child.tag).rpartition("}")[2]
    if element.tag != root:
        raise malformed()
    return element


def read_delete(body: bytes) -> tuple[list[tuple[str, bool]], bool]:
    """([(key, whether a version is named)], quiet)."""
    element = read(body, "Delete")
    found = [
        (item.findtext("Key") or "", item.find("VersionId") is not None)
        for item in element.findall("Object")
    ]
    if not 1 <= len(found) <= MAX_DELETES or not all(key for key, _ in found):
        raise malformed()
    return found, element.findtext("Quiet") == "true"


def read_complete(body: bytes) -> list[WantedPart]:
    wanted = []
    for item in read(body, "CompleteMultipartUpload").findall("Part"):
        number = item.findtext("PartNumber") or ""
        etag = (item.findtext("ETag") or "").strip('"')
        if not re.fullmatch(r"[0-9]{1,5}", number) or not etag:
            raise malformed()
        sums = [e.text for e in item if e.tag.startswith("Checksum")]
        wanted.append(WantedPart(int(number), etag, sums[0] if sums else None))
    if not 1 <= len(wanted) <= MAX_PARTS:
        raise malformed()
    return wanted


def malformed() -> Refused:
    return Refused("MalformedXML", "The XML you provided was not well-formed or not as expected.")
