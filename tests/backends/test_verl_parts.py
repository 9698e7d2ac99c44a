"""The verl backend without verl: settings, data, and the gateway over a token client."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import yaml
from openai import APIError, AsyncOpenAI

from agentcore_rl_toolkit.backends import check, runner
from agentcore_rl_toolkit.backends.bridge import BridgeSetting
from agentcore_rl_toolkit.backends.verl import launch
from agentcore_rl_toolkit.backends.verl.dataset import Payloads
from agentcore_rl_toolkit.backends.verl.engine import finish_reason, versions
from agentcore_rl_toolkit.backends.verl.fields import experts
from agentcore_rl_toolkit.backends.verl.host import Policy
from agentcore_rl_toolkit.errors import ConfigError, ToolkitError
from agentcore_rl_toolkit.gateway import Gateway, GatewaySettings
from agentcore_rl_toolkit.gateway.session import OpenSession
from agentcore_rl_toolkit.trainer.config import Backend, Deployed, TrackConfig, build
from agentcore_rl_toolkit.trainer.rig import load_tokenizer
from agentcore_rl_toolkit.trainer.setting import TrainSetting

POLICY = Path(__file__).parents[2] / "examples" / "demo_policy" / "model"
ARN = "arn:aws:bedrock-agentcore:local:000000000000:runtime/math-0000000000"
WHERE = Deployed(ARN, "http://127.0.0.1:1")


class Servers:
    """Answers as verl's ``LLMServerClient`` does, with ids that it was given."""

    def __init__(self, ids: list[int], **said: Any) -> None:
        self.ids, self.said, self.asked = ids, said, []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        self.asked.append((request_id, prompt_ids, dict(sampling_params)))
        sampling_params.clear()  # verl takes out what it has read
        steps = {"min_global_steps": 3, "max_global_steps": 3}
        defaults = {
            "token_ids": self.ids,
            "log_probs": [-0.5] * len(self.ids),
            "routed_experts": None,
            "stop_reason": "completed",
            "extra_fields": steps,
        }
        return SimpleNamespace(**{**defaults, **self.said})


async def ask(
    servers: Servers, folder: Path, *, experts: bool = False, **fields: Any
) -> tuple[Any, Any, str]:
    """One call through a gateway over these servers: the answer, the row and the session."""
    policy = Policy(load_tokenizer(POLICY), "qwen3", 1024, experts)
    pool = policy.pool("policy", servers)
    settings = GatewaySettings(run_dir=folder, fsync=False)
    async with Gateway([pool], settings) as gateway:
        opened = await gateway.open_session(OpenSession())
        async with AsyncOpenAI(base_url=opened.base_url, api_key="EMPTY", max_retries=0) as client:
            ask = {"model": "policy", "messages": [{"role": "user", "content": "2 + 2?"}]}
            reply = await client.chat.completions.create(**{**ask, "max_tokens": 8, **fields})
            if fields.get("stream"):
                reply = [chunk async for chunk in reply]
        finished = await gateway.finish_session(opened.session_id)
    return reply, finished.rows, opened.session_id


def sampled_ids() -> list[int]:
    tokenizer = load_tokenizer(POLICY)
    return [*tokenizer.encode("four", add_special_tokens=False), tokenizer.eos_token_id]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_verl_samples_is_what_the_row_trains(tmp_path: Path, stream: bool) -> None:
    servers = Servers(sampled_ids())
    reply, (row,), session_id = await ask(servers, tmp_path, stream=stream, temperature=0.7)
    text = (
        "".join(c.choices[0].delta.content or "" for c in reply if c.choices)
        if stream
        else reply.choices[0].message.content
    )
    assert text == "four"
    ((request_id, prompt, sampling),) = servers.asked
    assert request_id == session_id  # which is how verl keeps a session on one server
    assert row.token_ids.tolist() == [*prompt, *sampled_ids()]
    assert row.logprobs[row.loss_mask == 1].tolist() == [-0.5] * len(sampled_ids())
    assert row.weight_versions == [("3", len(prompt), row.n_tokens)]
    assert (sampling["temperature"], sampling["max_tokens"]) == (0.7, 8)
    assert sampling["logprobs"] is True


