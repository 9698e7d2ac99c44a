"""The slime backend against stand-ins for slime's own types: real sessions, gateway and wire."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import importlib.util
import inspect
import json
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore_rl_toolkit.backends.slime import SlimeRunner, launch, runner
from agentcore_rl_toolkit.backends.slime.generate import Door, generate, sampling
from agentcore_rl_toolkit.backends.slime.reward import post_process
from agentcore_rl_toolkit.backends.slime.sample import FAILURE
from agentcore_rl_toolkit.cli.deploy import control_client, register
from agentcore_rl_toolkit.errors import ConfigError, ContractError, ToolkitError
from agentcore_rl_toolkit.runtime.thread import RuntimeThread
from agentcore_rl_toolkit.trainer.config import Deployed, build

from .conftest import beside

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "examples" / "demo_policy" / "model"
PARAMS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "max_new_tokens": 16,
    "stop": None,
    "stop_token_ids": None,
    "skip_special_tokens": False,
    "no_stop_trim": True,
    "spaces_between_special_tokens": False,
}


fake_sglang = beside("fake_sglang")


class Status(enum.Enum):
    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclasses.dataclass
class Sample:
    """Fields of ``slime.utils.types.Sample`` that are used, with their defaults."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: Any = ""
    tokens: list[int] = dataclasses.field(default_factory=list)
    response: str = ""
    response_length: int = 0
    reward: float | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = dataclasses.field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_routed_experts: Any = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    session_id: str | None = None
    Status = Status


