"""The examples' folder, and the runner that all of them share."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentcore_rl_toolkit.gateway.admin import Finished
from agentcore_rl_toolkit.runtime.isolation.inside import landlock

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path += [str(EXAMPLES.parent / "tests" / name) for name in ("gateway", "e2e")]

from client_tool import CLAUDE_CODE, Missing, npm_tool  # noqa: E402
from fake_script import FakeScript, Say  # noqa: E402

__all__ = ["CLAUDE_CODE", "FakeScript", "Missing", "Say", "npm_tool"]


def load_runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_run", EXAMPLES / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def runner() -> ModuleType:
    return load_runner()


def answered(
    runner: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    payload: dict[str, Any],
    reply: Any = None,
    app: str = "basic_app",
) -> dict[str, Any]:
    """What the production app says, with ``reply`` or the oracle as its model."""
    oracle, module = runner.load(EXAMPLES / name, "oracle", app)
    with runner.serve(reply or oracle.reply) as url:
        for variable, value in (("URL", url), ("KEY", "EMPTY"), ("ID", "scripted")):
            monkeypatch.setenv(f"MODEL_{variable}", value)
        context = [SimpleNamespace(session_id="s")]
        takes_two = len(inspect.signature(module.invoke).parameters) == 2
        said = module.invoke(payload, *(context if takes_two else ()))
        return dict(asyncio.run(said) if inspect.isawaitable(said) else said)


def signals_are_scoped() -> None:
    if landlock.version() < 6:
        pytest.skip("the kernel's Landlock does not bound signals (Linux 6.12)")


class EngineThread:
    """Scripted engines on a loop of their own, for a test that is synchronous."""

    def __init__(self, *engines: FakeScript) -> None:
        self.engines, self.loop = engines, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def _each(self, method: str, *args: Any) -> None:
        for engine in self.engines:
            work = getattr(engine, method)(*args)
            asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def __enter__(self) -> None:
        self.thread.start()
        self._each("__aenter__")

    def __exit__(self, *error: object) -> None:
        self._each("__aexit__", *error)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def trained(finished: Finished) -> list[str]:
    """What would be trained of every row: characters, here."""
    return [
        "".join(chr(t) for t, m in zip(row.token_ids, row.loss_mask, strict=True) if m)
        for row in finished.rows
    ]
