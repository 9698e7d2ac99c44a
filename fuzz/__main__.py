"""``python -m fuzz NAME --seconds N``: one harness, guided by coverage where atheris is installed.

    python -m fuzz --install          atheris, into the user's cache folder
    python -m fuzz sse --seconds 120
    python -m fuzz all --seconds 60 --mutate --seed 7
    python -m fuzz sse FILE           a finding again

A finding is printed with its input and ends the run; atheris also leaves it as ``crash-…`` in the
cache folder, where its corpus grows from run to run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import mutate

NAMES = ("sse", "eventstream", "journal", "result", "claim", "archive")
ATHERIS = "atheris==3.0.0"
"""Its wheels are for CPython 3.11 to 3.13 on Linux."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentcore-rl-toolkit" / "fuzz"


def packages() -> Path:
    return cache() / f"python{sys.version_info.major}.{sys.version_info.minor}"


def install() -> int:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    command += ["--no-deps", "--upgrade", "--target", str(packages()), ATHERIS]
    return subprocess.run(command, check=False).returncode


def harness(name: str) -> Any:
    return importlib.import_module(f"fuzz.{name}")


def guided(name: str, seconds: int, seed: int) -> None:
    """Ends the process: libFuzzer does."""
    sys.path.append(str(packages()))
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["agentcore_rl_toolkit", "fuzz", "zipfile"]):
        module = harness(name)
    corpus = cache() / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(module.SEEDS):
        (corpus / f"seed-{number}").write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=4096", "-timeout=20"]
    options += ["-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={cache()}/{name}-"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], module.check)
    atheris.Fuzz()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", choices=(*NAMES, "all"), default="all")
    parser.add_argument("file", nargs="?", type=Path, help="an input to try again")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutate", action="store_true", help="the plain loop, without atheris")
    parser.add_argument("--install", action="store_true")
    given = parser.parse_args()
    if given.install:
        return install()
    names = NAMES if given.name == "all" else (given.name,)
    if given.file is not None:
        harness(names[0]).check(given.file.read_bytes())
        say("nothing is wrong with it")
    elif given.mutate or not (packages() / "atheris").is_dir():
        for name in names:
            module = harness(name)
            tried = mutate.run(module.check, module.SEEDS, given.seed, given.seconds)
            say(f"{name}: {tried} inputs, nothing found (seed {given.seed})")
    elif len(names) == 1:
        guided(names[0], given.seconds, given.seed)
    else:
        own = [sys.executable, "-m", "fuzz"]
        options = ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        return max(subprocess.run([*own, name, *options], check=False).returncode for name in names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
