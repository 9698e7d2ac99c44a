"""The S3 face beyond what moto can say: wire details, refusals, races, cuts and scopes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from agentcore_rl_toolkit.runtime.objects import Scope
from agentcore_rl_toolkit.runtime.objects.refusal import Refused
from agentcore_rl_toolkit.runtime.objects.target import Target

HOSTILE_KEYS = [
    "..",
    "../../../etc/passwd",
    "/etc/passwd",
    "//double//",
    "a/./b",
    "a/../b",
    ".",
    "bucket.json",
    ".tmp/0",
    "C:\\windows",
    "a",
    "A",
    "a/",
    "a/b",
    "%2e%2e%2f",
    "+ +%20",
    "?x=1&y=2#z",
    "naïve/日本/\U0001f600",
    "e\u0301",
    "\u00e9",
    "tab\tnewline\nreturn\r",
    "x" * 1024,
    "ü" * 512,
]


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def leftovers(service: Any) -> list[Path]:
    return list((service.folder / ".tmp").iterdir())


# --- keys -------------------------------------------------------------------------------------


def test_any_key_is_stored_under_its_own_name_and_never_leaves_the_folder(
    service: Any, s3: Any
) -> None:
    outside = set(service.folder.parent.iterdir())
    for n, key in enumerate(HOSTILE_KEYS):
        s3.put_object(Bucket="bkt", Key=key, Body=b"%d" % n)
    for n, key in enumerate(HOSTILE_KEYS):
        assert s3.get_object(Bucket="bkt", Key=key)["Body"].read() == b"%d" % n
    listed = [o["Key"] for o in s3.list_objects_v2(Bucket="bkt")["Contents"]]
    assert listed == sorted(HOSTILE_KEYS, key=str.encode)
    assert set(service.folder.parent.iterdir()) == outside
    for key in HOSTILE_KEYS:
        s3.delete_object(Bucket="bkt", Key=key)
    assert s3.list_objects_v2(Bucket="bkt")["KeyCount"] == 0


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/bkt/%zz", "InvalidURI"),
        ("/bkt/%ff", "InvalidURI"),
        ("/bkt/" + "k" * 1025, "KeyTooLongError"),
        ("/bkt/" + "%C3%BC" * 513, "KeyTooLongError"),
    ],
    ids=["a bad escape", "bytes that are not UTF-8", "a key too long", "too long in bytes"],
)
def test_a_key_that_cannot_be_one_is_refused(service: Any, path: str, code: str) -> None:
    status, _, body = service.request("PUT", path, b"x")
    assert status == 400
    assert f"<Code>{code}</Code>".encode() in body


@pytest.mark.parametrize("name", ["runtimes", "tags", "_art", "..", "a", "UP", "x" * 64, "a..b"])
def test_a_bucket_cannot_have_a_reserved_or_impossible_name(service: Any, name: str) -> None:
    status, _, body = service.request("PUT", f"/{name}")
    assert (status, b"InvalidBucketName" in body) == (400, True)
    assert not (service.folder / name / "bucket.json").exists()


@pytest.mark.parametrize(
    ("raw", "bucket", "key", "query"),
    [
        ("/bkt", "bkt", "", {}),
        ("/bkt/", "bkt", "", {}),
        ("/", "", "", {}),
        ("//k", "", "k", {}),
        ("/bkt//k", "bkt", "/k", {}),
        ("/bkt/a+b%20c%2Fd", "bkt", "a+b c/d", {}),
        ("http://host:1/bkt/k?uploads", "bkt", "k", {"uploads": ""}),
        ("/bkt?prefix=a%2Bb+c&X-Amz-Signature=1&x-id=Get", "bkt", "", {"prefix": "a+b c"}),
    ],
)
def test_a_request_target_is_read_as_it_was_sent(
    raw: str, bucket: str, key: str, query: dict[str, str]
) -> None:
    assert Target.of(raw) == Target(bucket, key, query)


@pytest.mark.parametrize("raw", ["/b?a=%zz", "/b?" + "&".join(f"a{n}" for n in range(99))])
def test_a_query_that_is_not_one_is_refused(raw: str) -> None:
    with pytest.raises(Refused, match="InvalidURI"):
        Target.of(raw)


# --- bodies -----------------------------------------------------------------------------------


def chunked(data: bytes, size: int, trailer: str = "") -> bytes:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces)
    return body + b"0\r\n" + (f"{trailer}\r\n" if trailer else "").encode() + b"\r\n"


def put_chunked(service: Any, body: bytes, length: int, **more: str) -> tuple[int, bytes]:
    status, _, answer = service.request(
        "PUT",
        "/bkt/k",
        body,
        Content_Encoding="aws-chunked",
        x_amz_content_sha256="STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        x_amz_decoded_content_length=str(length),
        **more,
    )
    return status, answer


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_an_aws_chunked_body_is_decoded_and_its_trailer_checked(service: Any, size: int) -> None:
    data = os.urandom(20_000)
    body = chunked(data, size, f"x-amz-checksum-crc32:{crc32(data)}")
    assert put_chunked(service, body, len(data), x_amz_trailer="x-amz-checksum-crc32")[0] == 200
    _, headers, stored = service.request("GET", "/bkt/k", x_amz_checksum_mode="ENABLED")
    assert stored == data
    assert headers["x-amz-checksum-crc32"] == crc32(data)
    assert "content-encoding" not in headers


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (chunked(b"hello", 3, "x-amz-checksum-crc32:AAAAAA=="), b"BadDigest"),
        (chunked(b"hello", 3), b"InvalidRequest"),
        (b"3\r\nhel\r\n", b"IncompleteBody"),
        (b"3\r\nhello\r\n0\r\n\r\n", b"InvalidRequest"),
        (b"zz\r\n", b"InvalidRequest"),
        (b"5" * 9000, b"InvalidRequest"),
        (chunked(b"hell", 3, f"x-amz-checksum-crc32:{crc32(b'hell')}"), b"IncompleteBody"),
        (chunked(b"hello", 3, f"x-amz-checksum-crc32:{crc32(b'hello')}") + b"x:y\r\n", b"Invalid"),
    ],
    ids=[
        "a wrong trailer checksum",
        "no trailer",
        "no last chunk",
        "a chunk longer than its size",
        "no size",
        "a line without end",
        "less than announced",
        "more after the end",
    ],
)
def test_a_broken_aws_chunked_body_stores_nothing(service: Any, body: bytes, code: bytes) -> None:
    status, answer = put_chunked(service, body, 5, x_amz_trailer="x-amz-checksum-crc32")
    assert status == 400
    assert code in answer
    assert service.request("HEAD", "/bkt/k")[0] == 404
    assert leftovers(service) == []


def test_a_payload_hash_that_does_not_match_is_refused(service: Any) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    status, _, body = service.request("PUT", "/bkt/k", b"hello", x_amz_content_sha256=other)
    assert (status, b"XAmzContentSHA256Mismatch" in body) == (400, True)
    right = hashlib.sha256(b"hello").hexdigest()
    assert service.request("PUT", "/bkt/k", b"hello", x_amz_content_sha256=right)[0] == 200


def test_a_checksum_that_cannot_be_verified_is_refused_rather_than_ignored(service: Any) -> None:
    status, _, body = service.request("PUT", "/bkt/k", b"x", x_amz_checksum_crc32c="AAAAAA==")
    assert (status, b"NotImplemented" in body) == (501, True)


def test_a_gzip_body_is_stored_as_it_came(service: Any, s3: Any) -> None:
    data = gzip.compress(b"hello" * 1000)
    s3.put_object(Bucket="bkt", Key="k", Body=data, ContentEncoding="gzip")
    _, headers, stored = service.request("GET", "/bkt/k")
    assert stored == data
    assert headers["content-encoding"] == "gzip"


def test_expect_100_continue_is_answered_before_the_body(service: Any) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as wire:
        wire.sendall(
            b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
            b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        first = wire.recv(1000)
        assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.sendall(b"hello")
        assert wire.recv(1000).startswith(b"HTTP/1.1 200 OK")
    assert service.request("GET", "/bkt/k")[2] == b"hello"


def test_a_put_without_a_length_is_refused(service: Any) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as wire:
        wire.sendall(
            b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        assert wire.recv(1000).startswith(b"HTTP/1.1 411")


def test_an_upload_cut_in_the_middle_leaves_nothing(service: Any) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as wire:
        wire.sendall(b"PUT /bkt/cut HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
        wire.sendall(bytes(3_000_000))
        wait_for(lambda: leftovers(service))
    wait_for(lambda: not leftovers(service))
    assert service.request("HEAD", "/bkt/cut")[0] == 404
    assert service.puts == []


def test_an_object_too_large_is_refused_before_it_is_read(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "objects", max_object_bytes=1000) as service:
        service.on_loop(lambda: service.store.create_bucket("bkt"))
        assert service.request("PUT", "/bkt/k", bytes(1000))[0] == 200
        status, _, body = service.request("PUT", "/bkt/k", bytes(1001))
        assert (status, b"EntityTooLarge" in body) == (400, True)


def test_a_large_object_goes_in_and_out_whole(service: Any, s3: Any) -> None:
    data = os.urandom(1 << 20) * 5 + b"end"
    s3.put_object(Bucket="bkt", Key="big", Body=data)
    assert s3.get_object(Bucket="bkt", Key="big")["Body"].read() == data
    part = s3.get_object(Bucket="bkt", Key="big", Range="bytes=1048570-3145740")
    assert part["Body"].read() == data[1048570:3145741]


# --- answers ----------------------------------------------------------------------------------


def test_a_range_never_carries_the_checksum_of_the_whole(service: Any, s3: Any) -> None:
    s3.put_object(Bucket="bkt", Key="k", Body=b"0123456789")
    whole = service.request("GET", "/bkt/k", x_amz_checksum_mode="ENABLED")
    part = service.request("GET", "/bkt/k", x_amz_checksum_mode="ENABLED", Range="bytes=2-4")
    assert (whole[0], "x-amz-checksum-crc32" in whole[1]) == (200, True)
    assert (part[0], "x-amz-checksum-crc32" in part[1], part[2]) == (206, False, b"234")
    assert part[1]["content-range"] == "bytes 2-4/10"


@pytest.mark.parametrize("header", ["bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=0-1,4-5"])
def test_a_range_that_is_not_one_is_ignored(service: Any, header: str) -> None:
    service.request("PUT", "/bkt/k", b"0123456789")
    assert service.request("GET", "/bkt/k", Range=header)[::2] == (200, b"0123456789")


def test_head_of_nothing_has_no_body(service: Any) -> None:
    status, headers, body = service.request("HEAD", "/bkt/none")
    assert (status, body) == (404, b"")
    assert "x-amz-request-id" in headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/bkt?acl"),
        ("PUT", "/bkt?versioning"),
        ("PUT", "/bkt?policy"),
        ("GET", "/bkt?versions"),
        ("PUT", "/bkt?unheard-of=1"),
        ("DELETE", "/bkt?lifecycle"),
        ("GET", "/bkt/k?torrent"),
        ("PUT", "/bkt/k?tagging"),
        ("PUT", "/bkt/k?acl"),
        ("DELETE", "/bkt/k?versionId=1"),
        ("GET", "/bkt/k?partNumber=1"),
        ("POST", "/bkt/k?restore"),
        ("POST", "/bkt/k?select&select-type=2"),
    ],
)
def test_an_unsupported_sub_resource_is_refused_and_does_nothing_else(
    service: Any, method: str, path: str
) -> None:
    service.request("PUT", "/bkt/k", b"kept")
    status, headers, body = service.request(method, path, b"")
    assert (status, headers["content-type"]) == (501, "application/xml")
    assert b"<Code>NotImplemented</Code>" in body
    assert service.request("GET", "/bkt/k")[2] == b"kept"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<Delete>",
        b"<Other/>",
        b"<Delete></Delete>",
        b"<Delete><Object><Key></Key></Object></Delete>",
        b"<!DOCTYPE a [<!ENTITY b 'c'>]><Delete><Object><Key>&b;</Key></Object></Delete>",
        b"<Delete>" + b"<Object><Key>k</Key></Object>" * 1001 + b"</Delete>",
    ],
)
def test_a_malformed_document_is_refused(service: Any, body: bytes) -> None:
    status, _, answer = service.request("POST", "/bkt?delete", body)
    assert (status, b"MalformedXML" in answer) == (400, True)


def test_a_presigned_url_works(service: Any, s3: Any) -> None:
    where = {"Bucket": "bkt", "Key": "a b"}
    for method, operation, body in (("PUT", "put_object", b"x"), ("GET", "get_object", None)):
        url = s3.generate_presigned_url(operation, where)
        assert service.request(method, url.removeprefix(service.url), body)[0] == 200


def test_a_response_header_cannot_be_split(service: Any) -> None:
    service.request("PUT", "/bkt/k", b"x")
    path = "/bkt/k?response-content-type=a%0d%0aSet-Cookie:x"
    assert service.request("GET", path)[0] == 400
    _, headers, _ = service.request("GET", "/bkt/k?response-content-type=text/css")
    assert headers["content-type"] == "text/css"


def test_common_prefixes_are_paged_without_loss_or_repetition(service: Any, s3: Any) -> None:
    for folder in range(7):
        for n in range(3):
            service.request("PUT", f"/bkt/f{folder}/{n}", b"")
        service.request("PUT", f"/bkt/g{folder}", b"")
    paginator = s3.get_paginator("list_objects_v2")
    pages = list(paginator.paginate(Bucket="bkt", Delimiter="/", PaginationConfig={"PageSize": 2}))
    prefixes = [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", [])]
    keys = [o["Key"] for page in pages for o in page.get("Contents", [])]
    assert prefixes == [f"f{n}/" for n in range(7)]
    assert keys == [f"g{n}" for n in range(7)]
    old = s3.get_paginator("list_objects").paginate(
        Bucket="bkt", Delimiter="/", PaginationConfig={"PageSize": 2}
    )
    assert [p["Prefix"] for page in old for p in page.get("CommonPrefixes", [])] == prefixes


# --- races and listeners ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 1_500_000])
def test_of_racing_conditional_puts_exactly_one_wins(service: Any, size: int) -> None:
    together = threading.Barrier(8)
    answers: list[tuple[int, int]] = []

    def put(n: int) -> None:
        together.wait()
        body = bytes([n]) * size
        answers.append((service.request("PUT", "/bkt/k", body, If_None_Match="*")[0], n))

    threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [n for status, n in answers if status == 200]
    assert len(winners) == 1
    assert sorted(status for status, _ in answers)[1:] == [412] * 7
    assert service.request("GET", "/bkt/k")[2] == bytes([winners[0]]) * size


def test_the_listener_gets_small_content_once_the_object_is_visible(service: Any) -> None:
    service.request("PUT", "/bkt/small", b"{}", Content_Type="application/json")
    service.request("PUT", "/bkt/large", bytes(70_000))
    small, large = service.puts
    assert (small.bucket, small.key, small.size) == ("bkt", "small", 2)
    assert (small.content, small.content_type) == (b"{}", "application/json")
    assert (large.size, large.content) == (70_000, None)
    assert service.on_loop(lambda: service.store.head("bkt", "small")).content is None


def test_a_listener_that_fails_does_not_fail_the_put(service: Any) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("listener")

    service.server._on_put = fail
    assert service.request("PUT", "/bkt/k", b"x")[0] == 200
    assert service.request("GET", "/bkt/k")[2] == b"x"


def test_an_upload_that_failed_to_complete_can_be_completed_again(service: Any, s3: Any) -> None:
    made = s3.create_multipart_upload(Bucket="bkt", Key="k", ChecksumAlgorithm="CRC32")
    where = {"Bucket": "bkt", "Key": "k", "UploadId": made["UploadId"]}
    part = s3.upload_part(**where, PartNumber=1, Body=b"parts")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    with pytest.raises(ClientError, match="BadDigest"):
        s3.complete_multipart_upload(**where, MultipartUpload=parts, ChecksumCRC32="AAAAAA==-1")
    s3.complete_multipart_upload(**where, MultipartUpload=parts)
    assert s3.get_object(Bucket="bkt", Key="k")["Body"].read() == b"parts"
    assert list((service.folder / ".uploads").iterdir()) == []


# --- scopes -----------------------------------------------------------------------------------


@pytest.fixture
def scoped(service: Any) -> Any:
    """A service where another session's result exists and requests come from one session."""
    service.request("PUT", "/bkt/exp/other.json", b"another reward")
    service.puts.clear()
    service.scope = Scope("bkt", "exp/mine.json", max_bytes=1000)
    return service


