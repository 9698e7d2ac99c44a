"""Mode ``exec``: a fresh interpreter of one session, on the listener that it inherits, if any."""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
from typing import Any

from . import plain, script

SPEC = "_ART_FRESH"


def main(descriptor: int) -> None:
    spec = json.loads(os.environ.pop(SPEC))
    if "line" in spec:  # a system on which nobody has done this for us
        plain.hold(spec["line"])
        plain.limit(spec["limits"])
    if descriptor >= 0:
        listener = socket.socket(fileno=descriptor)
        listener.set_inheritable(False)
        _serve_on(listener)
    path = os.path.join(spec["folder"], spec["entry"])
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")


def _serve_on(listener: socket.socket) -> None:
    """Any uvicorn server takes the listener; what binds its own port is left alone."""
    try:
        from uvicorn import Server
    except ImportError:
        return
    real_serve = Server.serve

    async def serve(self: Any, sockets: Any = None) -> Any:
        return await real_serve(self, sockets=sockets or [listener])

    Server.serve = serve
    script.slow_down(Server)
