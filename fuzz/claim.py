"""Signatures of strangers: a request that nobody signed is refused by name, never by accident.

The input is a request line's target, a line feed, and headers of the form ``name:value``.
"""

from __future__ import annotations

from agentcore_rl_toolkit.runtime import signature

SECRET = "the secret of the test"
CREDENTIAL = "AKID/20260131/us-east-1/s3/aws4_request"
SEEDS = [
    b"/rollouts/key?list-type=2\nHost:localhost\nX-Amz-Date:20260131T235959Z\n"
    b"Authorization:AWS4-HMAC-SHA256 Credential=" + CREDENTIAL.encode() + b", "
    b"SignedHeaders=host;x-amz-date, Signature=" + b"0" * 64,
    b"/rollouts/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
    + CREDENTIAL.replace("/", "%2F").encode()
    + b"&X-Amz-Date=20260131T235959Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature="
    + b"0" * 64
    + b"\nHost:localhost",
]


def check(data: bytes) -> None:
    # As aiohttp gives a head: UTF-8, with bytes that are none kept as surrogates.
    target, *lines = data.decode("utf-8", "surrogateescape").split("\n")
    headers = [(name, value) for name, _, value in (line.partition(":") for line in lines)]
    try:
        claim = signature.read_claim(target, headers)
        signature.check_time(claim, 1_769_903_999.0)
        signature.verify(claim, SECRET, "GET", target, headers, signature.UNSIGNED)
    except signature.Rejected:
        return
    raise AssertionError(f"nobody knows the secret, and yet it was signed: {claim}")
