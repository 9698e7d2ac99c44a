"""What a runtime on a network has to stand: slow, oversized and climbing requests."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentcore_rl_toolkit.runtime import guard, server
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from .conftest import Aws


def connect(url: str) -> socket.socket:
    where = urlsplit(url)
    return socket.create_connection((where.hostname, where.port), timeout=60)


def exchange(url: str, data: bytes) -> bytes:
    """All that comes back until the other side hangs up."""
    with connect(url) as sock:
        try:
            sock.sendall(data)
        except OSError:
            pass  # it did not want all of it
        return rest(sock)


def rest(sock: socket.socket) -> bytes:
    answer = b""
    try:
        while piece := sock.recv(65536):
            answer += piece
    except ConnectionError:
        pass
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[RuntimeThread]:
    """Its patience is a fraction of a second instead of a minute; it checks signatures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "IDLE_S", 0.4)
        patch.setattr(guard, "BODY_S", 0.4)
        keys = tmp_path / "keys"
        with RuntimeThread(home=tmp_path / "home", access_keys=keys, isolation="process") as one:
            yield one


def test_heads_that_never_end_are_hung_up_on_and_hold_nobody_up(impatient: RuntimeThread) -> None:
    slow = [connect(impatient.url) for _ in range(50)]
    for sock in slow:
        sock.sendall(b"GET /_art/ HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert status(exchange(impatient.url, b"GET /_art/ HTTP/1.1\r\nHost: x\r\n\r\n")) == 403
    deadline = time.monotonic() + 60
    for sock in slow:
        try:
            while time.monotonic() < deadline:
                sock.sendall(b"a")  # a byte now and then buys no time
                sock.settimeout(0.05)
                try:
                    if not sock.recv(1000):
                        break
                except TimeoutError:
                    continue
            else:
                pytest.fail("still open")
        except ConnectionError:
            pass
        sock.close()


def test_a_body_that_never_comes_is_not_waited_for_by_those_who_are_not_known(
    impatient: RuntimeThread,
) -> None:
    with connect(impatient.url) as sock:
        sock.sendall(
            b"POST /runtimes/x/invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        )
        assert status(sock.recv(1000)) == 403, "unsigned: nothing of the body is read"
    assert impatient.server.keys is not None
    key = next(iter(impatient.server.keys.secrets))
    stamp = guard.signature.stamp(time.time())
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={key}/{stamp[:8]}/us-east-1/bedrock-agentcore/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    )
    head = (
        f"POST /runtimes/x/invocations HTTP/1.1\r\nHost: x\r\nX-Amz-Date: {stamp}\r\n"
        f"Authorization: {authorization}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    with connect(impatient.url) as sock:
        sock.sendall(head.encode())
        answer = sock.recv(4000)
    assert status(answer) == 408
    assert b"RequestTimeoutException" in answer


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Long: " + b"a" * 20_000 + b"\r\n", id="one long header"),
        pytest.param(b"".join(b"X-%d: a\r\n" % n for n in range(5000)), id="many headers"),
        pytest.param(b"a" * 20_000 + b": x\r\n", id="a long name"),
        pytest.param(b"X: a\r\n b\r\n", id="a folded header"),
        pytest.param(b"Content-Length: 1\r\nContent-Length: 2\r\n", id="two lengths"),
        pytest.param(
            b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", id="two ways to say the length"
        ),
        pytest.param(b"Content-Length: -1\r\n", id="a negative length"),
        pytest.param(b"X: \x00\r\n", id="a NUL"),
    ],
)
def test_heads_that_are_too_large_or_broken_are_400(aws: Aws, head: bytes) -> None:
    request = b"GET /_art/ HTTP/1.1\r\nHost: localhost\r\n" + head + b"Connection: close\r\n\r\n"
    assert status(exchange(aws.url, request)) in (400, 431)
    assert aws.get("/_art/")["service"] == "agentcore-rl-toolkit"


def test_a_long_request_line_is_400(aws: Aws) -> None:
    line = b"GET /rollouts/" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert status(exchange(aws.url, line)) in (400, 414)


