"""docs/train.md names every setting of every backend, in the backend's own part."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from agentcore_rl_toolkit.backends.bridge import BridgeSetting
from agentcore_rl_toolkit.backends.rllm import launch as rllm
from agentcore_rl_toolkit.backends.slime import SlimeRunner
from agentcore_rl_toolkit.backends.tinker import TinkerSetting
from agentcore_rl_toolkit.backends.verl import launch as verl

PAGE = Path(__file__).parents[2] / "docs" / "train.md"


def names(setting: type) -> list[str]:
    return [field.name for field in dataclasses.fields(setting)]


@pytest.mark.parametrize(
    ("backend", "settings"),
    [
        ("verl", [*names(BridgeSetting), "sampling", *verl.OWN]),
        ("slime", [*names(SlimeRunner), *names(BridgeSetting)]),
        ("rllm", rllm.OWN),
        ("Tinker", names(TinkerSetting)),
    ],
)
def test_every_setting_of_a_backend_is_on_its_page(backend: str, settings: list[str]) -> None:
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (part,) = [part for part in parts if part.splitlines()[0] == backend]
    tables = "\n".join(line for line in part.splitlines() if line.startswith("|"))
    assert [name for name in settings if f"`{name}`" not in tables] == []


@pytest.mark.parametrize("backend", ["verl", "slime", "rllm", "Tinker"])
def test_every_backend_is_told_of_from_install_to_trouble(backend: str) -> None:
    heads = re.findall(r"^### (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    for head in ("Install {}", "Data for {}", "Launch {}", "Settings of {}", "Limits of {}"):
        assert head.format(backend) in heads
    assert f"Troubleshooting {backend}" in heads
