"""``python -m agentcore_rl_toolkit.runtime``: the server alone, without the command-line extra."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from .. import local
from ..errors import ToolkitError
from .awsquota import AwsQuotas
from .quota import MAX_SESSIONS, SESSION_MB, WAIT_S, Quota
from .server import RuntimeServer, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m agentcore_rl_toolkit.runtime")
    parser.add_argument("--host", default="127.0.0.1", help="off loopback keys are demanded")
    parser.add_argument("--access-keys", type=Path, help="file of keys to sign requests with")
    parser.add_argument("--port", type=int, default=local.DEFAULT_PORT, help="0 picks a free one")
    parser.add_argument("--home", type=Path, help="state folder; default: see ART_HOME")
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--init-timeout", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--max-sessions", type=int, default=MAX_SESSIONS)
    parser.add_argument("--memory-wait", type=float, default=WAIT_S, metavar="SECONDS")
    parser.add_argument("--reserve-mb", type=int, help="memory that sessions leave free")
    parser.add_argument("--session-mb", type=int, default=SESSION_MB, help="expected of each")
    parser.add_argument("--quotas", default="", help="AWS's, to rehearse: aws, or name=value,…")
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
            access_keys=given.access_keys,
            isolation=given.isolation,
            init_timeout_s=given.init_timeout,
            quota=Quota(
                max_sessions=given.max_sessions,
                wait_s=given.memory_wait,
                reserve_mb=given.reserve_mb,
                session_mb=given.session_mb,
            ),
            quotas=AwsQuotas.parse(given.quotas),
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
