"""Who may use a gateway that asks for no key.

With keys the gateway needs no guard: a page that a browser shows cannot know one. An open gateway
(``--open``) has nothing but its address. A web page can make a browser send requests there: its
``Origin`` gives it away, and a name that was rebound to loopback shows in ``Host``.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from ..local import is_loopback
from .fault import Refusal
from .setting import GatewaySettings


def refuse_browsers(request: web.BaseRequest, settings: GatewaySettings) -> None:
    headers = request.headers
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none":
        raise Refusal(403, "browsers may not use an open gateway", retry=False)
    if not is_loopback(settings.host):
        return
    given = headers.get("Host", "")
    public = urlsplit(settings.public_url or "").netloc
    if given != public and not is_loopback(_host(given)):
        raise Refusal(
            403, f"an open gateway answers for loopback only, not for {given!r}", retry=False
        )


def _host(authority: str) -> str:
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
