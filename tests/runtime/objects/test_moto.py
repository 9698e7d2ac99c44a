"""The same boto3 calls against this server and against moto's, compared answer by answer.

The calls form one story: each sees what those before it left. ``DIFFERENCES`` names every call on
which the two do not agree and why; nothing else may differ, and a listed call must differ.
"""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

Call = Callable[[Any, dict[str, Any]], Any]

B = "story"
MIB = 1024**2

DIFFERENCES = {
    "creating a bucket that exists": "S3 outside us-east-1 says 409; moto plays us-east-1's 200",
    "put with a wrong CRC32": "moto stores it; S3 and we say BadDigest",
    "put with a wrong SHA256": "moto stores it; S3 and we say BadDigest",
    "put with a malformed checksum": "moto stores it; S3 and we refuse",
    "if-none-match with an etag": "moto ignores it; S3 and we say NotImplemented",
    "put with a wrong MD5": "moto stores it; S3 and we say BadDigest",
    "list with a broken token": "moto fails with 500; S3 and we say InvalidArgument",
    "delete many quietly": "moto is not quiet",
    "complete in the wrong order": "moto looks at the sizes first; S3 says InvalidPartOrder",
    "a bucket name that is not one": "moto creates it; S3 and we say InvalidBucketName",
    "bucket versioning is not supported": "moto implements it",
    "object acl is not supported": "moto implements it",
    "deleting a named version is not supported": "moto implements it",
    "a bucket with a reserved name": "our rule",
}

FIELDS = (  # noqa: SIM905
    "ETag ContentLength ContentType Metadata ChecksumCRC32 ChecksumSHA1 ChecksumSHA256 "
    "ContentRange CacheControl ContentEncoding ContentDisposition AcceptRanges TagCount TagSet "
    "KeyCount IsTruncated Prefix Delimiter StartAfter MaxKeys Deleted LocationConstraint"
).split()


def put(key: str, body: bytes = b"hello", **more: Any) -> Call:
    return lambda c, _: c.put_object(Bucket=B, Key=key, Body=body, **more)


def get(key: str, **more: Any) -> Call:
    return lambda c, _: c.get_object(Bucket=B, Key=key, **more)


def head(key: str, **more: Any) -> Call:
    return lambda c, _: c.head_object(Bucket=B, Key=key, **more)


def ls(**more: Any) -> Call:
    return lambda c, _: c.list_objects_v2(Bucket=B, **more)


def ls_1(**more: Any) -> Call:
    return lambda c, _: c.list_objects(Bucket=B, **more)


def pages(**more: Any) -> Call:
    def run(c: Any, _: Any) -> Any:
        found = c.get_paginator("list_objects_v2").paginate(Bucket=B, **more)
        keys = [[o["Key"] for o in page.get("Contents", [])] for page in found]
        return {"Pages": keys}

    return run


def begin(key: str, name: str, **more: Any) -> Call:
    def run(c: Any, kept: dict[str, Any]) -> Any:
        answer = c.create_multipart_upload(Bucket=B, Key=key, **more)
        kept[name] = {"Bucket": B, "Key": key, "UploadId": answer["UploadId"]}
        return answer

    return run


def part(name: str, number: int, body: bytes) -> Call:
    def run(c: Any, kept: dict[str, Any]) -> Any:
        answer = c.upload_part(**kept[name], PartNumber=number, Body=body)
        kept.setdefault(name + ".parts", {})[number] = answer["ETag"]
        return answer

    return run


def complete(name: str, *numbers: int, etag: str | None = None) -> Call:
    def run(c: Any, kept: dict[str, Any]) -> Any:
        etags = kept[name + ".parts"]
        parts = [{"PartNumber": n, "ETag": etag or etags.get(n, '"00"')} for n in numbers]
        return c.complete_multipart_upload(**kept[name], MultipartUpload={"Parts": parts})

    return run


def on_upload(operation: str, name: str) -> Call:
    return lambda c, kept: getattr(c, operation)(**kept[name])


def upload_fileobj(c: Any, _: Any) -> Any:
    c.upload_fileobj(io.BytesIO(bytes(9 * MIB)), B, "transferred")
    return c.head_object(Bucket=B, Key="transferred")


def copy(source: str, key: str, **more: Any) -> Call:
    def run(c: Any, _: Any) -> Any:
        answer = c.copy_object(Bucket=B, Key=key, CopySource={"Bucket": B, "Key": source}, **more)
        return answer["CopyObjectResult"] | {"ResponseMetadata": answer["ResponseMetadata"]}

    return run


def delete_many(*keys: str, **more: Any) -> Call:
    wanted = {"Objects": [{"Key": key} for key in keys], **more}
    return lambda c, _: c.delete_objects(Bucket=B, Delete=wanted)


