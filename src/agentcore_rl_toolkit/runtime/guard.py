"""Who may speak to the runtime while it trusts everyone it can hear: this machine, and no browser.

A web page can make a browser send requests to loopback. Its ``Origin`` gives it away; a name that
an attacker rebinds to 127.0.0.1 shows in ``Host``. Both are refused before anything is looked at.
"""

from __future__ import annotations

import functools
import ipaddress
from urllib.parse import urlsplit

from aiohttp import web

from ..errors import ConfigError
from . import wire


def check_bind(host: str) -> None:
    if not is_loopback(host):
        raise ConfigError(
            f"the local runtime listens on loopback only, not on {host!r}: it does not check "
            "signatures yet, so everyone who reaches it could run code. Use 127.0.0.1, and an SSH "
            "tunnel from elsewhere"
        )


def check_request(request: web.Request) -> None:
    headers = request.headers
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none":
        raise wire.denied("The local runtime does not answer browsers")
    try:
        host = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        raise wire.denied(
            f"The local runtime answers requests for loopback only, not for the host {host!r}"
        )


@functools.lru_cache(256)
def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
