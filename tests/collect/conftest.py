"""A real runtime with real agents, a real gateway, and a scripted engine behind it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.client import RolloutClient
from agentcore_rl_toolkit.collect import Collector, CollectSetting, Rollout
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings, ModelSpec
from agentcore_rl_toolkit.local import DEFAULT_BUCKET
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

TESTS = Path(__file__).resolve().parents[1]


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(path.stem, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


FakeVLLM = _load(TESTS / "gateway" / "fake_vllm.py").FakeVLLM


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    with RuntimeThread(port=0, home=tmp_path_factory.mktemp("runtime")) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def deploy(runtime: RuntimeThread) -> Callable[[str], str]:
    """ARN of an agent of ``tests/agents``, deployed once."""
    arns: dict[str, str] = {}

    def find(name: str) -> str:
        if name not in arns:
            control = control_client(runtime.url)
            folder = TESTS / "agents" / name
            made = register(control, name, folder, "rl_app.py", {})
            control.close()
            arns[name] = str(made["agentRuntimeArn"])
        return arns[name]

    return find


class Stand:
    """What a test holds: the collector and everything around it."""

    def __init__(
        self,
        collector: Collector,
        gateway: Gateway,
        client: RolloutClient,
        engine: Any,
        seen: list[Rollout],
    ) -> None:
        self.collector, self.gateway, self.client = collector, gateway, client
        self.engine, self.seen = engine, seen

    def open_sessions(self) -> list[str]:
        return [s.session_id for s in self.gateway.sessions if not s.sealed]


Make = Callable[..., Awaitable[Stand]]


@pytest.fixture
async def stand(
    runtime: RuntimeThread, deploy: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:

        async def make(agent: str, **settings: Any) -> Stand:
            engine = await stack.enter_async_context(FakeVLLM())
            spec = ModelSpec.parse(f"policy=vllm:{engine.url}#tiny")
            gateway = await stack.enter_async_context(
                Gateway([spec], GatewaySettings(run_dir=tmp_path / "run", fsync=False))
            )
            client = await stack.enter_async_context(
                RolloutClient(
                    deploy(agent), DEFAULT_BUCKET, "exp", tps_limit=1000, endpoint_url=runtime.url
                )
            )
            seen: list[Rollout] = []
            setting = CollectSetting(**{"timeout_s": 30.0, **settings})
            collector = Collector(client, gateway, setting, on_rollout=seen.append)
            return Stand(collector, gateway, client, engine, seen)

        yield make