def test_a_session_writes_its_result_once_and_reads_it_back(scoped: Any) -> None:
    assert scoped.request("HEAD", "/bkt/exp/mine.json")[0] == 404
    assert scoped.request("PUT", "/bkt/exp/mine.json", b"reward")[0] == 200
    assert scoped.request("PUT", "/bkt/exp/mine.json", b"reward")[0] == 200  # a retry
    again = scoped.request("PUT", "/bkt/exp/mine.json", b"reward", If_None_Match="*")
    assert again[0] == 200
    assert [put.key for put in scoped.puts] == ["exp/mine.json"]
    assert scoped.refused == []
    status, _, body = scoped.request("PUT", "/bkt/exp/mine.json", b"a better reward")
    assert (status, b"PreconditionFailed" in body) == (412, True)
    assert len(scoped.refused) == 1
    assert scoped.request("GET", "/bkt/exp/mine.json")[2] == b"reward"
    assert scoped.request("HEAD", "/bkt/exp/mine.json")[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/bkt/exp/other.json"),
        ("GET", "/bkt/exp/other.json"),
        ("HEAD", "/bkt/exp/other.json"),
        ("GET", "/bkt/exp/../exp/mine.json"),
        ("PUT", "/bkt/exp//mine.json"),
        ("DELETE", "/bkt/exp/mine.json"),
        ("DELETE", "/bkt/exp/other.json"),
        ("GET", "/bkt"),
        ("GET", "/bkt?list-type=2"),
        ("HEAD", "/bkt"),
        ("POST", "/bkt?delete"),
        ("PUT", "/another"),
        ("GET", "/"),
        ("GET", "/bkt/exp/mine.json?tagging"),
        ("POST", "/bkt/exp/mine.json?uploads"),
        ("PUT", "/bkt/exp/mine.json?partNumber=1&uploadId=0"),
        ("OPTIONS", "/bkt/exp/mine.json"),
    ],
)
def test_a_session_can_do_nothing_else(scoped: Any, method: str, path: str) -> None:
    status, _, body = scoped.request(method, path, b"")
    assert status == 403
    assert method == "HEAD" or b"<Code>AccessDenied</Code>" in body
    assert len(scoped.refused) == 1
    scoped.scope = None
    assert scoped.request("GET", "/bkt/exp/other.json")[2] == b"another reward"


def test_a_session_cannot_copy_anothers_result_into_its_own(scoped: Any) -> None:
    status, _, _ = scoped.request(
        "PUT", "/bkt/exp/mine.json", b"", x_amz_copy_source="/bkt/exp/other.json"
    )
    assert status == 403


def test_a_session_cannot_write_more_than_its_bound(scoped: Any) -> None:
    assert scoped.request("PUT", "/bkt/exp/mine.json", bytes(1001))[0] == 400
    assert scoped.request("HEAD", "/bkt/exp/mine.json")[0] == 404


def test_of_two_racing_results_of_one_session_the_first_stays(scoped: Any) -> None:
    together = threading.Barrier(4)
    answers: list[tuple[int, bytes]] = []

    def put(body: bytes) -> None:
        together.wait()
        answers.append((scoped.request("PUT", "/bkt/exp/mine.json", body)[0], body))

    threads = [threading.Thread(target=put, args=(b"reward %d" % n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [body for status, body in answers if status == 200]
    assert scoped.request("GET", "/bkt/exp/mine.json")[2] == winner
    assert len(scoped.refused) == 3
