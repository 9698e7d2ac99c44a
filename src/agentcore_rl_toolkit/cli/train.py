"""``art train``: reinforcement learning of an agent, as a configuration file says."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import MissingExtraError
from ..run.folder import RunFolder
from .agent import find_agent
from .child import own_runtime
from .deploy import (
    control_client,
    find_entry,
    install_requirements,
    register,
    runtime_name,
)
from .show import console, hint

if TYPE_CHECKING:
    from ..trainer.config import Deployed, TrainConfig
    from ..trainer.loop import Outcome
    from ..trainer.view import View

LOOPS = {"embedded": "..trainer.loop", "tinker": "..backends.tinker.loop"}
"""Backends that our own loop drives, with the same view, run folder and checkpoints."""


def train(
    config: Annotated[Path, typer.Argument(help="YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key.sub=value, such as train.lr=1e-5")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the resolved configuration and stop.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Run folder to go on with, as the command printed it.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="embedded, verl, slime, rllm or tinker; wins over 'backend:'."),
    ] = None,
) -> None:
    """Train an agent. Ctrl-C saves and stops; --resume goes on."""
    changes = [*(overrides or []), *([f"backend={backend}"] if backend else [])]
    loaded = load_config(config, changes)
    if dry_run:
        console.print(loaded.resolved(), markup=False, soft_wrap=True, end="")
        return
    run_dir = resume or new_run_dir(loaded)
    new = resume is not None and not RunFolder(resume).exists()
    hint(f"run folder {run_dir}" + (": it holds no run yet, so one begins there" if new else ""))
    if loaded.backend not in LOOPS:
        run_elsewhere(loaded, run_dir)
        return
    from .train_view import train_view

    with train_view() as view:
        try:
            outcome = run(loaded, run_dir, view)
        except KeyboardInterrupt:
            words = shlex.join(["art", "train", str(config), *(overrides or [])])
            hint(f"interrupted; go on with: {words} --resume {run_dir}")
            raise
    print_outcome(outcome)


def run_elsewhere(config: TrainConfig, run_dir: Path) -> None:
    """Training by somebody else's trainer, with the agent deployed for it."""
    from ..backends import runner

    run_backend = runner(config.backend)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with deployed(config, run_dir, hint) as where:
        run_backend(config, run_dir, where)
    console.print(f"run folder: {run_dir}", markup=False, soft_wrap=True)


def load_config(path: Path, overrides: list[str]) -> TrainConfig:
    """Checked, and with the files that it names there."""
    # bfloat16 kernels of this library end the process on some CPUs; float32 is not affected
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    try:
        from ..trainer.config import check_inputs, load
    except ImportError as error:
        lacks = f" ({error.name})" if error.name else ""
        raise MissingExtraError("train", f"'art train'{lacks}") from None
    from ..backends import check

    config = load(path, overrides)
    check_inputs(config)
    check(config)
    return config


def new_run_dir(config: TrainConfig) -> Path:
    """Made here, so that two runs of one second do not share it."""
    agent = config.agent.path or config.agent.arn or "agent"
    name = re.sub(r"[^A-Za-z0-9_]+", "-", Path(agent).name).strip("-")
    base = Path(config.run_dir).expanduser() / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    base.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("counting has no end")


def run(config: TrainConfig, run_dir: Path, view: View) -> Outcome:
    """The whole run, from starting what it needs to stopping it."""
    from transformers.utils import logging as transformers_logging

    from ..loop import new_loop

    train_loop = importlib.import_module(LOOPS[config.backend], __package__).train
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # being ended is being interrupted: the state is saved, sessions are stopped
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with (
        deployed(config, run_dir, view.note) as where,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        view.note("starting the engine and the gateway")
        outcome: Outcome = runner.run(train_loop(config, run_dir, where, view=view))
    return outcome


@contextmanager
def deployed(config: TrainConfig, run_dir: Path, note: Callable[[str], None]) -> Iterator[Deployed]:
    """The agent: as it is deployed, or deployed now on a runtime of our own."""
    from ..trainer.config import Deployed

    agent = config.agent
    if agent.arn is not None:
        yield Deployed(find_agent(agent.arn, agent.endpoint_url).arn, agent.endpoint_url)
        return
    assert agent.path is not None
    folder, entry = find_entry(Path(agent.path))
    room = config.rollout.max_concurrent * 2
    note("starting a local runtime")
    with (
        kept_logs(run_dir) as logs,
        own_runtime(isolation=agent.isolation, max_sessions=room, logs=logs) as url,
    ):
        variables = dict(agent.env)
        if agent.python:
            variables["ART_PYTHON"] = agent.python
        note(f"starting {folder.name}/{entry} once, to see that it imports")
        variables |= install_requirements(folder, variables)
        made = register(control_client(url), runtime_name(folder), folder, entry, variables)
        note(f"agent {folder.name}/{entry} on a local runtime at {url}")
        yield Deployed(str(made["agentRuntimeArn"]), url)


@contextmanager
def kept_logs(run_dir: Path) -> Iterator[Path]:
    """Where the run keeps what agents print; no trace where nothing came of it."""
    logs = RunFolder(run_dir).logs
    for folder in (run_dir, logs):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield logs
    finally:
        for folder in (logs, run_dir):
            with suppress(OSError):  # it is in use
                folder.rmdir()


def print_outcome(outcome: Outcome) -> None:
    console.print(str(outcome.report), markup=False)
    if not outcome.report.submitted:
        hint(f"it was at step {outcome.steps} already: set train.steps higher to train on")
    console.print(f"run folder: {outcome.run_dir}", markup=False, soft_wrap=True)
    if outcome.before is not None and outcome.after is not None:
        before, after = 100 * outcome.before, 100 * outcome.after
        console.print(f"held-out success: {before:.1f} % -> {after:.1f} %")