@dataclasses.dataclass
class State:
    """``GenerateState``: one for the process, whatever arguments it is asked with."""

    aborted: bool = False

    def __call__(self, args: Any) -> State:
        return self


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> State:
    state = State()
    module: Any = ModuleType("slime.rollout.sglang_rollout")
    module.GenerateState = state
    for name in ("slime", "slime.rollout"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return state


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with RuntimeThread(port=0, home=tmp_path_factory.mktemp("home")) as runtime:
        control = control_client(runtime.url)
        made = register(control, "slime_agent", HERE / "two_turns", "rl_app.py", {})
        control.close()
        yield {"arn": str(made["agentRuntimeArn"]), "endpoint_url": runtime.url}


@pytest.fixture
async def engine() -> AsyncIterator[Any]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    answer = [*tokenizer.encode("42", add_special_tokens=False), tokenizer.eos_token_id]
    async with fake_sglang.FakeSGLang(answer) as engine:
        yield engine


@pytest.fixture
async def args(engine: Any, agent: Any, state: State, tmp_path: Path) -> AsyncIterator[Namespace]:
    yield Namespace(
        hf_checkpoint=str(MODEL),
        sglang_router_ip="127.0.0.1",
        sglang_router_port=engine.port,
        rewards_normalization=True,
        grpo_std_normalization=True,
        agentcore={**agent, "run_dir": str(tmp_path), "retries": 1, "timeout_s": 30.0},
    )
    await Door.close()


def blank(index: int = 0, **metadata: Any) -> Sample:
    return Sample(group_index=index // 2, index=index, prompt="what?", metadata=metadata)


async def test_a_rollout_becomes_samples_with_the_ids_that_were_served(
    args: Namespace, engine: Any
) -> None:
    (sample,) = await generate(args, blank(reward=0.5), PARAMS)
    first, second = engine.calls
    assert sample.tokens == [*second["input_ids"], *engine.answer]
    assert sample.tokens[: len(first["input_ids"])] == first["input_ids"]
    assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
    assert sum(sample.loss_mask) == 2 * len(engine.answer)
    trained = [p for p, m in zip(sample.rollout_log_probs, sample.loss_mask, strict=True) if m]
    assert set(trained) == {fake_sglang.LOGPROB}
    assert (sample.reward, sample.status, sample.weight_versions) == (0.5, Status.COMPLETED, ["1"])
    assert sample.rollout_id == sample.index == 0


async def test_a_session_stays_with_one_worker_of_the_router(args: Namespace, engine: Any) -> None:
    (sample,) = await generate(args, blank(reward=1.0), PARAMS)
    assert engine.keys == [sample.session_id] * 2


async def test_the_row_is_the_payload_and_slimes_sampling_wins(
    args: Namespace, engine: Any
) -> None:
    (sample,) = await generate(args, blank(reward=1.0, turns=1), PARAMS | {"max_new_tokens": 1})
    (call,) = engine.calls
    assert call["sampling_params"]["max_new_tokens"] == 1
    assert call["return_logprob"] is True
    assert sample.status in (Status.TRUNCATED, Status.COMPLETED)


async def test_versions_of_new_weights_come_with_the_answers(args: Namespace, engine: Any) -> None:
    await generate(args, blank(0, reward=1.0), PARAMS)
    engine.version = "2"
    (sample,) = await generate(args, blank(1, reward=1.0), PARAMS)
    assert sample.weight_versions == ["2"]


async def test_an_agent_that_raises_keeps_its_samples_with_the_failed_reward(
    args: Namespace,
) -> None:
    (sample,) = await generate(args, blank(fail="at the end"), PARAMS)
    assert (sample.status, sample.reward, sample.remove_sample) == (Status.FAILED, 0.0, False)
    assert sum(sample.loss_mask) > 0


async def test_a_session_that_dies_keeps_its_place_and_trains_nothing(args: Namespace) -> None:
    (sample,) = await generate(args, blank(die=True), PARAMS)
    assert sample.remove_sample
    assert sum(sample.loss_mask) == 0
    assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
    assert "session_lost" in sample.metadata[FAILURE]


async def test_a_worker_that_dies_is_asked_again(args: Namespace, engine: Any) -> None:
    engine.die = 1
    (sample,) = await generate(args, blank(reward=1.0), PARAMS)
    assert sample.reward == 1.0
    assert sum(sample.loss_mask) == 2 * len(engine.answer)


async def test_an_abort_stops_the_session_and_gives_the_sample_back(
    args: Namespace, engine: Any, state: State
) -> None:
    engine.hold = True
    work = asyncio.create_task(generate(args, blank(reward=1.0), PARAMS))
    async with asyncio.timeout(30):
        while not engine.waiting:
            await asyncio.sleep(0.01)
        state.aborted = True
        sample = await work
    assert sample.status is Status.ABORTED
    assert sample.tokens == []


async def test_an_evaluation_gives_one_sample(args: Namespace) -> None:
    sample = await generate(args, blank(reward=0.25), PARAMS, evaluation=True)
    assert sample.reward == 0.25


async def test_rewards_of_the_wrong_shape_stop_the_run(args: Namespace) -> None:
    with pytest.raises(ContractError, match="3 rewards but 2 turns"):
        await generate(args, blank(reward=[1, 2, 3]), PARAMS)


def test_slime_finds_the_parameters_that_it_calls_with() -> None:
    assert list(inspect.signature(generate).parameters) == [
        "args",
        "sample",
        "sampling_params",
        "evaluation",
    ]
    assert list(inspect.signature(post_process).parameters) == ["args", "samples"]
    for path, function in ((runner.GENERATE, generate), (runner.POST_PROCESS, post_process)):
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name) is function


def test_sampling_has_the_names_that_agents_use() -> None:
    given = sampling(PARAMS | {"sampling_seed": 7})
    assert given == {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 16, "seed": 7}
    with pytest.raises(ConfigError, match="rollout-top-p must be 1"):
        sampling({"custom_params": {"return_top_p_token_ids": True}})


def judged(*rows: tuple[int, int, float, bool], **args: Any) -> list[float]:
    samples = [
        Sample(group_index=g, rollout_id=r, reward=v, metadata={FAILURE: "lost"} if lost else {})
        for g, r, v, lost in rows
    ]
    raw, advantages = post_process(Namespace(**args), samples)
    assert raw == [v for _, _, v, _ in rows]
    return advantages


def test_a_rollout_counts_once_however_many_samples_it_became() -> None:
    split = judged((0, 0, 1.0, False), (0, 0, 1.0, False), (0, 1, 0.0, False))
    assert split == pytest.approx([1.0, 1.0, -1.0], rel=1e-4)


def test_a_lost_rollout_is_not_compared_with() -> None:
    with_lost = judged((0, 0, 1.0, False), (0, 1, 0.0, True), (0, 2, 1.0, False))
    assert with_lost == [0.0, 0.0, 0.0]


def test_groups_are_compared_within_themselves() -> None:
    rows = ((0, 0, 3.0, False), (1, 1, 1.0, False), (0, 2, 1.0, False), (1, 3, 1.0, False))
    assert judged(*rows, grpo_std_normalization=False) == [1.0, 0.0, -1.0, 0.0]


def test_without_normalisation_rewards_stay() -> None:
    rows = ((0, 0, 3.0, False), (0, 1, 1.0, True))
    assert judged(*rows, rewards_normalization=False) == [3.0, 0.0]


# --- the runner -------------------------------------------------------------------------------

TRAIN = """
import json, os, sys
flags = sys.argv[1:]
config = open(flags[flags.index("--custom-config-path") + 1]).read()
seen = {"flags": flags, "config": json.loads(config), "path": os.environ["PYTHONPATH"]}
open("seen.json", "w").write(json.dumps(seen))
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A checkout as far as the runner looks at it."""
    models = tmp_path / "slime" / "scripts" / "models"
    models.mkdir(parents=True)
    (models / "tiny.sh").write_text(
        'MODEL_ARGS=(\n  --num-layers 2\n  --normalization "RMS Norm"\n)'
    )
    (tmp_path / "slime" / "train.py").write_text(TRAIN)
    return tmp_path / "slime"


def make_runner(home: Path, **extra: Any) -> SlimeRunner:
    return SlimeRunner(
        exp_id="exp",
        agent_runtime_arn="arn",
        s3_bucket="bucket",
        model_dir="/models/tiny",
        data_path="data.jsonl",
        model_type="tiny",
        slime_dir=str(home),
        **extra,
    )


def value_of(flags: list[str], name: str) -> str:
    return flags[len(flags) - flags[::-1].index(name)]


def test_the_runner_starts_slime_with_our_functions(home: Path) -> None:
    made = make_runner(home, wandb_project="p", wandb_group="g", agentcore={"timeout_s": 60})
    made.train(num_rollout=3)
    seen = json.loads((home / "seen.json").read_text())
    flags = seen["flags"]
    assert value_of(flags, "--num-layers") == "2"
    assert value_of(flags, "--normalization") == "RMS Norm"
    assert value_of(flags, "--num-rollout") == "3"
    assert value_of(flags, "--custom-generate-function-path") == runner.GENERATE
    assert value_of(flags, "--custom-reward-post-process-path") == runner.POST_PROCESS
    assert value_of(flags, "--ref-load") == "/models/tiny_torch_dist"
    assert value_of(flags, "--actor-num-gpus-per-node") == "8"
    assert value_of(flags, "--wandb-group") == "g"
    agentcore = {"arn": "arn", "bucket": "bucket", "exp_id": "exp", "timeout_s": 60}
    assert seen["config"] == {"agentcore": agentcore}
    assert seen["path"].startswith(str(home))


def test_extra_flags_win(home: Path) -> None:
    made = make_runner(home, extra_flags=("--lr", "3e-6"))
    assert value_of(made.command(1, Path("c")), "--lr") == "3e-6"


def test_slime_that_fails_is_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", "3")
    with pytest.raises(ToolkitError, match="slime ended with 3"):
        make_runner(home).train()


def test_a_runner_from_yaml_is_the_same(home: Path, tmp_path: Path) -> None:
    made = make_runner(home, num_gpus=4, extra_flags=["--x"])
    path = tmp_path / "slime.yaml"
    path.write_text(json.dumps(dataclasses.asdict(made)))
    assert SlimeRunner.from_yaml(path) == made


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("exp_idd: x", "did you mean 'exp_id'"),
        ("exp_id: x", "lacks agent_runtime_arn, s3_bucket"),
        ("[1]", "must hold a mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "slime.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        SlimeRunner.from_yaml(path)


def test_an_unknown_model_type_is_refused_with_those_near(home: Path) -> None:
    made = dataclasses.replace(make_runner(home), model_type="tinny")
    with pytest.raises(ConfigError, match=r"no model type 'tinny'; near: .*tiny"):
        made.train()


def test_without_slime_the_runner_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="slime was not found"):
        make_runner(tmp_path).train()


def test_art_train_runs_slime_from_the_common_configuration(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text(json.dumps({"prompt": "what?", "answer": 4}) + "\n")
    config = build(
        {
            "agent": {"arn": "arn", "bucket": "bucket"},
            "data": {"train": str(data), "eval": str(data), "shuffle": False},
            "model": {"path": "/models/tiny"},
            "rollout": {
                **{"group_size": 4, "tasks_per_step": 2, "timeout_s": 60},
                "sampling": {"temperature": 0.7},
            },
            "train": {"steps": 5, "clip_high": 0.3, "schedule": "cosine"},
            "backend": "slime",
            "slime": {
                **{"model_type": "tiny", "slime_dir": str(home), "num_gpus": 4},
                "extra_flags": ["--num-gpus-x", 1],
            },
        }
    )
    run_dir = tmp_path / "run"
    launch.run(config, run_dir, Deployed("arn", "http://127.0.0.1:9"))
    seen = json.loads((home / "seen.json").read_text())
    assert value_of(seen["flags"], "--num-rollout") == "5"
    assert value_of(seen["flags"], "--global-batch-size") == "8"
    assert value_of(seen["flags"], "--actor-num-gpus-per-node") == "4"
    assert seen["config"]["agentcore"]["timeout_s"] == 60
    assert value_of(seen["flags"], "--rollout-temperature") == "0.7"
    assert value_of(seen["flags"], "--eps-clip-high") == "0.3"
    assert value_of(seen["flags"], "--lr-decay-style") == "cosine"
    assert value_of(seen["flags"], "--eval-prompt-data") == "agentcore"
    assert str(run_dir / "slime-eval.jsonl") in seen["flags"]
    assert "--rollout-shuffle" not in seen["flags"]
    assert value_of(seen["flags"], "--num-gpus-x") == "1"
    rows = [json.loads(line) for line in (run_dir / "slime.jsonl").read_text().splitlines()]
    assert rows == [{"prompt": "what?", "metadata": {"prompt": "what?", "answer": 4}}]


def test_art_train_needs_to_know_the_model_type(tmp_path: Path) -> None:
    common = {"agent": {"arn": "a"}, "data": {"train": "t"}, "model": {"path": "m"}}
    with pytest.raises(ConfigError, match=r"slime.model_type is missing"):
        launch.make(build(common), tmp_path, Deployed("arn"))


@pytest.mark.parametrize(
    ("sections", "match"),
    [
        ({"train": {"lora": {"rank": 8}}}, r"train\.lora has no effect with backend slime"),
        ({"train": {"max_staleness": 1}}, r"train\.max_staleness has no effect"),
        ({"train": {"minibatches": 3}}, "must divide"),
        ({"rollout": {"sampling": {"top_p": 0.9}}}, "top_p must be 1"),
        ({"rollout": {"sampling": {"stop": ["x"]}}}, r"rollout\.sampling\.stop has no effect"),
        ({"slime": {"model_type": "tiny", "num_gpu": 4}}, "did you mean 'num_gpus'"),
        ({"slime": {"model_type": "tiny", "lr": "fast"}}, r"slime\.lr: Expected `float`"),
        ({"slime": {"model_type": "tiny", "agentcore": {"retries": "two"}}}, r"agentcore\.retries"),
    ],
)
def test_what_slime_cannot_honour_is_refused(sections: dict[str, Any], match: str) -> None:
    common = {"agent": {"arn": "a"}, "data": {"train": "t"}, "model": {"path": "m"}}
    with pytest.raises(ConfigError, match=match):
        launch.check(build({**common, "slime": {"model_type": "tiny"}, **sections}))
