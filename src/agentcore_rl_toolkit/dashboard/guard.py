"""Who may look. On loopback: this machine's own browsers, on our own page.

A page of somebody else can make a browser send requests here: its ``Origin`` or ``Sec-Fetch-Site``
gives it away, and a name rebound to 127.0.0.1 shows in ``Host``. On any other address whoever holds
the token: given once in the address, then kept in a cookie that scripts cannot read.

Answers carry headers that let the page load and run its own files and nothing else, whatever an
agent wrote into what it shows.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from ..local import is_loopback

COOKIE = "art_dashboard"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    def __init__(self, token: str | None) -> None:
        """Without a token it is a loopback's guard."""
        self._token = token

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self.check(request)
            return await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise

    def check(self, request: web.Request) -> None:
        """HTTPForbidden, HTTPUnauthorized, or a redirect that takes the token out of sight."""
        refuse_foreign_pages(request)
        if self._token is None:
            if not is_loopback(host_of(request)):
                raise web.HTTPForbidden(
                    text="The dashboard answers requests for loopback only, not for "
                    f"{host_of(request)!r}. To look from elsewhere: art dashboard --host"
                )
            return
        if (given := request.query.get("token")) is not None and request.path == "/":
            self._compare(given)
            raise self._greeting(given)
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self._compare(bearer or request.cookies.get(COOKIE, ""))

    def _compare(self, given: str) -> None:
        expected = self._token or ""
        if not hmac.compare_digest(given.encode(errors="surrogateescape"), expected.encode()):
            raise web.HTTPUnauthorized(
                text="Open the address that 'art dashboard' printed: it holds the token."
            )

    def _greeting(self, token: str) -> web.HTTPFound:
        answer = web.HTTPFound("/")
        answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict", path="/")
        return answer


def refuse_foreign_pages(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    if origin is not None and not _is_ours(origin, request.headers.get("Host", "")):
        raise web.HTTPForbidden(text="The dashboard does not answer other pages")
    site = request.headers.get("Sec-Fetch-Site", "none")
    # A link to the page itself may be followed from anywhere; what it shows stays ours.
    followed = request.path == "/" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if site not in ("none", "same-origin") and not followed:
        raise web.HTTPForbidden(text="The dashboard does not answer other pages")


def _is_ours(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def host_of(request: web.Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""