async def test_two_choices_are_two_calls(tmp_path: Path) -> None:
    servers = Servers(sampled_ids())
    reply, rows, _ = await ask(servers, tmp_path, n=2)
    assert len(reply.choices) == len(servers.asked) == len(rows) == 2


async def test_missing_logprobs_are_an_error_and_train_nothing(tmp_path: Path) -> None:
    with pytest.raises(APIError, match="log-probabilities"):
        await ask(Servers(sampled_ids(), log_probs=None), tmp_path)


async def test_routed_experts_reach_the_output(tmp_path: Path) -> None:
    ids = sampled_ids()
    shape = (64, 2, 3)
    found = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    _, (row,), _ = await ask(Servers(ids, routed_experts=found), tmp_path, experts=True)
    sample = SimpleNamespace(
        prompt_ids=row.token_ids[: row.prompt_length],
        response_ids=row.token_ids[row.prompt_length :],
        routed_experts=tuple(row.routed_experts),
    )
    assert (experts(sample) == found[: row.n_tokens]).all()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ids", "said", "reason"),
    [
        ([5, 6, 7], "completed", "length"),
        ([5, 6, 2], "completed", "stop"),
        ([5], "completed", "stop"),
        ([5], "aborted", "abort"),
        ([], None, "stop"),
    ],
)
def test_finish_reason_is_read_off_the_ids(ids: list[int], said: str | None, reason: str) -> None:
    assert finish_reason(ids, {"max_tokens": 3, "stop_token_ids": [2]}, said) == reason


def test_an_interrupted_answer_knows_the_versions_of_its_ends() -> None:
    steps = {"min_global_steps": 3, "max_global_steps": 5}
    assert versions(steps, 4) == [("3", 0, 1), ("5", 3, 4)]
    assert versions(steps, 1) == [("3", 0, 1)]
    assert versions({}, 4) == []


# --- settings -------------------------------------------------------------------------------------


def config(**verl: Any) -> Any:
    return build(
        {
            "backend": "verl",
            "agent": {"arn": ARN},
            "data": {"train": "/data/train.jsonl"},
            "model": {"path": "/models/policy", "max_tokens": 2048},
            "rollout": {"group_size": 4, "tasks_per_step": 6, "sampling": {"max_tokens": 48}},
            "train": {"steps": 7, "minibatches": 2, "normalise": "token"},
            "verl": verl,
        }
    )


def given(tmp_path: Path, **verl: Any) -> dict[str, Any]:
    found = {}
    for override in launch.overrides(config(**verl), tmp_path / "run", WHERE):
        name, _, value = override.removeprefix("++").partition("=")
        found[name] = json.loads(value)
    return found


def test_our_settings_are_said_in_verls_words(tmp_path: Path) -> None:
    found = given(tmp_path)
    rollout, mine = "actor_rollout_ref.rollout", "actor_rollout_ref.rollout.custom.agentcore"
    assert found["data.train_batch_size"] == 6
    assert found["data.custom_cls.path"] == f"pkg://{launch.PACKAGE}.dataset"
    assert found[f"{rollout}.n"] == 4
    assert found[f"{rollout}.temperature"] == 1.0
    assert found[f"{rollout}.max_model_len"] == 2048
    assert found[f"{mine}.arn"] == ARN
    assert found[f"{mine}.endpoint_url"] == WHERE.endpoint_url
    assert found[f"{mine}.sampling.max_tokens"] == 48
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == 3
    assert found["trainer.total_training_steps"] == 7
    assert found["trainer.v1.trainer_mode"] == "sync"


def test_verls_own_keys_have_the_last_word(tmp_path: Path) -> None:
    found = given(
        tmp_path,
        python=sys.executable,
        env={"A": "b"},
        agentcore={"host": "0.0.0.0", "public_url": "https://gateway.example"},
        trainer={"nnodes": 2, "v1": {"trainer_mode": "separate_async"}},
    )
    assert (found["trainer.nnodes"], found["trainer.v1.trainer_mode"]) == (2, "separate_async")
    # verl asserts that a batch is its mini-batches between two weight updates
    updates = found["trainer.v1.separate_async.parameter_sync_step"]
    size = found["actor_rollout_ref.actor.ppo_mini_batch_size"]
    assert updates * size == found["data.train_batch_size"]
    mine = "actor_rollout_ref.rollout.custom.agentcore"
    assert found[f"{mine}.public_url"] == "https://gateway.example"
    assert not any(name.startswith(("python", "env", "agentcore")) for name in found)


