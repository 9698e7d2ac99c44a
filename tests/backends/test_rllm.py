"""What rllm's AgentCore runtime uses of this toolkit, call for call, on the local runtime.

rllm imports ``RolloutClient`` and nothing else. These are the calls of its
``rllm.engine.remote_runtime.agentcore_runtime``, so a change that breaks it fails here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_rl_toolkit import RolloutClient, RolloutFuture
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.local import DEFAULT_BUCKET
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

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
