"""SigV4 against botocore's own signer, over the wire of a runtime that demands it."""

from __future__ import annotations

import hashlib
import re
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.runtime import signature
from agentcore_rl_toolkit.runtime.signature import Claim, Rejected
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

KEY, SECRET = "ARTTEST", "a secret/with+signs="
ARN = local.runtime_arn("nobody-0123456789").replace(":", "%3A").replace("/", "%2F")
REFUSALS = {
    "AccessDenied",
    "AuthorizationHeaderMalformed",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "XAmzContentSHA256Mismatch",
    "MissingAuthenticationTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "UnrecognizedClientException",
    "HTTP 400",  # not even HTTP: refused by the parser
}


@dataclass(frozen=True)
class Wire:
    """A request as it is sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"[me]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
    keys.chmod(0o600)
    home = tmp_path_factory.mktemp("home")
    with RuntimeThread(home=home, access_keys=keys, isolation="process") as runtime:
        yield runtime


def signed(
    url: str,
    target: str,
    method: str = "GET",
    body: bytes = b"",
    presigned: bool = False,
    **headers: str,
) -> Wire:
    s3 = not target.startswith(("/runtimes", "/tags", "/_art"))
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = AWSRequest(method, url + target, headers=given, data=body)
    request.context = {"payload_signing_enabled": True}
    kind: Any = {
        (True, False): S3SigV4Auth,
        (True, True): S3SigV4QueryAuth,
        (False, False): SigV4Auth,
        (False, True): SigV4QueryAuth,
    }[s3, presigned]
    kind(Credentials(KEY, SECRET), "s3" if s3 else "bedrock-agentcore", "us-east-1").add_auth(
        request
    )
    sent = urlsplit(request.url)
    path = f"{sent.path}?{sent.query}" if sent.query else sent.path
    lines = [("Host", sent.netloc), *((n, v) for n, v in request.headers.items())]
    return Wire(
        method, path, tuple((n, v) for n, v in lines if n.lower() != "content-length"), body
    )


def send(url: str, request: Wire) -> str:
    """The error code of the answer; "" for success."""
    where = urlsplit(url)
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    lines += [f"Content-Length: {len(request.body)}", "Connection: close", "", ""]
    with socket.create_connection((where.hostname, where.port), timeout=60) as sock:
        sock.sendall("\r\n".join(lines).encode() + request.body)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if status < 300:
        return ""
    for line in head.decode().split("\r\n"):
        if line.lower().startswith("x-amzn-errortype:"):
            return line.partition(":")[2].strip()
    if b"<Code>" in body:
        return body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()
    return f"HTTP {status}"


CASES = {
    "a put": ("/rollouts/some/key%20with%2Bsigns", "PUT", b'{"rewards": 1}', ""),
    "a listing": ("/rollouts?list-type=2&prefix=a%2Fb&max-keys=5", "GET", b"", ""),
    "a control call": ("/runtimes/?maxResults=5", "POST", b"", ""),
    "an invocation": (
        f"/runtimes/{ARN}/invocations?qualifier=DEFAULT",
        "POST",
        b'{"prompt": "x"}',
        "ResourceNotFoundException",
    ),
    "a look at the sessions": ("/_art/sessions", "GET", b"", ""),
}


def case(url: str, name: str, presigned: bool = False) -> tuple[Wire, str]:
    target, method, body, code = CASES[name]
    body = b"" if presigned else body  # botocore would make parameters of it
    extra = {} if presigned else {"Content_Type": "application/json", "X_Amz_Meta_A": "b  c"}
    return signed(url, target, method, body, presigned, **extra), code


@pytest.mark.parametrize("presigned", [False, True], ids=["in the header", "presigned"])
@pytest.mark.parametrize("name", CASES)
def test_what_botocore_signs_is_accepted(
    runtime: RuntimeThread, name: str, presigned: bool
) -> None:
    request, code = case(runtime.url, name, presigned)
    assert send(runtime.url, request) == code


def flip(text: str, at: int) -> str:
    at %= len(text)
    return text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]


def change_header(request: Wire, name: str, change: Any) -> Wire:
    return replace(
        request,
        headers=tuple(
            (n, change(v) if n.lower() == name.lower() else v) for n, v in request.headers
        ),
    )


def signed_names(request: Wire) -> list[str]:
    value = dict(request.headers)["Authorization"]
    return value.partition("SignedHeaders=")[2].partition(",")[0].split(";")


@st.composite
def mutations(draw: st.DrawFn) -> Any:
    """A change of a signed request that its signer did not make."""
    number = draw(st.integers(0, 10_000))
    kind = draw(st.sampled_from(sorted(CHANGES)))
    return kind, lambda request: CHANGES[kind](request, number)


def longer_path(request: Wire, number: int) -> Wire:
    path, mark, query = request.target.partition("?")
    at = 1 + number % len(path)
    return replace(request, target=path[:at] + "x" + path[at:] + mark + query)


def more_query(request: Wire, number: int) -> Wire:
    mark = "&" if "?" in request.target else "?"
    return replace(request, target=f"{request.target}{mark}prefix={number}")


def other_method(request: Wire, number: int) -> Wire:
    others = [m for m in ("GET", "PUT", "POST", "DELETE", "HEAD") if m != request.method]
    return replace(request, method=others[number % len(others)])


def other_value(request: Wire, number: int) -> Wire:
    names = signed_names(request)
    return change_header(request, names[number % len(names)], lambda v: v + "1")


def lost_header(request: Wire, number: int) -> Wire:
    names = signed_names(request)
    lost = names[number % len(names)]
    return replace(request, headers=tuple(h for h in request.headers if h[0].lower() != lost))


def twice(request: Wire, number: int) -> Wire:
    names = signed_names(request)
    name = names[number % len(names)]
    again = next(h for h in request.headers if h[0].lower() == name)
    return replace(request, headers=(*request.headers, again))


def more_headers(request: Wire, number: int) -> Wire:
    return replace(request, headers=(*request.headers, ("x-amz-meta-new", str(number))))


def other_body(request: Wire, number: int) -> Wire:
    if not request.body or request.method == "GET":
        return replace(request, body=b"", headers=())  # nothing signed at all
    at = number % len(request.body)
    return replace(request, body=request.body[:at] + b"#" + request.body[at + 1 :])


def other_signature(request: Wire, number: int) -> Wire:
    def change(value: str) -> str:
        head, _, digits = value.rpartition("Signature=")
        return f"{head}Signature={flip(digits, number)}"

    return change_header(request, "Authorization", change)


def other_scope(request: Wire, number: int) -> Wire:
    def change(value: str) -> str:
        head, _, rest = value.partition("Credential=")
        parts = rest.partition(",")[0].split("/")
        at = number % len(parts)
        parts[at] = flip(parts[at], number)
        return f"{head}Credential={'/'.join(parts)},{rest.partition(',')[2]}"

    return change_header(request, "Authorization", change)


def fewer_signed(request: Wire, number: int) -> Wire:
    def change(value: str) -> str:
        names = signed_names(request)
        del names[number % len(names)]
        head, _, rest = value.partition("SignedHeaders=")
        return f"{head}SignedHeaders={';'.join(names)},{rest.partition(',')[2]}"

    return change_header(request, "Authorization", change)


def other_time(request: Wire, number: int) -> Wire:
    moved = signature.stamp(time.time() + (number - 5000) * 60 + 1.5)
    return change_header(request, "X-Amz-Date", lambda _: moved)


def other_query_value(request: Wire, number: int) -> Wire:
    path, mark, query = request.target.partition("?")
    if not query:
        return more_query(request, number)
    return replace(request, target=path + mark + query + "1")


CHANGES = {
    change.__name__: change
    for change in (
        *(longer_path, more_query, other_method, other_value, lost_header, twice, more_headers),
        *(other_body, other_signature, other_scope, fewer_signed, other_time, other_query_value),
    )
}


@settings(max_examples=250, deadline=None, derandomize=True)
@given(name=st.sampled_from(sorted(CASES)), mutation=mutations())
def test_every_change_on_the_way_is_refused(
    runtime: RuntimeThread, name: str, mutation: Any
) -> None:
    kind, change = mutation
    request, _ = case(runtime.url, name)
    changed = change(request)
    assert changed != request
    code = send(runtime.url, changed)
    if changed.method == "HEAD":
        assert code in ("HTTP 400", "HTTP 403") or code in REFUSALS, kind
    else:
        assert code in REFUSALS, kind


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=st.sampled_from(sorted(CASES)), at=st.integers(0, 5000))
def test_every_change_of_a_presigned_url_is_refused(
    runtime: RuntimeThread, name: str, at: int
) -> None:
    request, _ = case(runtime.url, name, presigned=True)
    at %= len(request.target)
    swapped = "0" if request.target[at] != "0" else "1"
    changed = replace(request, target=request.target[:at] + swapped + request.target[at + 1 :])
    assert send(runtime.url, changed) in REFUSALS


# --- malformed, unknown, late -----------------------------------------------------------------

GOOD = "AWS4-HMAC-SHA256 Credential={}, SignedHeaders=host;x-amz-date, Signature=" + "0" * 64


@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param("", id="empty"),
        pytest.param("Basic dXNlcjpwYXNz", id="another scheme"),
        pytest.param("AWS4-HMAC-SHA256", id="nothing in it"),
        pytest.param("AWS4-HMAC-SHA1 Credential=a, SignedHeaders=b, Signature=c", id="old hash"),
        pytest.param(GOOD.format("a"), id="credential without a scope"),
        pytest.param(GOOD.format("a/b/c/d/aws4_request"), id="credential without a day"),
        pytest.param(GOOD.format("a/20260101/us-east-1/s3/aws5_request"), id="unknown end"),
        pytest.param(GOOD.format("/".join("x" * 3000)), id="very long"),
        pytest.param(GOOD.format("\u00e9/20260101/us-east-1/s3/aws4_request"), id="not ASCII"),
        pytest.param("AWS4-HMAC-SHA256 " + "Credential=" * 500, id="repetition"),
    ],
)
@pytest.mark.parametrize("target", ["/rollouts/x", "/runtimes/", "/_art/"])
def test_malformed_authorization_is_refused_by_name(
    runtime: RuntimeThread, target: str, authorization: str
) -> None:
    host = urlsplit(runtime.url).netloc
    headers = [("Host", host), ("X-Amz-Date", signature.stamp(time.time()))]
    headers.append(("Authorization", authorization))
    assert send(runtime.url, Wire("GET", target, tuple(headers))) in REFUSALS


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/rollouts/x", "AccessDenied"),
        ("/runtimes/", "MissingAuthenticationTokenException"),
        ("/tags/x", "MissingAuthenticationTokenException"),
        ("/_art/", "MissingAuthenticationTokenException"),
        ("/_art/events", "MissingAuthenticationTokenException"),
        ("/rollouts/x?AWSAccessKeyId=a&Signature=b&Expires=9", "AuthorizationHeaderMalformed"),
    ],
)
def test_an_unsigned_request_is_refused(runtime: RuntimeThread, target: str, code: str) -> None:
    host = urlsplit(runtime.url).netloc
    assert send(runtime.url, Wire("GET", target, (("Host", host),))) == code


@pytest.mark.parametrize(
    ("target", "service", "code"),
    [
        ("/rollouts/x", "bedrock-agentcore-control", "AuthorizationHeaderMalformed"),
        ("/runtimes/", "s3", "IncompleteSignatureException"),
        ("/_art/sessions", "s3", "IncompleteSignatureException"),
    ],
)
def test_a_signature_for_another_service_does_not_count(
    runtime: RuntimeThread, target: str, service: str, code: str
) -> None:
    request = AWSRequest("GET", runtime.url + target)
    SigV4Auth(Credentials(KEY, SECRET), service, "us-east-1").add_auth(request)
    headers = (("Host", urlsplit(runtime.url).netloc), *request.headers.items())
    assert send(runtime.url, Wire("GET", target, headers)) == code


def test_the_sessions_own_key_opens_the_store_alone(runtime: RuntimeThread) -> None:
    assert runtime.server.keys is not None
    name, secret = runtime.server.keys.session
    for target, kind, service, code in (
        ("/rollouts?list-type=2", S3SigV4Auth, "s3", ""),
        ("/runtimes/", SigV4Auth, "bedrock-agentcore", "UnrecognizedClientException"),
        ("/_art/", SigV4Auth, "bedrock-agentcore", "UnrecognizedClientException"),
    ):
        request = AWSRequest("GET", runtime.url + target)
        kind(Credentials(name, secret), service, "us-east-1").add_auth(request)
        headers = (("Host", urlsplit(runtime.url).netloc), *request.headers.items())
        assert send(runtime.url, Wire("GET", target, headers)) == code


def claim(**changes: Any) -> Claim:
    stamp = signature.stamp(changes.pop("at", 1_000_000.0))
    return Claim("k", stamp, "us-east-1", "s3", ("host",), "0" * 64, **changes)


@pytest.mark.parametrize(
    ("one", "now", "fault"),
    [
        pytest.param(claim(), 1_000_000 + 899, None, id="a slow clock within bounds"),
        pytest.param(claim(), 1_000_000 + 901, "skewed", id="too old"),
        pytest.param(claim(), 1_000_000 - 899, None, id="a fast clock within bounds"),
        pytest.param(claim(), 1_000_000 - 901, "skewed", id="from the future"),
        pytest.param(claim(expires_s=3600), 1_003_599, None, id="a presigned URL in its time"),
        pytest.param(claim(expires_s=3600), 1_003_600, "expired", id="a presigned URL after it"),
        pytest.param(claim(expires_s=3600), 999_000, "skewed", id="a presigned URL before it"),
    ],
)
def test_signatures_have_their_time(one: Claim, now: float, fault: str | None) -> None:
    if fault is None:
        signature.check_time(one, now)
        return
    with pytest.raises(Rejected) as rejected:
        signature.check_time(one, now)
    assert rejected.value.fault == fault


# --- bodies that are signed piece by piece ----------------------------------------------------


def chunked(runtime: RuntimeThread, key: str, pieces: list[bytes], trailer: bool = False) -> Wire:
    """An upload as SDKs with chunk signing send it. botocore signs the head; the pieces follow the
    published scheme."""
    word = signature.STREAMED_TRAILER if trailer else signature.STREAMED
    headers = {
        "x-amz-content-sha256": word,
        "x-amz-decoded-content-length": str(sum(map(len, pieces))),
        "Content-Encoding": "aws-chunked",
    }
    if trailer:
        headers["x-amz-trailer"] = "x-amz-checksum-sha1"
    request = AWSRequest("PUT", f"{runtime.url}/rollouts/{key}", headers=headers)
    auth = S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1")
    auth.payload = lambda _: word
    auth.add_auth(request)
    last = request.headers["Authorization"].rpartition("=")[2]
    head = f"{request.headers['X-Amz-Date']}\n{auth.credential_scope(request)}"
    empty = hashlib.sha256(b"").hexdigest()
    body = b""
    for piece in [*pieces, b""]:
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{head}\n{last}\n{empty}\n"
        last = auth.signature(text + hashlib.sha256(piece).hexdigest(), request)
        body += f"{len(piece):x};chunk-signature={last}\r\n".encode() + piece
        body += b"\r\n" if piece else b""
    if trailer:
        digest = b64encode(hashlib.sha1(b"".join(pieces)).digest()).decode()
        line = f"x-amz-checksum-sha1:{digest}\n"
        text = f"AWS4-HMAC-SHA256-TRAILER\n{head}\n{last}\n"
        last = auth.signature(text + hashlib.sha256(line.encode()).hexdigest(), request)
        body += f"{line.strip()}\r\nx-amz-trailer-signature:{last}\r\n".encode()
    body += b"\r\n"
    sent = (("Host", urlsplit(runtime.url).netloc), *request.headers.items())
    return Wire("PUT", f"/rollouts/{key}", sent, body)


@pytest.mark.parametrize("trailer", [False, True], ids=["pieces", "pieces and trailer"])
def test_a_body_signed_in_pieces_is_stored(runtime: RuntimeThread, trailer: bool) -> None:
    pieces = [b"a" * 70_000, b"b" * 70_000, b"end"]
    key = f"pieces-{trailer}"
    assert send(runtime.url, chunked(runtime, key, pieces, trailer)) == ""
    assert runtime.call(lambda: runtime.server.store.read("rollouts", key)) == b"".join(pieces)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda body: body.replace(b"bbb", b"bxb", 1), id="a changed piece"),
        pytest.param(
            lambda body: body.replace(b"signature=", b"signature=0", 1), id="no signature"
        ),
        pytest.param(lambda body: body.replace(b";chunk-signature=", b";a=", 1), id="none at all"),
        pytest.param(
            lambda body: body.replace(b"x-amz-checksum-sha1:", b"x-amz-checksum-sha1:A", 1),
            id="a changed trailer",
        ),
    ],
)
def test_a_body_with_a_changed_piece_is_not_stored(runtime: RuntimeThread, change: Any) -> None:
    request = chunked(runtime, "changed", [b"a" * 9000, b"b" * 9000], trailer=True)
    body = change(request.body)
    assert body != request.body
    code = send(runtime.url, replace(request, body=body))
    assert code in ("SignatureDoesNotMatch", "InvalidRequest", "IncompleteBody")
    assert runtime.call(lambda: runtime.server.store.find("rollouts", "changed")) is None


def test_pieces_cannot_change_places(runtime: RuntimeThread) -> None:
    request = chunked(runtime, "moved", [b"a" * 10, b"b" * 10])
    head, first, second, end = re.split(rb"(?=a;chunk-|0;chunk-)", request.body)
    assert head == b""
    moved = replace(request, body=second + first + end)
    assert send(runtime.url, moved) == "SignatureDoesNotMatch"
    assert send(runtime.url, replace(request, body=first + end)) == "SignatureDoesNotMatch"
    assert send(runtime.url, request) == ""


@pytest.mark.parametrize(("content", "code"), [(b"content", ""), (b"changed", "BadDigest")])
def test_an_unsigned_body_with_a_checksum_behind_it(
    runtime: RuntimeThread, content: bytes, code: str
) -> None:
    """As boto3 sends it over TLS: the head is signed, the body only summed up."""
    headers = {
        "x-amz-content-sha256": signature.UNSIGNED_TRAILER,
        "x-amz-decoded-content-length": "7",
        "x-amz-trailer": "x-amz-checksum-sha1",
        "Content-Encoding": "aws-chunked",
    }
    request = AWSRequest("PUT", f"{runtime.url}/rollouts/summed", headers=headers)
    auth = S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1")
    auth.payload = lambda _: signature.UNSIGNED_TRAILER
    auth.add_auth(request)
    digest = b64encode(hashlib.sha1(b"content").digest())
    body = b"7\r\n" + content + b"\r\n0\r\nx-amz-checksum-sha1:" + digest + b"\r\n\r\n"
    sent = (("Host", urlsplit(runtime.url).netloc), *request.headers.items())
    assert send(runtime.url, Wire("PUT", "/rollouts/summed", sent, body)) == code
