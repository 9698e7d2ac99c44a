"""What backends stand on, with everything real but the trainer's servers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_rl_toolkit.backends.base import all_samples
from agentcore_rl_toolkit.backends.bridge import FIRST, Alive, BridgeSetting, bridge
from agentcore_rl_toolkit.backends.verl.host import Policy, close, shared
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.client.pace import rate_of
from agentcore_rl_toolkit.collect import Task
from agentcore_rl_toolkit.errors import ConfigError, ContractError
from agentcore_rl_toolkit.run.reader import RunReader
from agentcore_rl_toolkit.runtime.awsquota import AwsQuotas
from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.trainer.rig import load_tokenizer

POLICY = Path(__file__).parents[2] / "examples" / "demo_policy" / "model"
AGENT = Path(__file__).parent / "two_turns"
GROUP = 3


class Servers:
    """verl's server client: other ids at every call, so that each can be told from the others."""

    def __init__(self) -> None:
        self.calls = 0

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        self.calls += 1
        ids = [100 + self.calls % 800, 100 + self.calls // 800, 2]
        steps = {"min_global_steps": 0, "max_global_steps": 0}
        return SimpleNamespace(
            token_ids=ids,
            log_probs=[-0.5] * 3,
            routed_experts=None,
            stop_reason="completed",
            extra_fields=steps,
        )


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeThread]:
    """One that lets in five sessions a second, and says 429 to the rest."""
    quotas = AwsQuotas.parse("new_sessions=5")
    with RuntimeThread(home=tmp_path_factory.mktemp("runtime"), quotas=quotas) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def arn(runtime: RuntimeThread) -> str:
    control = control_client(runtime.url)
    made = register(control, "two_turns", AGENT, "rl_app.py", {})
    control.close()
    return str(made["agentRuntimeArn"])


@pytest.fixture
def setting(runtime: RuntimeThread, arn: str, tmp_path: Path) -> BridgeSetting:
    return BridgeSetting(
        arn=arn, endpoint_url=runtime.url, timeout_s=60.0, retries=1, run_dir=str(tmp_path / "run")
    )


def policy() -> Policy:
    return Policy(load_tokenizer(POLICY), "qwen3", 1024)


def tasks(*payloads: dict[str, Any]) -> list[Task]:
    return [Task(i, f"task{i}", {"prompt": "2+2", **p}) for i, p in enumerate(payloads)]


@pytest.mark.timeout(120)
async def test_lost_sessions_and_a_throttled_runtime_cost_no_token(setting: BridgeSetting) -> None:
    """One task's sessions are killed with SIGKILL after their last turn, all others count."""
    servers = Servers()
    model = policy().pool("policy", servers)
    todo = tasks({"reward": 1.0}, {"reward": 0.5, "die": True}, {"reward": 0.0})
    async with bridge(setting, model, {"temperature": 1.0}) as (collector, _):
        groups = await collector.collect(todo, GROUP)
        report = collector.report()
    kinds = [{r.failure.kind.value if r.failure else None for r in group} for group in groups]
    assert kinds == [{None}, {"session_lost"}, {None}]
    assert report.submitted == report.succeeded + sum(report.failed.values()) == 3 * GROUP
    assert report.retried == {"session_lost": GROUP}

    rollouts = [rollout for group in groups for rollout in group]
    found = all_samples(rollouts)
    assert {s.reward for s in found} == {1.0, 0.0}, "never a reward for what nobody saw the end of"
    trained = Counter(
        (sample.rollout_id, *ids)
        for sample in found
        for ids in spans(sample.response_ids, sample.mask)
    )
    assert set(trained.values()) == {1}
    assert len(trained) == 2 * GROUP * 2
    assert servers.calls == 2 * GROUP * 2 + 2 * GROUP * 2  # the killed ones sampled twice

    assert setting.run_dir is not None
    lines = list(RunReader(setting.run_dir).rollouts())
    assert Counter(line["failure"] for line in lines) == {None: 2 * GROUP, "session_lost": GROUP}


def spans(ids: Any, mask: Any) -> Iterator[tuple[int, ...]]:
    """Runs of trained ids."""
    run: list[int] = []
    for token, trained in zip(ids.tolist(), mask.tolist(), strict=True):
        if trained:
            run.append(token)
        elif run:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


async def test_a_worker_has_one_gateway_and_a_collector_for_each_sampling(
    setting: BridgeSetting,
) -> None:
    servers = Servers()
    try:
        first = await shared(setting, policy(), servers)
        assert await shared(setting, policy(), servers) is first
        training, validating = ({"temperature": 1.0}, {"temperature": 0.0})
        assert first.collector(training) is first.collector(dict(training))
        assert first.collector(training) is not first.collector(validating)
        rollout = await first.collector(training).rollout(*tasks({"reward": 1, "turns": 1}))
        assert rollout.reward == 1.0
        assert rollout.tokens == 3
    finally:
        await close()
    assert setting.run_dir is not None
    (worker,) = Path(setting.run_dir).glob("worker-*")
    (line,) = (worker / "rollouts.jsonl").read_text().splitlines()
    assert json.loads(line)["versions"] == ["0"]


async def test_a_broken_contract_stops_everything(setting: BridgeSetting) -> None:
    model = policy().pool("policy", Servers())
    async with bridge(setting, model, {}) as (collector, _):
        with pytest.raises(ContractError, match="rewards is 'much'"):
            await collector.collect(tasks({"reward": "much"}), GROUP)
        report = collector.report()
    assert report.submitted == sum(report.failed.values()) == GROUP


def test_a_run_in_which_nothing_works_ends() -> None:
    alive = Alive()
    for _ in range(FIRST - 1):
        alive.saw("KeyError: 'question'")
    with pytest.raises(ContractError, match=r"all failed, the last with: KeyError: 'question'"):
        alive.saw("KeyError: 'question'")


def test_one_rollout_that_ends_well_is_enough() -> None:
    alive = Alive()
    for at in range(3 * FIRST):
        alive.saw(None if at == FIRST - 1 else "lost")


async def test_rows_without_what_the_agent_reads_end_the_run(
    setting: BridgeSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcore_rl_toolkit.backends.bridge.FIRST", 2)
    pool = policy().pool(setting.served_name, Servers())
    async with bridge(setting, pool, {}) as (collector, _):
        with pytest.raises(ContractError, match="Do the rows have the fields"):
            await collector.collect([Task(0, "task0", {"question": "2+2"})], GROUP)


def test_a_setting_of_another_type_is_named(arn: str) -> None:
    with pytest.raises(ConfigError, match=r"agentcore\.timeout_s: Expected `float`, got `str`"):
        BridgeSetting.of({"arn": arn, "timeout_s": "soon"})


def test_calls_a_second_are_those_of_the_runtime_unless_set(arn: str) -> None:
    assert rate_of(arn, None) == 200
    assert rate_of(arn.replace(":local:", ":us-west-2:"), None) == 25
    assert rate_of(arn, 3) == 3
