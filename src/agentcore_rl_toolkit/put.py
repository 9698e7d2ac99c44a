"""One put to a store on this machine, without the SDK: how a session on one machine ends.

botocore's client is thousands of objects, and a session that was just forked copies a thousand
pages to touch them: 10 ms of processor time between the handler's return and its result. The same
signed request costs a third of that with the standard library. It is only for a store that the
environment names by a loopback address, together with its keys: everywhere else keys come and go,
and finding them is the SDK's business.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import re
import time
import zlib
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from . import local

TIMEOUT_S = 30.0
ERROR_BYTES = 4096
_SAFE = "/-_.~"
_CODE = re.compile(r"<Code>(\w{1,100})</Code>")


class Refused(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the store answered {status}: {said[:500]}")
        found = _CODE.search(said)
        self.code = found[1] if found else ""


class Place(NamedTuple):
    host: str
    port: int
    key_id: str
    secret: str
    token: str
    region: str


def find(env: Mapping[str, str] = os.environ) -> Place | None:
    """The store that the environment names; None where only the SDK knows the way."""
    key_id, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    try:
        url = urlsplit(env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or "")
        host, port = url.hostname or "", url.port
    except ValueError:  # the SDK says it better
        return None
    if url.scheme != "http" or url.path.strip("/") or not port or not local.is_loopback(host):
        return None
    if not key_id or not secret:
        return None
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    return Place(host, port, key_id, secret, env.get("AWS_SESSION_TOKEN", ""), region)


def put(place: Place, bucket: str, key: str, body: bytes) -> None:
    """Returns once the store has the body, which is JSON. Refused, or what http.client raises."""
    path = path_of(bucket, key)
    connection = http.client.HTTPConnection(place.host, place.port, timeout=TIMEOUT_S)
    try:
        connection.request("PUT", path, body, signed_headers(place, path, body))
        answer = connection.getresponse()
        if answer.status != 200:
            raise Refused(answer.status, answer.read(ERROR_BYTES).decode(errors="replace"))
    finally:
        connection.close()


def path_of(bucket: str, key: str) -> str:
    return quote(f"/{bucket}/{key}", safe=_SAFE)


def signed_headers(place: Place, path: str, body: bytes) -> dict[str, str]:
    host = f"[{place.host}]" if ":" in place.host else place.host
    headers = {
        "content-type": "application/json",
        "host": f"{host}:{place.port}",
        "x-amz-checksum-crc32": base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode(),
        "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
        "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
    }
    if place.token:
        headers["x-amz-security-token"] = place.token
    return headers | {"authorization": _authorization(place, path, headers)}


def _authorization(place: Place, path: str, headers: Mapping[str, str]) -> str:
    """AWS Signature Version 4; the names in ``headers`` are lower case and in order."""
    stamp, digest = headers["x-amz-date"], headers["x-amz-content-sha256"]
    signed = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"PUT\n{path}\n\n{lines}\n{signed}\n{digest}"
    scope = f"{stamp[:8]}/{place.region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = f"AWS4{place.secret}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    signature = hmac.digest(secret, text.encode(), "sha256").hex()
    return (
        f"AWS4-HMAC-SHA256 Credential={place.key_id}/{scope}, "
        f"SignedHeaders={signed}, Signature={signature}"
    )
