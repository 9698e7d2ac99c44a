"""The trainer's side: rollouts are submitted to an AgentCore Runtime, on AWS or local.

One client serves threads and event loops alike. It owns everything that runs behind it: the rate
limit (pace), the requests (call), the threads (thread), the watcher (watch). Each rollout is a
RolloutFuture; ``report()`` accounts for every one. ``close()``, leaving the context, or the end of
the process stops each session that is still running.

``agentcore_client`` and ``s3_client`` are plain boto3 clients, looked up at every call, so that
others may be assigned. ``max_pool_connections`` is a floor: there are always enough connections.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config

from .. import local
from ..errors import ConfigError
from ..rollout import Failure, check_bucket, check_part
from .batch import Batch, BatchItem, Terms
from .call import CHORE_THREADS, MAX_THREADS, Caller
from .future import RolloutFuture, wait_for
from .order import Order, new_id
from .pace import check_rate
from .report import Progress, Report, Tally
from .store import Looks, Store, spare_listings
from .watch import Watcher

CONNECT_S = 10.0
READ_S = 300.0
"""Longer than any cold start: an invoke is answered once the session has taken it."""
STORE_READ_S = 30.0
CLOSE_S = 10.0
EXIT_S = 5.0


class RolloutClient:
    def __init__(
        self,
        agent_runtime_arn: str,
        s3_bucket: str,
        exp_id: str,
        max_retry_attempts: int = 5,
        tps_limit: float = 25,
        max_pool_connections: int = 10,
        base_url: str | None = None,
        model_id: str | None = None,
        *,
        endpoint_url: str | None = None,
        boto3_session: Any = None,
        qualifier: str | None = None,
        retry: int = 0,
        progress: Callable[[Progress], None] | None = None,
        **extra_config: Any,
    ) -> None:
        self._runtime = local.parse_arn(agent_runtime_arn)
        self.agent_runtime_arn = agent_runtime_arn
        self.s3_bucket, self.exp_id = check_bucket(s3_bucket), check_part("exp_id", exp_id)
        self.max_retry_attempts = _check_count("max_retry_attempts", max_retry_attempts, 0)
        _check_count("max_pool_connections", max_pool_connections, 1)
        self.tps_limit = check_rate(tps_limit)
        self.qualifier = qualifier
        self.retry = _check_count("retry", retry, 0)
        self._progress = progress
        self._config = {
            **{k: v for k, v in (("base_url", base_url), ("model_id", model_id)) if v is not None},
            **extra_config,
        }
        threads = max(MAX_THREADS, max_pool_connections)
        endpoint = local.find_endpoint(endpoint_url) if self._runtime.is_local else endpoint_url
        self.agentcore_client, self.s3_client = self._connect(boto3_session, endpoint, threads)
        spare_listings(self.s3_client)
        self._owned = [self.agentcore_client, self.s3_client]
        self._caller = Caller(
            lambda: self.agentcore_client, agent_runtime_arn, qualifier, self.tps_limit, threads
        )
        self._store = Store(lambda: self.s3_client)
        events = endpoint if self._runtime.is_local else None
        self._watcher = Watcher(self._caller, self._store, events, s3_bucket, f"{exp_id}/")
        if boto3_session is not None and events:
            self._watcher.credentials = boto3_session.get_credentials()
        self._tally = Tally()
        self._open: set[RolloutFuture] = set()
        self._lock = threading.Lock()
        self._closed = False
        _clients.add(self)

    def _connect(self, session: Any, endpoint: str | None, threads: int) -> tuple[Any, Any]:
        make = (session or boto3).client
        # One try: what may be sent again is decided in call.py, never by botocore.
        common: dict[str, Any] = {"connect_timeout": CONNECT_S, "retries": _ONE_TRY}
        if self._runtime.is_local:
            common["proxies"] = {}  # a proxy of the environment does not lead to loopback
            # AWS wants botocore's own, which is put together anew for every request: 0.2 ms.
            common["user_agent"] = "agentcore-rl-toolkit"
        calls = Config(read_timeout=READ_S, max_pool_connections=threads, **common)
        reads = {"read_timeout": STORE_READ_S, "max_pool_connections": CHORE_THREADS * 2, **common}
        if not self._runtime.is_local:
            region = self._runtime.region
            where = {"endpoint_url": endpoint} if endpoint else {}
            return (
                make("bedrock-agentcore", region_name=region, config=calls, **where),
                make("s3", region_name=region, config=Config(**reads)),
            )
        keys = {} if session else local.credentials(endpoint or "")
        if keys is local.CREDENTIALS:  # nobody checks them: a fifth of a call's cost
            calls = calls.merge(Config(signature_version=UNSIGNED))
        return (
            make(
                "bedrock-agentcore",
                region_name=local.REGION,
                endpoint_url=endpoint,
                config=calls,
                **keys,
            ),
            make(
                "s3",
                region_name="us-east-1",
                endpoint_url=endpoint,
                config=Config(s3={"addressing_style": "path"}, **reads),
                **keys,
            ),
        )

    # --- one rollout --------------------------------------------------------------------------

    def invoke(
        self,
        payload: Mapping[str, Any],
        session_id: str | None = None,
        input_id: str | None = None,
        **rollout_overrides: Any,
    ) -> RolloutFuture:
        """Returns once the runtime has accepted the rollout; raises when it does not."""
        future = self._begin(payload, session_id, input_id, rollout_overrides)
        try:
            concurrent.futures.wait([future._admitted])
        except BaseException:
            future.cancel()
            raise
        return _accepted(future)

    async def invoke_async(
        self,
        payload: Mapping[str, Any],
        session_id: str | None = None,
        input_id: str | None = None,
        **rollout_overrides: Any,
    ) -> RolloutFuture:
        future = self._begin(payload, session_id, input_id, rollout_overrides)
        try:
            await wait_for(future._admitted, None)
        except BaseException:
            future.cancel()
            raise
        return _accepted(future)

    def attach(self, result_key: str, session_id: str) -> RolloutFuture:
        """The future of a rollout that was accepted earlier, for instance before a restart."""
        self._check_open()
        parts = str(result_key).split("/")
        if len(parts) < 3 or parts[-1] != f"{session_id}.json":
            raise ConfigError(
                f"result_key {result_key!r} is not '<exp_id>/<input_id>/{session_id}.json'"
            )
        block = {
            "exp_id": "/".join(parts[:-2]),
            "input_id": parts[-2],
            "session_id": session_id,
            "s3_bucket": self.s3_bucket,
        }
        future = RolloutFuture(self, Order({}, block))
        self._register(future)
        future._resume()
        return future

    def _begin(
        self,
        payload: Mapping[str, Any],
        session_id: str | None = None,
        input_id: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        *,
        retry: int | None = None,
        timeout_s: float | None = None,
        looks: Looks | None = None,
        on_start: Callable[[RolloutFuture], None] | None = None,
    ) -> RolloutFuture:
        """Checks and queues; never waits."""
        self._check_open()
        block = {
            "exp_id": self.exp_id,
            "session_id": session_id or new_id(),
            "input_id": input_id or new_id(),
            "s3_bucket": self.s3_bucket,
            **self._config,
            **(overrides or {}),
        }
        order = Order(payload, block)
        body = order.body()
        if session_id is not None:
            self._check_free(session_id)
        future = RolloutFuture(
            self,
            order,
            retry=self.retry if retry is None else retry,
            timeout_s=timeout_s,
            looks=looks,
            on_start=on_start,
        )
        self._register(future)
        future._start(body)
        return future

    # --- many rollouts ------------------------------------------------------------------------

    def run_batch(
        self,
        payloads: Iterable[Mapping[str, Any]],
        max_concurrent_sessions: int,
        timeout: float | None = 900.0,
        initial_interval: float = 0.5,
        max_interval: float = 30.0,
        backoff_factor: float = 1.5,
        log_interval: float | None = 30.0,
        *,
        retry: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        on_start: Callable[[int, RolloutFuture], None] | None = None,
    ) -> Iterator[BatchItem]:
        """Items in completion order. ``timeout`` is for each rollout, from its acceptance.

        ``retry`` runs infrastructure failures again in a new session. ``on_start`` is told of
        every session before it is asked for, from any thread: whoever writes down its id can
        ``attach`` to it after a crash. Leaving the loop stops
        every session; keep no reference to the iterator, or close() it, to leave at once.
        """
        looks = Looks(initial_interval, max_interval, backoff_factor)
        return self._batch(
            payloads,
            max_concurrent_sessions,
            timeout,
            looks,
            log_interval,
            retry,
            progress,
            on_start,
        ).run()

    def run_batch_async(
        self,
        payloads: Iterable[Mapping[str, Any]],
        max_concurrent_sessions: int,
        timeout: float | None = 900.0,
        initial_interval: float = 0.5,
        max_interval: float = 30.0,
        backoff_factor: float = 1.5,
        log_interval: float | None = 30.0,
        *,
        retry: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        on_start: Callable[[int, RolloutFuture], None] | None = None,
    ) -> AsyncIterator[BatchItem]:
        looks = Looks(initial_interval, max_interval, backoff_factor)
        return self._batch(
            payloads,
            max_concurrent_sessions,
            timeout,
            looks,
            log_interval,
            retry,
            progress,
            on_start,
        ).run_async()

    def _batch(
        self,
        payloads: Iterable[Mapping[str, Any]],
        max_concurrent: int,
        timeout: float | None,
        looks: Looks,
        log_interval: float | None,
        retry: int | None,
        progress: Callable[[Progress], None] | None,
        on_start: Callable[[int, RolloutFuture], None] | None,
    ) -> Batch:
        self._check_open()
        terms = Terms(
            max_concurrent=max_concurrent,
            timeout_s=timeout,
            looks=looks,
            log_every_s=log_interval,
            retry=self.retry if retry is None else retry,
            progress=progress or self._progress,
            on_start=on_start,
        )
        return Batch(self, payloads, terms)

    # --- keeping account, ending --------------------------------------------------------------

    def report(self) -> Report:
        return self._tally.report(self._caller.stops_failed)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this RolloutClient is closed: make a new one")

    def _check_free(self, session_id: str) -> None:
        """A session is stopped with its rollout's end, so it can hold only one at a time."""
        with self._lock:
            taken = any(future.session_id == session_id for future in self._open)
        if taken:
            raise ConfigError(
                f"session {session_id} already runs a rollout of this client: give each rollout a "
                "session of its own (leave session_id out)"
            )

    def _register(self, future: RolloutFuture) -> None:
        self._tally.submit()
        with self._lock:
            self._open.add(future)

    def _refused(self, failure: Failure) -> None:
        """A payload that could not be sent is accounted for all the same."""
        self._tally.submit()
        self._tally.settle(failure)

    def _settled(self, future: RolloutFuture, failure: Failure | None) -> None:
        self._tally.settle(failure)
        with self._lock:
            self._open.discard(future)

    def _stop_all(self, timeout_s: float) -> None:
        """Cancels what runs and waits, boundedly, until no session is left."""
        with self._lock:
            left = list(self._open)
        for future in left:
            future.cancel()
        self._caller.flush(timeout_s)

    def close(self) -> None:
        """Stops every session that is still running, and the client's threads. May be repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop_all(CLOSE_S)
        self._watcher.close()
        self._caller.close()
        for client in self._owned:
            client.close()
        _clients.discard(self)

    async def aclose(self) -> None:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                self.close()
            finally:
                done.set_result(None)

        threading.Thread(target=run, name="art-close", daemon=True).start()
        await wait_for(done, None)

    def __enter__(self) -> RolloutClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> RolloutClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


_ONE_TRY = {"mode": "standard", "total_max_attempts": 1}
_clients: weakref.WeakSet[RolloutClient] = weakref.WeakSet()


def _accepted(future: RolloutFuture) -> RolloutFuture:
    """Raises what kept the runtime from accepting it."""
    attempt = future._attempt
    if attempt is not None and not attempt.is_accepted and future._outcome.done():
        if future._outcome.cancelled():
            raise concurrent.futures.CancelledError
        if (error := future._outcome.exception()) is not None:
            raise error
    return future


def _check_count(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r}")
    return value


def _flush_at_exit() -> None:
    for client in list(_clients):
        client._stop_all(EXIT_S)


atexit.register(_flush_at_exit)