def test_the_longest_header_of_aws_passes(aws: Aws, asgi_arn: str, sid: str) -> None:
    baggage = "k=" + "v" * 8190
    seen = aws.ask(asgi_arn, {}, sid, baggage=baggage)
    assert seen["headers"]["baggage"] == baggage
    aws.stop(asgi_arn, sid)


@pytest.mark.parametrize(
    ("path", "length"),
    [
        pytest.param("/runtimes/x-0123456789/invocations", 10**12, id="an announced payload"),
        pytest.param("/runtimes/", 10**12, id="an announced control request"),
        pytest.param("/rollouts/key", 10**12, id="an announced object"),
    ],
)
def test_bodies_that_are_announced_too_large_are_refused_unread(
    aws: Aws, path: str, length: int
) -> None:
    method = "PUT" if path != "/runtimes/x-0123456789/invocations" else "POST"
    with connect(aws.url) as sock:
        sock.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
            "Connection: close\r\n\r\n{".encode()
        )
        assert 400 <= status(sock.recv(4000)) < 500


def test_json_that_is_nested_without_end_is_refused(aws: Aws) -> None:
    body = b"[" * 200_000
    head = b"PUT /runtimes/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    answer = exchange(aws.url, head + b"Connection: close\r\n\r\n" + body)
    assert status(answer) == 400
    assert b"ValidationException" in answer


def test_a_control_request_that_does_not_end_is_cut_off(aws: Aws) -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    head = b"PUT /runtimes/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchange(aws.url, head + chunk * 3000)
    assert status(answer) in (0, 400, 413)
    assert aws.get("/_art/")["service"] == "agentcore-rl-toolkit"


CLIMBING = (
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/escaped",
    "....//....//escaped",
    "/etc/passwd",
    "a/../../b",
    "..",
    ".",
    "%00",
    "a%00b",
    "..\\..\\escaped",
)


@pytest.mark.parametrize("key", CLIMBING)
def test_keys_that_climb_stay_names(aws: Aws, shared_home: Path, key: str) -> None:
    before = outside(shared_home)
    body = b"Content-Length: 2\r\nConnection: close\r\n\r\nhi"
    put = b"PUT /rollouts/%s HTTP/1.1\r\nHost: localhost\r\n" % key.encode()
    code = status(exchange(aws.url, put + body))
    assert code in (200, 400)
    get = b"GET /rollouts/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = exchange(aws.url, get % key.encode())
    assert status(answer) == (200 if code == 200 else 400)
    assert b"root:" not in answer
    assert outside(shared_home) == before
    exchange(aws.url, (get % key.encode()).replace(b"GET", b"DELETE", 1))


@pytest.mark.parametrize(
    "bucket", ["..", "%2e%2e", ".tmp", ".lock", "..%2f..%2fx", "a/..", "a%2Fb"]
)
@pytest.mark.parametrize("method", [b"PUT", b"DELETE", b"GET"])
def test_buckets_that_climb_are_refused(
    aws: Aws, shared_home: Path, method: bytes, bucket: str
) -> None:
    before = outside(shared_home)
    line = method + b" /%s HTTP/1.1\r\nHost: localhost\r\n" % bucket.encode()
    answer = exchange(aws.url, line + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
    assert 400 <= status(answer) < 500
    assert outside(shared_home) == before


@pytest.mark.parametrize("name", ["..", "..%2f..%2fregistry", "%2e%2e%2f%2e%2e%2fregistry.jsonl"])
def test_logs_of_sessions_that_climb_are_refused(aws: Aws, name: str) -> None:
    line = f"GET /_art/sessions/{name}/log HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert status(exchange(aws.url, line.encode())) in (400, 404)


@pytest.fixture
def shared_home(shared_runtime: RuntimeThread) -> Path:
    return shared_runtime.server.home.path


def outside(home: Path) -> set[str]:
    """Files of the state folder and around it that are not the content of objects."""
    found = {str(path) for path in home.parent.iterdir()}
    for place, folders, files in os.walk(home):
        folders[:] = [f for f in folders if f not in ("agents", "logs", ".tmp")]
        inner = Path(place).relative_to(home).parts
        if len(inner) < 4:  # runtime/objects/<bucket>/<two digits>/…
            found |= {os.path.join(place, name) for name in files}
    return found
