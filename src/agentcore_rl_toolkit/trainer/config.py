"""The configuration of ``art train``: one YAML file, typed, with overrides.

Every key is a field of a dataclass below; a key that is none is refused with the nearest one that
is. Paths of inputs in the file are relative to the file, so that it works from anywhere; overrides
(``key.sub=value``) and ``run_dir`` are relative to where the command runs. ``resolved`` gives the
whole as YAML again, defaults filled in: that is what the run folder keeps and what a resumed run
is compared with.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml  # type: ignore[import-untyped]

from ..collect.setting import CollectSetting
from ..errors import ConfigError
from ..local import runtime_arn
from .setting import TrainSetting

SAMPLING = {"temperature": 1.0, "top_p": 1.0}
Backend = Literal["embedded", "verl", "slime", "rllm", "tinker"]


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    path: str | None = None
    """Folder or script of an agent; deployed on a local runtime that the command starts."""
    arn: str | None = None
    """A deployed agent instead, on AWS or on a runtime that runs already; there its name does."""
    isolation: str = "auto"
    """Level of the sessions: auto, namespace, process or microvm; with ``path`` only."""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    """Variables of its sessions; with ``path`` only."""
    python: str | None = None
    """Interpreter that has what the agent imports; with ``path`` only."""
    endpoint_url: str | None = None
    """Of the runtime of ``arn``, where it is not found by itself."""
    bucket: str = "rollouts"
    """Where results are stored."""
    tps_limit: float | None = None
    """Calls a second; None: 25 on AWS, its documented quota, and 200 on a local runtime."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    train: str
    """JSONL or Parquet; each row is a payload."""
    eval: str | None = None
    """Held-out rows; None: no evaluation."""
    shuffle: bool = True
    """A new order every time the rows have been through, by ``train.seed``."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    path: str
    """Folder as ``save_pretrained`` writes it, with a tokenizer that has a chat template."""
    served_name: str = "policy"
    """The model's name, as agents are told it."""
    max_tokens: int | None = None
    """Length of one sequence, prompt included; None: what the model was made for."""
    max_rows: int = 128
    """Sequences that are computed at a time."""
    device: str | None = None
    """None: a GPU where there is one."""
    threads: int = 0
    """Of torch on a CPU; 0: as torch chooses."""


@dataclasses.dataclass(frozen=True)
class RolloutSection:
    group_size: int = 8
    """Rollouts of one task, compared with each other."""
    tasks_per_step: int = 8
    max_concurrent: int = 64
    """Sessions at a time."""
    timeout_s: float = 300.0
    """Of one attempt."""
    retries: int = 2
    """Further attempts after an infrastructure failure, each in a new session."""
    failed_reward: float = 0.0
    """Of a rollout whose agent raised."""
    sampling: dict[str, Any] = dataclasses.field(default_factory=lambda: dict(SAMPLING))
    """Wins over what the agent sets; added to the defaults."""

    def collect(self, model_id: str) -> CollectSetting:
        return CollectSetting(
            model_id=model_id,
            sampling=self.sampling,
            max_concurrent=self.max_concurrent,
            timeout_s=self.timeout_s,
            retries=self.retries,
            failed_reward=self.failed_reward,
        )


@dataclasses.dataclass(frozen=True)
class TrackConfig:
    """Where the figures go besides the run folder."""

    tensorboard: bool = False
    """Into the run folder's ``tensorboard``."""
    wandb: dict[str, Any] | None = None
    """Arguments of ``wandb.init``, such as ``{project: math, mode: offline}``."""
    opentelemetry: bool = False
    """A span for every rollout and its stages, sent where the ``OTEL_*`` variables say."""


