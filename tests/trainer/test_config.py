"""The configuration file of ``art train``."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.trainer.config import load

TEXT = """
agent: {path: agent}
data: {train: train.jsonl}
model: {path: /models/tiny}
rollout: {sampling: {temperature: 0.7}}
train: {lr: 1e-5, lora: {rank: 4}, max_staleness: 1}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text(TEXT)
    return path


def test_defaults_are_filled_in_and_inputs_are_relative_to_the_file(file: Path) -> None:
    config = load(file)
    assert config.agent.path == str(file.parent / "agent")
    assert config.data.train == str(file.parent / "train.jsonl")
    assert config.model.path == "/models/tiny"
    assert config.rollout.group_size == 8
    assert config.run_dir == "runs"


def test_numbers_as_people_write_them(file: Path) -> None:
    assert load(file).train.lr == 1e-5
    assert load(file, ["train.lr=2E-4"]).train.lr == 2e-4


def test_variables_of_the_agent_need_no_quotes(file: Path) -> None:
    env = load(file, ["agent.env.WAIT_S=1.5", "agent.env.N=3", "agent.env.FAST=true"]).agent.env
    assert env == {"WAIT_S": "1.5", "N": "3", "FAST": "true"}


def test_train_holds_the_step_and_the_loop(file: Path) -> None:
    config = load(file)
    assert config.train.lora is not None
    assert config.train.lora.rank == 4
    assert config.loop.max_staleness == 1


def test_the_trainer_knows_the_temperature_of_the_rollouts(file: Path) -> None:
    config = load(file)
    assert config.train.temperature == 0.7
    assert config.rollout.sampling == {"temperature": 0.7, "top_p": 1.0}
    assert load(file, ["train.temperature=1.0"]).train.temperature == 1.0


def test_overrides_win_and_their_paths_are_relative_to_here(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    config = load(file, ["train.steps=3", "data.eval=test.jsonl", "rollout.sampling.top_p=0.9"])
    assert config.train.steps == 3
    assert config.data.eval == str(here / "test.jsonl")
    assert config.rollout.sampling["top_p"] == 0.9


def test_what_is_resolved_reads_back_to_the_same(file: Path, tmp_path: Path) -> None:
    config = load(file, ["agent.env.A=1x", "verl.trainer.nodes=2"])
    again = tmp_path / "resolved.yaml"
    again.write_text(config.resolved())
    assert load(again) == config
    assert "clip_high: 0.28" in config.resolved(), "defaults are written out"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stps=3", "unknown key 'train.stps': did you mean 'steps'"),
        ("trian.steps=3", "unknown key 'trian': did you mean 'train'"),
        ("train.lora.rnk=3", "unknown key 'train.lora.rnk': did you mean 'rank'"),
        ("rollout.zzzz=1", "known keys: failed_reward"),
        ("train.lr=fast", "train.lr: Expected `float`, got `str`"),
        ("train.lr=-1", "train.lr must be greater than 0"),
        ("train.max_staleness=-1", "train.max_staleness must be at least 0"),
        ("backend=unheard", "backend"),
        ("agent.arn=arn", "one of 'path'"),
        ("rollout.group_size=1", "group_size must be at least 2"),
        ("model=3", "model: Expected `object`, got `int`"),
        ("data={}", "missing required field `train`"),
        ("train.steps.x=1", "is no override|is a value"),
        ("steps", "is no override"),
        ("train.lr=[", "not valid YAML"),
    ],
)
def test_a_mistake_is_named(file: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(file, ["train.steps=2", override])


def test_a_file_that_is_missing_or_no_mapping_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="must hold a mapping"):
        load(tmp_path / "list.yaml")


def test_a_models_name_at_a_hub_reaches_trainers_of_others_as_it_is(file: Path) -> None:
    name = "Qwen/Qwen3-4B"
    assert load(file, [f"model.path={name}", "backend=rllm"]).model.path == name
    assert load(file, [f"model.path={name}"]).model.path == str(Path.cwd() / name)
    (file.parent / "models" / "there").mkdir(parents=True)
    file.write_text(file.read_text() + "\nbackend: rllm\n")
    found = load(file, [f"model.path={file.parent}/models/there"]).model.path
    assert found == str(file.parent / "models" / "there")


def test_an_unknown_backend_is_refused_with_those_there_are(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"no 'verk': choose one of embedded, verl"):
        load(file, ["backend=verk"])
