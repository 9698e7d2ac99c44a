"""A live session as a place to run commands in and to put files into.

A sandbox owns its session: it is stopped by ``close``, by leaving the context, when nobody holds
the sandbox any more, and at the end of the process. Only a process that is killed leaves one
behind, until its idle timeout.
"""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from ..client.call import backoff, judge
from ..client.store import status_of
from ..errors import AgentError, ConfigError
from . import transfer
from .execution import ExecResult, Execution
from .script import line

logger = logging.getLogger(__name__)

MAX_TIMEOUT_S = 3600
STOP_TRIES = 8
Command = str | Sequence[str]


class Sandbox:
    """Made by ``SandboxClient.start``. Commands may run at the same time, from several threads."""

    def __init__(self, client: Any, target: dict[str, str], session_id: str) -> None:
        self.session_id = session_id
        self._client, self._target = client, {**target, "runtimeSessionId": session_id}
        self._stop = weakref.finalize(self, stop_session, client, self._target)

    # --- commands -----------------------------------------------------------------------------

    def exec(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        check: bool = False,
    ) -> ExecResult:
        """Runs it to its end. ``check`` raises AgentError unless it ended with 0."""
        return finish(self.stream(command, cwd=cwd, env=env, timeout=timeout), check)

    def stream(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
    ) -> Execution:
        """Starts it; iterate over what is returned for the output as it comes."""
        return self._run(line(command, cwd, env), timeout, patience_s=0.0)

    def _run(self, text: str, timeout: float, patience_s: float) -> Execution:
        """``patience_s``: how long to go on when the runtime says that it has no room now."""
        if not self._stop.alive:
            raise ConfigError(f"the sandbox {self.session_id} is closed: start another one")
        if not 0 < timeout <= MAX_TIMEOUT_S:
            raise ConfigError(f"timeout must be up to {MAX_TIMEOUT_S} seconds, got {timeout}")
        body = {"command": text, "timeout": math.ceil(timeout)}
        deadline = time.monotonic() + patience_s
        attempt = 0
        while True:
            try:
                answer = self._client.invoke_agent_runtime_command(**self._target, body=body)
            except (ClientError, BotoCoreError) as error:
                verdict = judge(error, self._target["agentRuntimeArn"], proven=True)
                again = verdict.action in ("retry", "room") and status_of(error) != 424
                wait_s = backoff(attempt, verdict.delay_s)
                last = attempt >= 4 and time.monotonic() + wait_s > deadline
                if not again or last:
                    raise verdict.error from error
                attempt += 1
                time.sleep(wait_s)
            else:
                return Execution(answer["stream"], f"session {self.session_id}")

    # --- files --------------------------------------------------------------------------------

    def upload(self, source: bytes | str | os.PathLike[str], path: str) -> None:
        """Bytes, or a file of this machine, to ``path``, whose folder is made when it is missing.
        The file is there whole or not at all."""
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        transfer.upload(self.exec, data, path)

    def download(self, path: str, target: str | os.PathLike[str] | None = None) -> bytes:
        """The bytes of a file of the sandbox; also written to ``target`` when one is named."""
        data = transfer.download(self.exec, path)
        if target is not None:
            Path(target).write_bytes(data)
        return data

    # --- the end ------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return not self._stop.alive

    def close(self) -> None:
        """Stops the session. May be called twice."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def finish(execution: Execution, check: bool) -> ExecResult:
    with execution:
        result = execution.result
    if check and not result.ok:
        how = "ran out of time" if result.timed_out else f"ended with {result.exit_code}"
        raise AgentError(f"the command {how}: {(result.stderr or result.stdout)[-2000:]}")
    return result


def stop_session(
    client: Any, target: dict[str, str], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Never raises: whoever ends a sandbox can do nothing about it."""
    session_id = target["runtimeSessionId"]
    for attempt in range(STOP_TRIES):
        try:
            client.stop_runtime_session(**target)
            return
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and status_of(error) == 404:
                return
            verdict = judge(error, target["agentRuntimeArn"], proven=True)
            if verdict.action == "fail" or attempt == STOP_TRIES - 1:
                logger.warning("session=<%s> error=<%s> | not stopped", session_id, error)
                return
            sleep(backoff(attempt, verdict.delay_s))
