"""The container of an agent: ARM64, not root, small; in the layout of the ``agentcore`` command.

``.bedrock_agentcore/NAME/`` in the agent's folder holds the Dockerfile and what it copies. A
Dockerfile that is there already is its author's and stays.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from ..errors import ConfigError
from ..runtime import ignore
from . import package
from .package import OWN_LEFT_OUT, PYTHON, requirements_of, toolkit_files

LAYOUT = ".bedrock_agentcore"
SCRIPT = Path(__file__).with_name("build_docker_image_and_push_to_ecr.sh")

DOCKERFILE = """\
FROM --platform=linux/arm64 public.ecr.aws/docker/library/python:{python}-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/opt/toolkit DOCKER_CONTAINER=1
RUN useradd --create-home --uid 1000 agent
WORKDIR /app

COPY {here}/requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir -r /tmp/requirements.txt
COPY {here}/toolkit /opt/toolkit
COPY . .

USER agent
EXPOSE 8080
CMD ["python", "{entry}"]
"""


def dockerfile_of(folder: Path, name: str) -> Path:
    return folder / LAYOUT / name / "Dockerfile"


def dockerfile_text(folder: Path, name: str, entry: str) -> str:
    """The text of the one that is there, else of ours."""
    path = dockerfile_of(folder, name)
    if path.exists():
        return path.read_text(encoding="utf-8")
    here = path.parent.relative_to(folder)
    return DOCKERFILE.format(python=PYTHON, here=here, entry=entry)


def digest(folder: Path, name: str, entry: str) -> str:
    """Of the agent and of how its image is built."""
    text = f"{package.digest(folder)} {dockerfile_text(folder, name, entry)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(folder: Path, name: str, entry: str) -> Path:
    """Everything that the build needs; returns the Dockerfile."""
    path = dockerfile_of(folder, name)
    place = path.parent
    place.mkdir(parents=True, exist_ok=True)
    wanted = requirements_of(folder)
    (place / "requirements.txt").write_text(wanted.text())
    shutil.rmtree(place / "toolkit", ignore_errors=True)
    for inside, source in toolkit_files():
        copy = place / "toolkit" / inside
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    # a name that BuildKit reads for this Dockerfile alone
    ignored = ignore.lines_of(folder)
    ignored += [f"**/{one}" for one in sorted(OWN_LEFT_OUT - {LAYOUT})]
    ignored += [f"{LAYOUT}/*", f"!{LAYOUT}/{name}"]
    (place / "Dockerfile.dockerignore").write_text("\n".join(ignored) + "\n")
    path.write_text(dockerfile_text(folder, name, entry), encoding="utf-8")
    return path


def build_and_push(
    dockerfile: Path, folder: Path, tag: str, *, region: str, account: str, repository: str
) -> None:
    """By the script, whose output the user sees; ConfigError when it fails."""
    command = ["bash", str(SCRIPT), f"--dockerfile={dockerfile}", f"--tag={tag}"]
    command += [f"--context={folder}", f"--region={region}", f"--account={account}"]
    command += [f"--repo={repository}"]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise ConfigError(
            "the image could not be built and pushed; the lines above say why. Without Docker, "
            "deploy as code: leave --container out"
        )
