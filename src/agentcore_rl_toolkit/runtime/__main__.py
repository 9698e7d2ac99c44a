"""``python -m agentcore_rl_toolkit.runtime``: the server alone, without the command-line extra."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from .. import local
from ..errors import ToolkitError
from .quota import MAX_SESSIONS
from .server import RuntimeServer, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m agentcore_rl_toolkit.runtime")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address")
    parser.add_argument("--port", type=int, default=local.DEFAULT_PORT, help="0 picks a free one")
    parser.add_argument("--home", type=Path, help="state folder; default: see ART_HOME")
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--init-timeout", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--max-sessions", type=int, default=MAX_SESSIONS)
    parser.add_argument("--until-eof", action="store_true", help="end with standard input")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO if given.verbose else logging.WARNING,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
    )
    try:
        run(
            host=given.host,
            port=given.port,
            home=given.home,
            isolation=given.isolation,
            init_timeout_s=given.init_timeout,
            max_sessions=given.max_sessions,
            on_ready=announce,
            until_eof=given.until_eof,
        )
    except ToolkitError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def announce(server: RuntimeServer) -> None:
    sys.stdout.write(f"local AgentCore Runtime on {server.url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
