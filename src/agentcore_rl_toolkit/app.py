"""Agent side: the production app, plus one decorator that makes its handler trainable.

A call without a result location is answered as ``@app.entrypoint`` would. A call with one is a
rollout: it is checked, accepted at once, and run in a thread of its own, which also saves the
result. Invariants:

- a rollout that was accepted ends with exactly one result, success or error, whatever the handler
  does short of ending the process;
- ``/ping`` says HealthyBusy from acceptance until the store has the result, or has refused it for
  good; the session keeps the result for status requests either way;
- the same result key never runs twice in one session;
- nothing here runs on the server's event loop, and importing or constructing starts no thread,
  opens no socket and asks for no credentials: the local runtime imports the agent once and forks
  a session from it for each rollout.

The app owns the runs of this session, the saver the S3 client; a ``_Run`` is written only by its
own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import http.client
import importlib
import inspect
import json
import os
import sys
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bedrock_agentcore.runtime import BedrockAgentCoreApp, RequestContext
from starlette.responses import JSONResponse, Response

from . import clock, result, rollout
from .errors import ConfigError
from .rehearsal import rehearse
from .result import Outcome
from .rollout import RolloutConfig
from .saver import RANDOM, Saver

DONE_TRIES = 3
DONE_TIMEOUT_S = 3.0
DONE_WAIT_S = 0.5
LOOP_CLEANUP_S = 1.0
"""For tasks that an async handler left behind. The result is safe by then."""
KEPT_RUNS = 256
"""Finished rollouts that a long-lived session remembers."""

_LAZY_PARTS = {
    "bedrock_agentcore": (
        "uvicorn.lifespan.on",
        "uvicorn.loops.auto",
        "uvicorn.protocols.http.auto",
        "uvicorn.protocols.websockets.auto",
    ),
    "httpx": ("httpcore", "anyio._backends._asyncio"),
    "openai": ("openai.resources.chat", "jiter"),
    "anthropic": ("anthropic.resources.messages",),
}
"""What packages that are there anyway import at the first call: 0.4 s of CPU for openai alone."""

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass
class _Run:
    config: RolloutConfig
    payload: Any
    """A copy from before the handler ran, which may change its own."""
    body: bytes | None = None
    """The result as saved; None while the handler runs."""
    status_code: Any = None
    finished: bool = False
    loop: asyncio.AbstractEventLoop | None = None
    """Of an async handler: its own, so that one which blocks holds up nobody else."""


class AgentCoreRLApp(BedrockAgentCoreApp):  # type: ignore[misc]  # the base is untyped here
    """A ``BedrockAgentCoreApp``, with its arguments, whose handler can also be rolled out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._runs: dict[str, _Run] = {}
        self._forked: list[Callable[[], object]] = []
        self._saver = Saver(self.logger)
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=functools.partial(_reset, weakref.ref(self)))

    def rollout_entrypoint(self, func: Handler) -> Handler:
        """Registers ``func(payload)`` or ``func(payload, context)``, ``def`` or ``async def``."""
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError(
                f"{_name(func)} is a generator: a rollout has one result, so return a dict. "
                "A handler that streams in production belongs under @app.entrypoint"
            )
        takes_context = self._takes_context(func)

        def prepare(payload: Any, context: Any) -> tuple[Any, Callable[[], Any]]:
            call = functools.partial(func, *((payload, context) if takes_context else (payload,)))
            return self._answer(call, payload, context), call

        # The base runs each kind where it belongs, so a production call differs in nothing.
        async def invoke_async(payload: Any, context: RequestContext) -> Any:
            answer, call = prepare(payload, context)
            if answer is not None:
                return answer
            with _plain_call():
                return await call()

        def invoke(payload: Any, context: RequestContext) -> Any:
            answer, call = prepare(payload, context)
            if answer is not None:
                return answer
            with _plain_call():
                return call()

        chosen: Any = invoke_async if _is_async(func) else invoke
        chosen.__name__ = _name(func)
        self.entrypoint(chosen)
        try:
            func.run = chosen.run  # type: ignore[attr-defined]  # as the base's entrypoint does
        except AttributeError:
            pass
        return func

    def after_fork(self, func: Handler) -> Handler:
        """Registers a callable to run in every process forked from this one.

        The local runtime forks each session from one process that has imported the agent: redo
        there what must not be shared, such as open connections or random state.
        """
        self._forked.append(func)
        return func

    def warm(self) -> None:
        """Does before a fork what every session would pay for; opens nothing.

        The S3 client made here serves the sessions whose AWS environment is the one of this
        moment: set that first. In any other, a new client still costs a fifth of the first.
        """
        for package, parts in _LAZY_PARTS.items():
            for part in parts if package in sys.modules else ():
                try:
                    importlib.import_module(part)
                except Exception:  # noqa: BLE001  (another release; the session imports its own)
                    self.logger.debug("module=<%s> | not warmed", part)
        rehearse()
        self._saver.warm()

    @property
    def s3_client(self) -> Any:
        """Where results are saved; made on first use, may be assigned.

        On the local runtime only an assigned one, or a large result, has any use for it.
        """
        return self._saver.client

    @s3_client.setter
    def s3_client(self, client: Any) -> None:
        self._saver.client = client

    # --- accepting --------------------------------------------------------------------------

    def _answer(self, call: Callable[[], Any], payload: Any, context: RequestContext) -> Any:
        """What a status request or a rollout is answered; None for a production call."""
        try:
            block = rollout.rollout_block(payload)
            if block.get("action") is not None:
                return self._status(block)
            config = RolloutConfig.from_payload(payload, context.session_id)
        except ConfigError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        if config is None:
            return None
        self._accept(call, config, payload)
        return rollout.processing(config)

    def _status(self, block: Mapping[str, Any]) -> Response | dict[str, str]:
        action, result_key = block["action"], block.get("result_key")
        if action != "status":
            raise ConfigError(f"{rollout.ROLLOUT}.action must be 'status', got {action!r}")
        if not isinstance(result_key, str) or not result_key:
            raise ConfigError(f"a status request needs {rollout.ROLLOUT}.result_key")
        run = self._runs.get(result_key)
        if run is None:
            return {"status": "unknown"}
        if run.body is None:
            return {"status": "running"}
        body = b'{"status": "done", "result": ' + run.body + b"}"
        return Response(body, media_type="application/json")

    def _accept(self, call: Callable[[], Any], config: RolloutConfig, payload: Any) -> None:
        key = config.result_key
        with self._lock:
            if key in self._runs:
                self.logger.info("key=<%s> | joined, this rollout was already accepted", key)
                return
            self._forget_old()
            run = _Run(config, copy.deepcopy(payload))
            task = self.add_async_task(f"rollout {key}")
            thread = threading.Thread(
                target=self._carry_out,
                args=(run, call, contextvars.copy_context(), task),
                name=f"rollout-{config.input_id}",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads: the caller may try again
                self.complete_async_task(task)
                raise
            self._runs[key] = run

    def _forget_old(self) -> None:
        finished = [key for key, run in self._runs.items() if run.finished]
        for key in finished[: max(0, len(finished) - KEPT_RUNS + 1)]:
            del self._runs[key]

    # --- running, in the rollout's own thread -----------------------------------------------

    def _carry_out(
        self, run: _Run, call: Callable[[], Any], context: contextvars.Context, task: int
    ) -> None:
        try:
            outcome = context.run(_outcome, run, call)
            run.status_code, run.body = outcome.status_code, outcome.body
            if outcome.problem:
                self.logger.warning("key=<%s> | %s", run.config.result_key, outcome.problem)
            saved = self._saver.save(run.config, run.body)
        finally:
            run.finished = True
            self.complete_async_task(task)
        if saved and run.config.done_url:
            self._tell_done(run, run.config.done_url)
        run.payload = None
        if run.loop is not None:
            _close(run.loop)
            run.loop = None

    def _tell_done(self, run: _Run, url: str) -> None:
        """A hint to the client; the store stays the truth, so failing is not an error."""
        notice = {
            "session_id": run.config.session_id,
            "result_key": run.config.result_key,
            "status_code": run.status_code,
        }
        request = urllib.request.Request(
            url,
            data=json.dumps(notice).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        opener = urllib.request.build_opener(_Stay)
        for attempt in range(DONE_TRIES):
            if attempt:
                time.sleep(DONE_WAIT_S * 2**attempt * RANDOM.uniform(0.5, 1.0))
            try:
                with opener.open(request, timeout=DONE_TIMEOUT_S):
                    return
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.logger.debug("key=<%s> | done_url failed: %s", run.config.result_key, error)


class _Stay(urllib.request.HTTPRedirectHandler):
    """The notice is for the host that the caller named, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _reset(reference: weakref.ref[AgentCoreRLApp]) -> None:
    """After a fork: what belongs to the parent's process, environment or threads is dropped."""
    app = reference()
    if app is None:
        return
    app._lock = threading.Lock()
    app._runs = {}
    app._saver.after_fork()
    for func in app._forked:
        try:
            func()
        except Exception:
            app.logger.exception("hook=<%s> | after_fork hook failed", _name(func))


def _outcome(run: _Run, call: Callable[[], Any]) -> Outcome:
    with clock.running() as time_of:
        try:
            returned = call()
            if inspect.isawaitable(returned):
                run.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(run.loop)
                returned = run.loop.run_until_complete(returned)
            return result.success(returned, run.config, run.payload, time_of.read())
        except BaseException as error:  # noqa: BLE001  (also SystemExit must leave a result)
            return result.failure(error, run.config, run.payload, __file__, time_of.read())


def _is_async(func: Callable[..., Any]) -> bool:
    while isinstance(func, functools.partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004  (an object with an async __call__)
    )


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what an async handler left behind, without waiting for what hangs."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    try:
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=LOOP_CLEANUP_S))
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), timeout=LOOP_CLEANUP_S))
    except BaseException:  # noqa: BLE001  (the rollout is over; nothing may escape its thread)
        pass
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@contextlib.contextmanager
def _plain_call() -> Iterator[None]:
    """A handler that is only ever rolled out reads ``_rollout`` without asking. One that exits
    would end the base's loop, and every later call would wait for ever."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the handler raised {error!r}") from error
    except KeyError as error:
        if error.args != (rollout.ROLLOUT,):
            raise
        raise ConfigError(
            f"the handler reads payload[{rollout.ROLLOUT!r}], and this call has none: call it as a "
            "rollout ('art invoke --rollout --base-url URL --model-id NAME', or RolloutClient)"
        ) from error


def _name(func: object) -> str:
    return str(getattr(func, "__name__", type(func).__name__))
