"""What rllm's AgentCore runtime uses of this toolkit, call for call, on the local runtime.

rllm imports ``RolloutClient`` and nothing else. These are the calls of its
``rllm.engine.remote_runtime.agentcore_runtime``, so a change that breaks it fails here. Below them:
what ``art train --backend rllm`` says to rllm.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import inspect
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit import RolloutClient, RolloutFuture
from agentcore_rl_toolkit.backends.rllm import launch
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.errors import ConfigError, ToolkitError
from agentcore_rl_toolkit.local import DEFAULT_BUCKET
from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.trainer.config import AgentConfig, Deployed, build

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def arn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        RuntimeThread(port=0, home=tmp_path_factory.mktemp("home")) as runtime,
        pytest.MonkeyPatch.context() as patch,
    ):
        # rllm passes no endpoint: the client finds the runtime by its ARN and the environment
        patch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", runtime.url)
        patch.setenv("AWS_ENDPOINT_URL_S3", runtime.url)
        control = control_client(runtime.url)
        made = register(control, "rllm_agent", HERE / "rewarded", "rl_app.py", {})
        control.close()
        yield str(made["agentRuntimeArn"])


async def run(
    arn: str, payload: dict[str, Any], timeout: float = 60.0
) -> tuple[Any, RolloutFuture]:
    client = RolloutClient(
        agent_runtime_arn=arn, s3_bucket=DEFAULT_BUCKET, exp_id="exp", tps_limit=25
    )
    try:
        future = await client.invoke_async(
            payload=payload,
            session_id=str(uuid.uuid4()),
            input_id=str(uuid.uuid4()),
            base_url="http://127.0.0.1:9/sessions/x/v1",
            model_id="policy",
        )
        return await future.result_async(timeout=timeout), future
    finally:
        await client.aclose()


def test_the_signatures_take_rllms_arguments() -> None:
    inspect.signature(RolloutClient).bind(
        agent_runtime_arn="a", s3_bucket="b", exp_id="e", tps_limit=25
    )
    inspect.signature(RolloutClient.invoke_async).bind(
        None, payload={}, session_id="s", input_id="i", base_url="u", model_id="m"
    )
    inspect.signature(RolloutFuture.result_async).bind(None, timeout=1.0)
    inspect.signature(RolloutFuture.elapsed).bind(None)


async def test_a_result_says_200_and_its_rewards_and_metrics(arn: str) -> None:
    result, future = await run(arn, {"rewards": 0.5, "metrics": {"length": 3}})
    assert result.get("status_code") in (None, 200)
    assert result.get("rewards") == 0.5
    assert result.get("metrics") == {"length": 3}
    assert future.elapsed() > 0


async def test_a_list_of_rewards_stays_a_list(arn: str) -> None:
    result, _ = await run(arn, {"rewards": [0.0, 1.0]})
    assert result.get("rewards") == [0.0, 1.0]


async def test_an_agents_error_is_a_status_and_a_reason(arn: str) -> None:
    result, _ = await run(arn, {"fail": "no such table"})
    assert result.get("status_code") == 500
    assert "no such table" in result.get("stop_reason")
    assert "RuntimeError" in result.get("traceback")


async def test_a_timeout_is_asyncios(arn: str) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await run(arn, {"hang": True}, timeout=0.01)


async def test_sessions_run_side_by_side(arn: str) -> None:
    found = await asyncio.gather(*(run(arn, {"rewards": float(i)}) for i in range(3)))
    assert [result["rewards"] for result, _ in found] == [0.0, 1.0, 2.0]


# --- art train --backend rllm -------------------------------------------------------------------

ARN = "arn:aws:bedrock-agentcore:local:000000000000:runtime/math-AbCdEf1234"
WHERE = Deployed(ARN, "http://127.0.0.1:9")


def config(train: dict[str, Any] | None = None, **rllm: Any) -> Any:
    return build(
        {
            "backend": "rllm",
            "agent": {"arn": ARN},
            "data": {"train": "/data/train.jsonl", "eval": "/data/test.jsonl"},
            "model": {"path": "/models/policy", "max_tokens": 2048},
            "rollout": {"group_size": 4, "tasks_per_step": 6, "sampling": {"max_tokens": 48}},
            "train": {"steps": 7, "lr": 2e-5, "lora": {"rank": 8}, **(train or {})},
            "rllm": rllm,
        }
    )


def said(tmp_path: Path, **rllm: Any) -> dict[str, Any]:
    words = launch.plan(config(**rllm), tmp_path / "run", WHERE)["overrides"]
    pairs = (word.removeprefix("++").partition("=") for word in words[1:])
    return {name: json.loads(value) for name, _, value in pairs}


def test_our_settings_are_said_in_rllms_words(tmp_path: Path) -> None:
    found = said(tmp_path)
    assert found["model.name"] == "/models/policy"
    assert found["model.lora_rank"] == 8
    assert (found["training.group_size"], found["training.learning_rate"]) == (4, 2e-5)
    # without the second rllm ends at once and says nothing
    assert found["data.train_batch_size"] == found["rllm.data.train_batch_size"] == 6
    assert (found["data.max_prompt_length"], found["data.max_response_length"]) == (2000, 48)
    assert found["rllm.trainer.total_batches"] == 7
    assert found["rllm.rollout.train.max_tokens"] == 48
    runtime = "rllm.remote_runtime"
    assert (found[f"{runtime}.enabled"], found[f"{runtime}.backend"]) == (True, "agentcore")
    assert found[f"{runtime}.agentcore.agent_runtime_arn"] == ARN
    assert found["rllm.compact_filtering.mask_error"] is True
    assert found[f"{runtime}.agentcore.tps_limit"] == 200


def test_less_than_one_call_a_second_is_not_none(tmp_path: Path) -> None:
    slow = dataclasses.replace(config(), agent=AgentConfig(arn=ARN, tps_limit=0.5))
    words = launch.plan(slow, tmp_path, WHERE)["overrides"]
    assert "++rllm.remote_runtime.agentcore.tps_limit=1" in words


def test_rllms_own_keys_have_the_last_word(tmp_path: Path) -> None:
    mine = {"python": sys.executable, "env": {"A": "b"}, "capture": "rllm"}
    theirs = {"tinker_base_url": "http://t", "rllm": {"gateway": {"port": 9}}}
    found = said(tmp_path, model={"name": "Qwen/Qwen3-8B"}, **mine, **theirs)
    assert found["model.name"] == "Qwen/Qwen3-8B"
    assert (found["tinker_base_url"], found["rllm.gateway.port"]) == ("http://t", 9)
    assert not any(name.startswith(("python", "env", "capture")) for name in found)


def test_verl_inside_rllm_keeps_rllms_gateway(tmp_path: Path) -> None:
    plan = launch.plan(config(backend="verl"), tmp_path, WHERE)
    assert (plan["backend"], plan["capture"]) == ("verl", "rllm")
    assert plan["overrides"][0] == "rllm/backend=verl"
    assert '++actor_rollout_ref.model.path="/models/policy"' in plan["overrides"]
    with pytest.raises(ConfigError, match=r"rllm\.capture must be 'rllm'"):
        launch.plan(config(backend="verl", capture="agentcore"), tmp_path, WHERE)


@pytest.mark.parametrize(
    ("train", "rllm", "match"),
    [
        ({"max_staleness": 1}, {}, r"train\.max_staleness has no effect"),
        ({"minibatches": 2}, {}, r"train\.minibatches has no effect"),
        ({"minibatches": 4}, {"backend": "verl"}, r"train\.minibatches must divide"),
        ({}, {"env": "A=b"}, r"rllm\.env must be a mapping"),
        ({}, {"capture": "both"}, r"rllm\.capture must be one of agentcore, rllm"),
        ({}, {"backend": "trl"}, r"rllm\.backend must be one of tinker, verl"),
    ],
)
def test_what_rllm_cannot_honour_is_refused(
    tmp_path: Path, train: dict[str, Any], rllm: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        launch.plan(config(train, **rllm), tmp_path, WHERE)


def test_rllm_is_started_with_a_plan_and_the_runtimes_address(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$3 $AWS_ENDPOINT_URL_S3 $A" > "$0.seen"\nexit "${CODE:-0}"\n')
    fake.chmod(0o755)
    run_dir = tmp_path / "run"
    launch.run(config(python=str(fake), env={"A": "b"}), run_dir, WHERE)
    assert (tmp_path / "python.seen").read_text() == f"{run_dir}/rllm.json http://127.0.0.1:9 b\n"
    plan = json.loads((run_dir / "rllm.json").read_text())
    assert (plan["train"], plan["retries"], plan["capture"]) == (
        "/data/train.jsonl",
        2,
        "agentcore",
    )
    with pytest.raises(ToolkitError, match="rllm ended with 3"):
        launch.run(config(python=str(fake), env={"CODE": 3}), run_dir, WHERE)


# --- the example's data -----------------------------------------------------------------------


def test_prepared_rows_are_the_payload() -> None:
    path = HERE.parents[1] / "examples" / "agentcore_math" / "prepare_data.py"
    spec = importlib.util.spec_from_file_location("prepare_data", path)
    assert spec is not None
    assert spec.loader is not None
    prepare: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    row = {"question": "2 pens at $600 each?", "answer": "2 * 600 = 1,200\n#### 1,200"}
    assert prepare.payload(7, row) == {
        "idx": 7,
        "prompt": "2 pens at $600 each?",
        "answer": "1200",
        "data_source": "gsm8k",
    }
    with pytest.raises(SystemExit, match="row 7 has no answer"):
        prepare.payload(7, {"question": "?", "answer": "none"})
