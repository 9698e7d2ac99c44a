"""Starts sandboxes in sessions of one agent runtime, and ends those that are left.

One client serves many threads. It owns one boto3 client, with retries of its own: a command that
may have begun is never sent again.
"""

from __future__ import annotations

import logging
import uuid
import weakref
from typing import Any, Self

import boto3
from botocore.config import Config

from .. import local
from .sandbox import MAX_TIMEOUT_S, Sandbox
from .script import line

logger = logging.getLogger(__name__)

START_S = 120.0
"""How long a start waits while the runtime has no room."""
CONNECT_S = 10.0
READ_S = MAX_TIMEOUT_S + 60.0
"""A command may be silent as long as it may take; a dead peer is found by TCP's own probes."""


class SandboxClient:
    """``endpoint_url`` is that of a local runtime, found by itself when the ARN is local."""

    def __init__(
        self,
        runtime_arn: str,
        *,
        qualifier: str | None = None,
        endpoint_url: str | None = None,
        boto3_session: Any = None,
        max_connections: int = 128,
    ) -> None:
        self.runtime_arn = runtime_arn
        self._target = {"agentRuntimeArn": runtime_arn}
        if qualifier:
            self._target["qualifier"] = qualifier
        self.agentcore_client = _connect(runtime_arn, endpoint_url, boto3_session, max_connections)
        self._open: weakref.WeakSet[Sandbox] = weakref.WeakSet()

    def start(self, session_id: str | None = None, *, timeout: float = START_S) -> Sandbox:
        """A sandbox whose session is live. ``timeout`` bounds the wait for room, not the start."""
        sandbox = Sandbox(self.agentcore_client, self._target, session_id or str(uuid.uuid4()))
        try:
            with sandbox._run(line("true"), timeout=60, patience_s=timeout) as execution:
                _ = execution.result
        except BaseException:  # Ctrl-C, too: the session may be on its way
            sandbox.close()
            raise
        self._open.add(sandbox)
        logger.info("session=<%s> | sandbox started", sandbox.session_id)
        return sandbox

    def close(self) -> None:
        """Ends every sandbox of this client."""
        for sandbox in list(self._open):
            sandbox.close()
        self.agentcore_client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(arn: str, endpoint: str | None, session: Any, connections: int) -> Any:
    runtime = local.parse_arn(arn)
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
        "tcp_keepalive": True,
        "max_pool_connections": connections,
        "retries": {"mode": "standard", "total_max_attempts": 1},
    }
    make = (session or boto3).client
    if not runtime.is_local:
        where = {"endpoint_url": endpoint} if endpoint else {}
        config = Config(**options)
        return make("bedrock-agentcore", region_name=runtime.region, config=config, **where)
    url = local.find_endpoint(endpoint)
    config = Config(proxies={}, **options)  # a proxy does not lead to loopback
    keys = {} if session else local.credentials(url)
    return make(
        "bedrock-agentcore", region_name=local.REGION, endpoint_url=url, config=config, **keys
    )