def test_an_unknown_setting_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agentcore\.publik_url"):
        given(tmp_path, agentcore={"publik_url": "x"})
    with pytest.raises(ConfigError, match=r"verl\.python"):
        launch.interpreter({"python": "/nowhere/python"}, "verl")
    with pytest.raises(ConfigError, match=r"verl\.agentcore must be a mapping"):
        launch.check(config(agentcore=3))


def test_minibatches_that_do_not_divide_the_tasks_are_refused() -> None:
    four = dataclasses.replace(config().train, minibatches=4)
    with pytest.raises(ConfigError, match=r"minibatches \(4\) must divide .* \(6\)"):
        launch.check(dataclasses.replace(config(), train=four))


@pytest.mark.parametrize(
    ("rows", "track", "match"),
    [
        (0, {}, "has no rows"),
        (5, {}, r"5 rows, fewer than rollout\.tasks_per_step \(6\)"),
        (6, {"opentelemetry": True}, r"track\.opentelemetry has no effect"),
        (6, {"wandb": {"mode": "offline"}}, r"track\.wandb\.mode does not reach"),
    ],
)
def test_what_would_train_nothing_or_tell_nothing_is_refused(
    tmp_path: Path, rows: int, track: dict[str, Any], match: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "2+2"}\n' * rows)
    data = dataclasses.replace(config().data, train=str(path))
    asked = dataclasses.replace(config(), data=data, track=TrackConfig(**track))
    with pytest.raises(ConfigError, match=match):
        check(asked)


def test_every_backend_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "2+2"}\n' * 6)
    data = dataclasses.replace(config().data, train=str(path))
    for name in get_args(Backend):
        one = dataclasses.replace(config(), backend=name, data=data, train=TrainSetting())
        check(dataclasses.replace(one, slime={"model_type": "qwen3-4B"}))


def test_a_schedule_that_verl_does_not_have_is_refused(tmp_path: Path) -> None:
    linear = dataclasses.replace(config().train, schedule="linear")
    with pytest.raises(ConfigError, match="no 'linear'"):
        launch.overrides(dataclasses.replace(config(), train=linear), tmp_path, WHERE)


def test_the_loop_that_verl_loads_is_ours() -> None:
    (loop,) = yaml.safe_load(launch.loop_yaml())
    assert loop == {"name": "agentcore", "_target_": f"{launch.PACKAGE}.loop.AgentCoreLoop"}


def test_a_verl_that_fails_is_an_error(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    with pytest.raises(ToolkitError, match="ended with 3"):
        launch.run(config(python=str(fake)), tmp_path / "run", WHERE)
    assert (tmp_path / "run" / "agent_loop.yaml").exists()


def test_workers_share_the_calls_that_a_run_may_make() -> None:
    setting = BridgeSetting.of({"arn": ARN.replace(":local:", ":us-west-2:")})
    assert setting.divided(5).rate == 5.0
    with pytest.raises(ConfigError, match="arn is missing"):
        BridgeSetting.of({})


def test_a_backend_is_found_by_its_name() -> None:
    assert runner("verl") is launch.run
    with pytest.raises(ConfigError, match="no backend 'verk'"):
        runner("verk")


# --- data -----------------------------------------------------------------------------------------

ROWS = [{"prompt": "2+2", "answer": 4, "extra": {"a": [1, 2.5, None]}}, {"prompt": "x", "ok": True}]


def test_json_lines_are_payloads_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    data = Payloads([str(path)], None, {})
    assert [json.loads(data[i]["payload"]) for i in range(len(data))] == ROWS
    assert len(Payloads(str(path), None, {}, max_samples=1)) == 1


def test_parquet_rows_are_payloads_with_their_types(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    rows = [{"prompt": "2+2", "answer": 4, "more": {"share": 0.5}}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    (row,) = Payloads([str(path)], None, {})  # type: ignore[misc]
    assert json.loads(row["payload"]) == rows[0]