STORY: dict[str, Call] = {
    "head of a missing bucket": lambda c, _: c.head_bucket(Bucket=B),
    "listing a missing bucket": ls(),
    "put into a missing bucket": put("k"),
    "create bucket": lambda c, _: c.create_bucket(Bucket=B),
    "creating a bucket that exists": lambda c, _: c.create_bucket(Bucket=B),
    "head bucket": lambda c, _: c.head_bucket(Bucket=B),
    "bucket location": lambda c, _: c.get_bucket_location(Bucket=B),
    "listing an empty bucket": ls(),
    "head of a missing key": head("nothing"),
    "get of a missing key": get("nothing"),
    "delete of a missing key": lambda c, _: c.delete_object(Bucket=B, Key="nothing"),
    "put": put("a.json", b'{"rewards": 1.0}', ContentType="application/json"),
    "head": head("a.json"),
    "get": get("a.json"),
    "put without a content type": put("plain"),
    "get without a content type": get("plain"),
    "put with metadata": put("meta", Metadata={"Alpha": "1", "b-c": "two words"}),
    "head with metadata": head("meta"),
    "put with kept headers": put(
        "kept", CacheControl="no-store", ContentDisposition="inline", ContentEncoding="gzip"
    ),
    "head with kept headers": head("kept"),
    "put of nothing": put("empty", b""),
    "get of nothing": get("empty"),
    "put with a SHA256": put("sha", ChecksumAlgorithm="SHA256"),
    "head with a SHA256": head("sha", ChecksumMode="ENABLED"),
    "put with a SHA1": put("sha1", ChecksumAlgorithm="SHA1"),
    "get with a SHA1": get("sha1", ChecksumMode="ENABLED"),
    "put with a wrong CRC32": put("bad", ChecksumCRC32="AAAAAA=="),
    "put with a wrong SHA256": put("bad", ChecksumSHA256="A" * 43 + "="),
    "put with a malformed checksum": put("bad", ChecksumCRC32="?"),
    "put with a wrong MD5": put("bad", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA=="),
    "nothing was stored under bad": lambda c, _: c.delete_object(Bucket=B, Key="bad"),
    "put with tags": put("tagged", Tagging="a=1&b=2"),
    "head with tags": head("tagged"),
    "get tags": lambda c, _: c.get_object_tagging(Bucket=B, Key="tagged"),
    "range from the start": get("plain", Range="bytes=0-1"),
    "range to the end": get("plain", Range="bytes=3-"),
    "range of the last bytes": get("plain", Range="bytes=-2"),
    "range past the end is cut": get("plain", Range="bytes=2-99"),
    "range that cannot be satisfied": get("plain", Range="bytes=99-"),
    "head with a range": head("plain", Range="bytes=0-1"),
    "if-none-match on a free key": put("once", IfNoneMatch="*"),
    "if-none-match on a taken key": put("once", b"other", IfNoneMatch="*"),
    "if-none-match with an etag": put("bad", b"other", IfNoneMatch='"x"'),
    "nothing was stored under bad again": lambda c, _: c.delete_object(Bucket=B, Key="bad"),
    "the first write stands": get("once"),
    "if-match that holds": put("once", b"second", IfMatch='"5d41402abc4b2a76b9719d911017c592"'),
    "if-match that does not hold": put("once", b"third", IfMatch='"00"'),
    "if-match on a missing key": put("nothing", IfMatch='"00"'),
    "get if-match that does not hold": get("plain", IfMatch='"00"'),
    "get if-none-match that holds": get("plain", IfNoneMatch='"5d41402abc4b2a76b9719d911017c592"'),
    "copy": copy("meta", "copied"),
    "head of the copy": head("copied"),
    "copy with new metadata": copy(
        "meta", "copied", MetadataDirective="REPLACE", Metadata={"n": "1"}, ContentType="text/x"
    ),
    "head of the changed copy": head("copied"),
    "copy to itself": copy("meta", "meta"),
    "copy of a missing key": copy("nothing", "copied"),
    "unicode and spaces": put("dir/ü ñ+%2F&=?#.json"),
    "get unicode and spaces": get("dir/ü ñ+%2F&=?#.json"),
    "a key below a key": put("dir/a/b"),
    "a key that is a prefix": put("dir/a"),
    "dots are names": put("dir/../x/./y"),
    "get of dots": get("dir/../x/./y"),
    "list all": ls(),
    "list a prefix": ls(Prefix="dir/"),
    "list with a delimiter": ls(Delimiter="/"),
    "list a prefix with a delimiter": ls(Prefix="dir/", Delimiter="/"),
    "list after a key": ls(StartAfter="kept"),
    "list two": ls(MaxKeys=2),
    "list none": ls(MaxKeys=0),
    "list pages of three": pages(PaginationConfig={"PageSize": 3}),
    "list with a broken token": ls(ContinuationToken="?"),
    "list version 1": ls_1(),
    "list version 1 after a marker": ls_1(Marker="kept", MaxKeys=2),
    "list version 1 with a delimiter": ls_1(Delimiter="/"),
    "delete": lambda c, _: c.delete_object(Bucket=B, Key="plain"),
    "delete many": delete_many("meta", "nothing", "dir/ü ñ+%2F&=?#.json"),
    "delete many quietly": delete_many("kept", Quiet=True),
    "deleting a named version is not supported": lambda c, _: c.delete_object(
        Bucket=B, Key="a.json", VersionId="null"
    ),
    "begin an upload": begin("joined", "u", ContentType="text/plain", Metadata={"m": "1"}),
    "part one": part("u", 1, b"1" * (5 * MIB)),
    "part two": part("u", 2, b"2" * 100),
    "list parts": on_upload("list_parts", "u"),
    "complete in the wrong order": complete("u", 2, 1),
    "complete with a wrong etag": complete("u", 1, 2, etag='"' + "0" * 32 + '"'),
    "complete": complete("u", 1, 2),
    "head of the joined": head("joined"),
    "range over the seam": get("joined", Range=f"bytes={5 * MIB - 2}-{5 * MIB + 1}"),
    "complete again": on_upload("list_parts", "u"),
    "begin another": begin("small", "v"),
    "small part one": part("v", 1, b"1"),
    "small part two": part("v", 2, b"2"),
    "complete with parts too small": complete("v", 1, 2),
    "abort": on_upload("abort_multipart_upload", "v"),
    "abort again": on_upload("abort_multipart_upload", "v"),
    "upload_fileobj": upload_fileobj,
    "bucket versioning is not supported": lambda c, _: c.get_bucket_versioning(Bucket=B),
    "object acl is not supported": lambda c, _: c.get_object_acl(Bucket=B, Key="sha"),
    "delete a bucket that is not empty": lambda c, _: c.delete_bucket(Bucket=B),
    "list buckets": lambda c, _: {"Names": [b["Name"] for b in c.list_buckets()["Buckets"]]},
    "a bucket name that is not one": lambda c, _: c.create_bucket(Bucket="UPPER_case"),
    "a bucket with a reserved name": lambda c, _: c.create_bucket(Bucket="runtimes"),
}


def observe(call: Call, client: Any, kept: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = call(client, kept)
    except ClientError as error:
        answer = error.response
        return {
            "status": answer["ResponseMetadata"]["HTTPStatusCode"],
            "code": answer["Error"]["Code"],
        }
    seen = {k: answer[k] for k in (*FIELDS, "Pages", "Names") if answer.get(k) not in (None, "")}
    if "ResponseMetadata" in answer:
        seen["status"] = answer["ResponseMetadata"]["HTTPStatusCode"]
    if "Body" in answer:
        seen["body"] = answer["Body"].read()
    if "Contents" in answer:
        seen["contents"] = [(o["Key"], o["Size"], o["ETag"]) for o in answer["Contents"]]
    if "CommonPrefixes" in answer:
        seen["prefixes"] = [p["Prefix"] for p in answer["CommonPrefixes"]]
    if "Parts" in answer:
        seen["parts"] = [(p["PartNumber"], p["Size"], p["ETag"]) for p in answer["Parts"]]
    if "Deleted" in seen:
        seen["Deleted"] = sorted(d["Key"] for d in seen["Deleted"])
    return seen


def tell(client: Any) -> dict[str, dict[str, Any]]:
    kept: dict[str, Any] = {}
    try:
        return {name: observe(call, client, kept) for name, call in STORY.items()}
    finally:
        client.close()


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory, serve: Any, connect: Any
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    oracle = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    oracle.start()
    try:
        host, port = oracle.get_host_and_port()
        # Its buckets belong to the process: another file's may be there still.
        reset = urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset, timeout=30).close()
        with serve(tmp_path_factory.mktemp("objects")) as ours:
            yield tell(connect(ours.url)), tell(connect(f"http://{host}:{port}"))
    finally:
        oracle.stop()


@pytest.mark.parametrize("name", STORY)
def test_answers_as_moto_does(name: str, answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ours, theirs = answers[0][name], answers[1][name]
    if name in DIFFERENCES:
        assert ours != theirs, "no longer a difference: take it off the table"
    else:
        assert ours == theirs
