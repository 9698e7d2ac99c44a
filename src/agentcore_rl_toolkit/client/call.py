"""Requests to the runtime, and what each refusal means.

``Caller`` owns the rate limit, the threads and the wire; ``judge`` turns an error into a verdict:
send again, wait for room, find out whether it arrived, keep watching, or give up with a typed
error. botocore's own retries are off, because it re-sends an invoke that was silent for a minute:
a request that may have reached the agent is never sent blindly again.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    TokenRetrievalError,
)

from .. import local
from ..errors import (
    AgentError,
    ConfigError,
    ContractError,
    QuotaError,
    SessionLostError,
    ThrottledError,
)
from ..rollout import ROLLOUT
from .pace import Limiter
from .store import BROKEN, check_whole, code_of, message_of, status_of
from .thread import Handle, Job, Pool, Timer

logger = logging.getLogger(__name__)

Action = Literal["fail", "retry", "room", "unsure", "watch"]

MAX_THREADS = 512
"""Requests that may be under way at once; max_pool_connections raises it."""
CHORE_THREADS = 32
"""Reads of results and stops: apart, so that cold starts never hold them up."""
BACKOFF_S, BACKOFF_MAX_S = 0.5, 8.0
STOP_TRIES = 6
STOPS_MAX_S = 120.0
"""Nobody waits longer than this for stops."""
START_TRIES = 1
"""An agent that did not start is started once more."""
ANSWER_BYTES = 1 << 20
"""No acceptance is longer; what is longer comes from an agent that streams its answer."""

_NO_START = re.compile(r"initialization|does not start|could not be started|before it answered")
_AGENT_STATUS = re.compile(r"Received error \((\d+)\) from runtime")


@dataclasses.dataclass(frozen=True)
class Verdict:
    action: Action
    error: Exception
    """What to raise when it is given up."""
    delay_s: float = 0.0
    """At least this long before the next try."""
    alive: bool = False
    """A session may be running, so it is stopped when given up."""
    tries: int | None = None
    """Fewer tries than the client's own number."""


def backoff(attempt: int, least_s: float = 0.0, jitter: float | None = None) -> float:
    """Seconds before the next try: doubling, half of it random."""
    share = random.random() if jitter is None else jitter
    return max(least_s, min(BACKOFF_MAX_S, BACKOFF_S * 2.0**attempt) * (0.5 + share / 2))


LOG_IN = "Run 'aws configure' or 'aws sso login', or set AWS_PROFILE"


def judge(error: Exception, where: str, proven: bool) -> Verdict:
    """``where`` names the runtime; ``proven``: it has accepted a rollout of this client before,
    so a failing start is bad luck instead of an agent that cannot start."""
    if isinstance(error, ClientError):
        return _judge_answer(error, where, proven)
    if isinstance(error, ParamValidationError):
        return Verdict("fail", ConfigError(str(error)))
    if isinstance(error, NoCredentialsError | PartialCredentialsError | TokenRetrievalError):
        return Verdict(
            "fail", ContractError(f"no usable AWS credentials for {where}: {error}. {LOG_IN}")
        )
    if isinstance(error, ReadTimeoutError):
        return Verdict("watch", SessionLostError(str(error)), alive=True)
    before = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError, SSLError)
    if isinstance(error, before):
        kind = SessionLostError if proven else ContractError
        return Verdict("retry", kind(f"{where} cannot be reached: {error}. {_start_hint(where)}"))
    if isinstance(error, BROKEN):
        return Verdict("unsure", SessionLostError(f"{where} broke off: {error}"), alive=True)
    return Verdict("fail", ContractError(f"the invocation failed: {error!r}"), alive=True)


def _judge_answer(error: ClientError, where: str, proven: bool) -> Verdict:
    status, code, message = status_of(error), code_of(error), message_of(error)
    if ":local:" in where:
        log = f"art logs {_session_of(error)} (of a run: art show ROLLOUT)"
        message = local.with_log_here(message, log)
    delay = _retry_after(error)
    said = f"{where} answered {status} {code}: {message}"
    if status == 429 or code == "ThrottlingException":
        return Verdict("retry", ThrottledError(f"{said}. Lower tps_limit"), delay)
    if status == 402 or code == "ServiceQuotaExceededException":
        return Verdict("room", QuotaError(f"{said}. Lower max_concurrent_sessions"), delay)
    if code == "RetryableConflictException":
        return Verdict("retry", SessionLostError(said), delay, alive=True)
    if status == 424 or code == "RuntimeClientError":
        return _judge_agent(message, where, proven)
    if status >= 500:
        return Verdict("retry", SessionLostError(said), delay, alive=True)
    if status == 404:
        return Verdict(
            "fail",
            ContractError(f"{said}. Deploy the agent, or correct agent_runtime_arn and qualifier"),
        )
    if status in (401, 403):
        hint = "check the credentials and bedrock-agentcore:InvokeAgentRuntime"
        return Verdict("fail", ContractError(f"{said}: {hint}"))
    return Verdict("fail", ContractError(said))


def _judge_agent(message: str, where: str, proven: bool) -> Verdict:
    answered = _AGENT_STATUS.search(message)
    if answered is not None:
        text = f"the agent of {where} refused the rollout: {message}"
        refused = answered[1] == "400" and not proven
        return Verdict("fail", (ContractError if refused else AgentError)(text), alive=True)
    if _NO_START.search(message):
        # Said twice by a runtime that never started it, it is the agent.
        kind = SessionLostError if proven else ContractError
        text = f"the agent of {where} does not start: {message}"
        return Verdict("retry", kind(text), tries=START_TRIES)
    # It was handling the request, so the request is not sent again.
    return Verdict("fail", SessionLostError(f"a session of {where} broke off: {message}"))


