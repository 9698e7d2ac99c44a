"""The public door: every name is there after a bare install, and nothing heavy comes with it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import agentcore_rl_toolkit

EXTRAS_ONLY = [
    "aiohttp", "msgspec", "numpy", "uvloop", "typer", "rich", "torch", "transformers", "renderers",
    "tokenizers", "peft", "openai", "strands", "langgraph", "yaml",
]  # fmt: skip

BARE = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS_ONLY!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import agentcore_rl_toolkit as toolkit
for name in toolkit.__all__:
    getattr(toolkit, name)
print(len(toolkit.__all__))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_every_public_name_imports_with_the_base_install_alone() -> None:
    done = run(BARE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(agentcore_rl_toolkit.__all__)


def test_the_base_install_is_bedrock_agentcore_and_boto3() -> None:
    required = importlib.metadata.requires("agentcore-rl-toolkit") or []
    base = sorted(one.split(">")[0] for one in required if "extra ==" not in one)
    assert base == ["bedrock-agentcore", "boto3"]


def test_importing_the_toolkit_imports_nothing_else() -> None:
    done = run("import sys, agentcore_rl_toolkit; print('boto3' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_art_without_its_extra_says_which_one_is_missing() -> None:
    code = BARE.partition("import agentcore_rl_toolkit as toolkit")[0]
    done = run(code + "from agentcore_rl_toolkit.cli.main import main; main()")
    assert done.returncode == 1
    assert "pip install -e '.[local]'" in done.stderr