@dataclasses.dataclass(frozen=True)
class LoopSetting:
    """The part of ``train:`` that is about the run, not about the step."""

    max_staleness: int = 0
    """How many steps old the weights that sampled a rollout may be when it is trained, queue time
    included. 0 collects and trains in turn; 1 and more collect ahead while training."""
    eval_every: int = 20
    """Steps between evaluations; 0: none. One before and one after training come besides."""
    eval_tasks: int | None = None
    """Rows of ``data.eval`` that are used; None: all."""
    save_every: int = 20
    """Steps between checkpoints; 0: only at the end."""
    keep_checkpoints: int = 2
    success_at: float = 1.0
    """A rollout succeeds when its reward is at least this."""

    def __post_init__(self) -> None:
        for name in ("max_staleness", "eval_every", "save_every"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train.{name} must be at least 0")
        if self.keep_checkpoints < 1:
            raise ConfigError("train.keep_checkpoints must be at least 1")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    agent: AgentConfig
    data: DataConfig
    model: ModelConfig
    rollout: RolloutSection = dataclasses.field(default_factory=RolloutSection)
    train: TrainSetting = dataclasses.field(default_factory=TrainSetting)
    loop: LoopSetting = dataclasses.field(default_factory=LoopSetting)
    """In the file it is part of ``train:``."""
    track: TrackConfig = dataclasses.field(default_factory=TrackConfig)
    backend: Backend = "embedded"
    verl: dict[str, Any] = dataclasses.field(default_factory=dict)
    slime: dict[str, Any] = dataclasses.field(default_factory=dict)
    rllm: dict[str, Any] = dataclasses.field(default_factory=dict)
    tinker: dict[str, Any] = dataclasses.field(default_factory=dict)
    run_dir: str = "runs"
    """Runs get a folder of their own in it."""

    def __post_init__(self) -> None:
        if (self.agent.path is None) == (self.agent.arn is None):
            raise ConfigError(
                "agent needs one of 'path' (a folder, deployed locally) and 'arn' (deployed)"
            )
        for name in ("group_size", "tasks_per_step"):
            if getattr(self.rollout, name) < 1:
                raise ConfigError(f"rollout.{name} must be at least 1")
        if self.backend == "embedded" and self.rollout.group_size < 2:
            raise ConfigError("rollout.group_size must be at least 2: rollouts are compared")

    def resolved(self) -> str:
        """YAML that ``load`` reads back to an equal configuration."""
        # not msgspec's own conversion of the whole: it leaves defaults of dataclasses out
        value = msgspec.to_builtins(dataclasses.asdict(self))
        value["train"] = value["train"] | value.pop("loop")
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


@dataclasses.dataclass(frozen=True)
class Deployed:
    """The agent, where it runs."""

    arn: str
    endpoint_url: str | None = None


ANYWHERE = Deployed(runtime_arn("agent-AbCdEf1234"))
"""For settings that are looked at before there is an agent."""

HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
INPUTS = (("agent", "path"), ("data", "train"), ("data", "eval"), ("model", "path"))


def load(path: str | Path, overrides: Iterable[str] = ()) -> TrainConfig:
    """ConfigError, naming the key, for whatever is wrong."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration cannot be read: {error}") from None
    value = _parse(text, str(source))
    if not isinstance(value, dict):
        raise ConfigError(f"{source} must hold a mapping with agent, data, model …")
    names = _at(value, source.resolve().parent)
    for override in overrides:
        _override(value, override)
    names |= _at(value, Path.cwd())
    model = value.get("model")
    if value.get("backend", "embedded") != "embedded" and isinstance(model, dict):
        _rename(model, names)
    return build(value)


def check_inputs(config: TrainConfig) -> None:
    """That the files which it names are there: better now than after the agent was deployed."""
    for key in ("train", "eval"):
        path = getattr(config.data, key)
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"data.{key}: there is no file {path}")
    if config.backend == "embedded":
        check_model(config.model.path)


def check_model(folder: str | Path) -> None:
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"model.path: {folder} is no model folder: it has no config.json")


def build(value: Mapping[str, Any]) -> TrainConfig:
    """From plain data; ``train`` holds the fields of TrainSetting and of LoopSetting."""
    data = {key: item for key, item in value.items() if item is not None}
    if (named := data.get("backend", "embedded")) not in typing.get_args(Backend):
        known = ", ".join(typing.get_args(Backend))
        raise ConfigError(f"backend: there is no {named!r}: choose one of {known}")
    if "loop" in data:
        raise ConfigError("'loop' is no section: its keys belong to 'train'")
    train = dict(data.get("train") or {})
    both = {f.name for kind in (TrainSetting, LoopSetting) for f in dataclasses.fields(kind)}
    _known(train, both, "train")
    own = {f.name for f in dataclasses.fields(LoopSetting)}
    data["loop"] = {k: v for k, v in train.items() if k in own}
    data["train"] = {k: v for k, v in train.items() if k not in own}
    if isinstance(data.get("rollout"), Mapping):
        data["rollout"] = dict(data["rollout"])
        given = data["rollout"].get("sampling") or {}
        data["rollout"]["sampling"] = {**SAMPLING, **given}
        # log-probabilities are those of the distribution that was sampled from
        data["train"].setdefault("temperature", data["rollout"]["sampling"]["temperature"])
    agent = data.get("agent")
    if isinstance(agent, Mapping) and isinstance(agent.get("env"), Mapping):
        data["agent"] = {**agent, "env": {k: _as_text(v) for k, v in agent["env"].items()}}
    _check_keys(data, TrainConfig, "")
    try:
        return msgspec.convert(data, TrainConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error))) from None


def _as_text(value: Any) -> Any:
    """A variable's value as YAML reads it without quotes, as the environment has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _readable(message: str) -> str:
    """msgspec ends its messages with ``- at `$.train.lr` ``; ours name the key first."""
    text, _, place = message.partition(" - at `$")
    return f"{place.strip('`.')}: {text}" if place.strip("`.") else text


def _check_keys(value: Any, kind: Any, where: str) -> None:
    """Refuses keys that no field has, at every depth."""
    kind = _dataclass_in(kind)
    if kind is None or not isinstance(value, Mapping):
        return
    hints = typing.get_type_hints(kind)
    _known(value, hints.keys(), where)
    for key, item in value.items():
        _check_keys(item, hints[key], f"{where}.{key}" if where else key)


def _dataclass_in(kind: Any) -> Any:
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return next((o for o in options if dataclasses.is_dataclass(o)), None)


def _known(value: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    known = sorted(set(names) - {"loop"} if not where else names)
    for key in value:
        if key in known or (not where and key == "loop"):
            continue
        near = difflib.get_close_matches(str(key), known, 1, 0.5)
        full = f"{where}.{key}" if where else str(key)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        raise ConfigError(f"unknown key {full!r}: {hint}")


def _at(value: dict[str, Any], base: Path) -> dict[str, str]:
    """Makes relative input paths absolute; of a model that is not there, what may be its name at a
    hub, which trainers of others look up themselves."""
    names = {}
    for section, key in INPUTS:
        part = value.get(section)
        if isinstance(part, dict) and isinstance(part.get(key), str):
            given, path = part[key], base / Path(part[key]).expanduser()
            part[key] = str(path)
            if section == "model" and HUB_NAME.fullmatch(given) and not path.exists():
                names[str(path)] = given
    return names


def _rename(model: dict[str, Any], names: Mapping[str, str]) -> None:
    if isinstance(model.get("path"), str):
        model["path"] = names.get(model["path"], model["path"])


def _override(value: dict[str, Any], text: str) -> None:
    name, sep, given = text.partition("=")
    keys = name.split(".")
    if not sep or not all(keys):
        raise ConfigError(f"{text!r} is no override: write key.sub=value, such as train.lr=1e-5")
    part = value
    for key in keys[:-1]:
        inner = part.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{text!r}: {key!r} is a value, not a section")
        part = inner
    part[keys[-1]] = _parse(given, text)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.1 takes 1e-5 for text; people write it as a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # a safe loader: _Loader is one
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {error}") from None
