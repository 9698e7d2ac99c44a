"""Who may speak to the runtime, decided before anything of a request is looked at.

On loopback: this machine, and no browser. A web page can make a browser send requests there; its
``Origin`` gives it away, and a name that an attacker rebinds to 127.0.0.1 shows in ``Host``.

On any other address: whoever holds an access key, and no browser. Every request is signed with
SigV4, ``/_art/`` too; what is refused is refused in the words of the service that was asked, so
that boto3 raises what it raises on AWS. Sessions reach the object store through listeners of their
own (``egress.py``) and do not pass here.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import urlsplit

from aiohttp import web

from ..local import is_loopback
from . import signature, wire
from .key import AccessKeys
from .objects import Refused
from .route import OURS
from .signature import Claim, Rejected

AGENTCORE = "bedrock-agentcore"
BODY_S = 60.0
"""For a body that has to be read before its sender is known."""
_S3_CODES = {
    "missing": "AccessDenied",
    "malformed": "AuthorizationHeaderMalformed",
    "skewed": "RequestTimeTooSkewed",
    "expired": "AccessDenied",
    "mismatch": "SignatureDoesNotMatch",
    "unknown": "InvalidAccessKeyId",
    "token": "InvalidToken",
}
_AGENTCORE_NAMES = {
    "missing": "MissingAuthenticationTokenException",
    "malformed": "IncompleteSignatureException",
    "skewed": "InvalidSignatureException",
    "expired": "InvalidSignatureException",
    "mismatch": "InvalidSignatureException",
    "unknown": "UnrecognizedClientException",
    "token": "UnrecognizedClientException",
}


class Guard:
    def __init__(
        self, keys: AccessKeys | None, max_body: int, clock: Callable[[], float] = time.time
    ) -> None:
        """Without keys it is a loopback's guard."""
        self.keys, self._max_body, self._clock = keys, max_body, clock

    async def check(self, request: web.Request) -> None:
        """WireError or Refused, as the service that was asked says no."""
        refuse_browsers(request)
        if self.keys is None:
            check_host(request)
            return
        service = asked(request)
        try:
            await self._check_signature(request, service, self.keys)
        except Rejected as rejected:
            refuse(rejected, service)

    async def _check_signature(self, request: web.Request, service: str, keys: AccessKeys) -> None:
        target, headers = request.raw_path, request.headers.items()
        if not target.startswith("/"):
            raise Rejected("malformed", "The request line must name a path")
        claim = signature.read_claim(target, headers)
        if claim.service != service:
            raise Rejected(
                "malformed",
                f"Credential should be scoped to correct service: '{service}', not "
                f"'{claim.service}'",
            )
        secret = keys.secret(claim.access_key, service)
        if secret is None:
            raise Rejected("unknown", "The AWS access key id does not exist in the keys here")
        if claim.token:
            raise Rejected("token", "The keys of a local runtime have no session token")
        signature.check_time(claim, self._clock())
        if service == AGENTCORE:
            payload = await self._read(request)
        else:
            payload = declared_payload(request, claim)
        signature.verify(claim, secret, request.method, target, headers, payload)
        if payload in (signature.STREAMED, signature.STREAMED_TRAILER):
            request[wire.CHUNKS] = signature.Chunks(claim, secret)

    async def _read(self, request: web.Request) -> str:
        """AgentCore signs the body itself: it is held until the signature is known to be good."""
        if (request.content_length or 0) > self._max_body:
            raise wire.invalid(f"payload is larger than {self._max_body} bytes", "payload")
        if not request.can_read_body:
            return signature.EMPTY_SHA256
        try:
            async with asyncio.timeout(BODY_S):
                body = request[wire.BODY] = await request.read()
        except TimeoutError:
            slow = "The body came too slowly"
            raise wire.WireError(408, "RequestTimeoutException", slow) from None
        except web.HTTPRequestEntityTooLarge as error:
            raise wire.invalid(
                f"payload is larger than {self._max_body} bytes", "payload"
            ) from error
        return hashlib.sha256(body).hexdigest()


def asked(request: web.Request) -> str:
    """The service that a request is for. AgentCore has operations beyond ours, on other paths:
    they are told apart by their signature, as the router does it."""
    first = request.rel_url.raw_path.split("/", 2)[1]
    ours = first in OURS or is_agentcore(request)
    return AGENTCORE if ours else "s3"


def is_agentcore(request: web.Request) -> bool:
    return f"/{AGENTCORE}/aws4_request" in request.headers.get("Authorization", "")


def declared_payload(request: web.Request, claim: Claim) -> str:
    """S3 signs what a header says of the body; the object store holds the body to it."""
    given = request.headers.getall("x-amz-content-sha256", [])
    if not given and claim.expires_s is not None:
        return signature.UNSIGNED
    if len(given) != 1:
        raise Rejected("malformed", "The header x-amz-content-sha256 must be there once")
    return signature.check_payload(given[0].strip())


def refuse(rejected: Rejected, service: str) -> NoReturn:
    if service == AGENTCORE:
        raise wire.WireError(403, _AGENTCORE_NAMES[rejected.fault], rejected.message)
    raise Refused(_S3_CODES[rejected.fault], rejected.message)


def refuse_browsers(request: web.Request) -> None:
    headers = request.headers
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none":
        raise wire.denied("The local runtime does not answer browsers")


def check_host(request: web.Request) -> None:
    try:
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        raise wire.denied(
            f"The local runtime answers requests for loopback only, not for the host {host!r}"
        )