def _session_of(error: ClientError) -> str:
    return str(_headers(error).get("x-amzn-bedrock-agentcore-runtime-session-id", "SESSION"))


def _headers(error: ClientError) -> Mapping[str, str]:
    return error.response.get("ResponseMetadata", {}).get("HTTPHeaders") or {}


def _retry_after(error: ClientError) -> float:
    headers = _headers(error)
    for name, unit in (("x-amz-retry-after", 1000.0), ("retry-after", 1.0)):
        try:
            return min(60.0, max(0.0, float(headers[name]) / unit))
        except (KeyError, TypeError, ValueError):
            continue
    return 0.0


def _start_hint(where: str) -> str:
    return "Start it with 'art runtime serve'" if ":local:" in where else "Check the network"


class Caller:
    def __init__(
        self,
        client: Callable[[], Any],
        arn: str,
        qualifier: str | None,
        tps_limit: float,
        threads: int,
    ) -> None:
        self._client = client
        self.arn = arn
        self._target = {"agentRuntimeArn": arn, **({"qualifier": qualifier} if qualifier else {})}
        self.timer = Timer()
        self.limiter = Limiter(tps_limit, self.timer)
        self.calls = Pool("call", threads)
        self.chores = Pool("chore", CHORE_THREADS)
        self.proven = False
        """An invocation has been accepted."""
        self.stops_failed = 0
        self._stops: set[str] = set()
        self._quiet = threading.Condition()
        self._hungry: dict[Handle, None] = {}

    # --- requests, blocking, run in a pool ----------------------------------------------------

    def invoke(self, body: bytes, session_id: str) -> bytes:
        response = self._client().invoke_agent_runtime(
            **self._target, runtimeSessionId=session_id, payload=body
        )
        stream = response["response"]
        try:
            if "event-stream" in str(response.get("contentType", "")):
                return b""
            data = stream.read(ANSWER_BYTES) if hasattr(stream, "read") else stream
            check_whole(response, data)
        finally:
            if hasattr(stream, "close"):
                stream.close()
        return data.encode() if isinstance(data, str) else bytes(data)

    def status(self, session_id: str, result_key: str) -> dict[str, Any]:
        """Asks the session itself; a session that is gone is started again by that, on AWS."""
        block = {"action": "status", "result_key": result_key}
        data = self.invoke(json.dumps({ROLLOUT: block}).encode(), session_id)
        answer = json.loads(data)
        return answer if isinstance(answer, dict) else {}

    def judge(self, error: Exception) -> Verdict:
        verdict = judge(error, self.arn, self.proven)
        if isinstance(verdict.error, ThrottledError):
            self.limiter.throttled()
        return verdict

    # --- stops, in the background -------------------------------------------------------------

    def owe_stop(self, session_id: str) -> None:
        """A stop, or the news that none is needed, will follow; flush() waits for it."""
        with self._quiet:
            self._stops.add(session_id)

    def stop(self, session_id: str, done: Job) -> None:
        self.owe_stop(session_id)

        def send(attempt: int) -> None:
            self.limiter.request("stop", lambda: self.chores.submit(lambda: once(attempt)))

        def once(attempt: int) -> None:
            try:
                self._client().stop_runtime_session(**self._target, runtimeSessionId=session_id)
            except Exception as error:  # noqa: BLE001 - best effort, counted
                verdict = self.judge(error)
                gone = isinstance(error, ClientError) and status_of(error) == 404
                if not gone and verdict.action != "fail" and attempt < STOP_TRIES:
                    self.timer.later(backoff(attempt, verdict.delay_s), lambda: send(attempt + 1))
                    return
                if not gone:
                    self.stops_failed += 1
                    logger.warning("session=<%s> | could not be stopped: %s", session_id, error)
            self.stopped(session_id, done)

        send(0)

    def stopped(self, session_id: str, done: Job) -> None:
        with self._quiet:
            self._stops.discard(session_id)
            self._quiet.notify_all()
            waiting = next(iter(self._hungry), None)
        done()
        if waiting is not None:  # room was made: the first in line need not wait out its delay
            self.timer.later(0.0, lambda: self._feed(waiting))

    def when_room(self, delay_s: float, job: Job) -> Handle:
        """Runs the job after the delay, or as soon as one of our sessions has ended."""
        handle = Handle(job)
        with self._quiet:
            self._hungry[handle] = None
        self.timer.later(delay_s, lambda: self._feed(handle))
        return handle

    def _feed(self, handle: Handle) -> None:
        with self._quiet:
            self._hungry.pop(handle, None)
        handle.fire()

    def forget(self, handle: Handle) -> None:
        handle.cancel()
        with self._quiet:
            self._hungry.pop(handle, None)

    def patience(self, stops: int, least_s: float) -> float:
        """How long that many stops may take: the rate limit holds for them too."""
        return min(STOPS_MAX_S, least_s + 2 * stops / self.limiter.rate)

    def flush(self, least_s: float) -> bool:
        """Waits, boundedly, until no stop is outstanding."""
        with self._quiet:
            wait_s = self.patience(len(self._stops), least_s)
            if self._quiet.wait_for(lambda: not self._stops, wait_s):
                return True
            logger.warning("sessions=<%s> | not stopped after %.0f s", len(self._stops), wait_s)
            return False

    def close(self) -> None:
        self.timer.close()
        self.calls.close()
        self.chores.close()
