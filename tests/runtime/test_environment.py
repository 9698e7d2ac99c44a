"""Packages for agents: installed once, complete or not at all, and nothing of them is run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_rl_toolkit import local
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime import environment, isolation
from agentcore_rl_toolkit.runtime.build import in_sandbox
from agentcore_rl_toolkit.runtime.requirements import (
    Interpreter,
    Requirements,
    find,
    interpreter,
)

from .conftest import ASGI_AGENT, Aws, until
from .packing import source, wheel


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip can find."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("ART_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def agent(tmp_path: Path) -> Callable[[str], Path]:
    def make(requirements: str) -> Path:
        folder = tmp_path / "agent"
        folder.mkdir(exist_ok=True)
        (folder / "requirements.txt").write_text(requirements)
        return folder

    return make


def install(folder: Path, **options: object) -> Path | None:
    return environment.for_agent(folder, None, lambda _: None, **options)  # type: ignore[arg-type]


def left() -> list[str]:
    return sorted(p.name for p in (local.home() / "environments").iterdir() if p.is_dir())


def test_wheels_are_installed_once_and_found_again(
    links: Path, agent: Callable[[str], Path]
) -> None:
    wheel(links, "greeting", requires=("politeness",), greeting="WORD = 'hello'\n")
    wheel(links, "politeness", politeness="")
    folder = agent("greeting\n")
    first = install(folder)
    assert first is not None
    assert {"greeting.py", "politeness.py"} <= {path.name for path in first.iterdir()}
    for archive in links.iterdir():
        archive.unlink()
    assert install(folder) == first, "from the cache: there is nothing to install from"
    assert left() == [first.parent.name]


def empty(wanted: Requirements, _: Interpreter, target: Path, __: object) -> None:
    (target / f"{wanted.lines[0]}.py").touch()


def test_environments_that_nobody_uses_are_removed_but_for_the_last_used(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "KEPT", 2)
    where = interpreter(None)
    made: dict[str, Path] = {}

    def ensure(name: str, used: float) -> None:
        wanted = Requirements("requirements.txt", (name,))
        made[name] = environment.ensure(wanted, where, print, empty)
        os.utime(made[name], (used, used))

    for used, name in enumerate(("held", "named")):
        ensure(name, used)
    held = environment.hold(str(made["held"]))
    os.utime(made["held"], (0, 0))
    assert held is not None
    registry = local.home() / "runtime" / "registry.jsonl"
    registry.parent.mkdir()
    registry.write_text(json.dumps({"ART_PACKAGES": str(made["named"])}))
    for used, name in enumerate(("first", "second", "third"), start=2):
        ensure(name, used)
    kept = ("held", "named", "second", "third")
    assert left() == sorted(made[name].parent.name for name in kept)
    assert not made["first"].parent.with_suffix(".lock").exists()
    os.close(held)
    registry.unlink()
    ensure("first", 5)
    assert left() == sorted(made[name].parent.name for name in ("first", "third"))


def test_packages_of_a_prepared_agent_are_held(
    aws: Aws, links: Path, monkeypatch: pytest.MonkeyPatch, sid: str
) -> None:
    monkeypatch.setattr(environment, "KEPT", 0)
    where = interpreter(None)
    made = environment.ensure(Requirements("requirements.txt", ("mine",)), where, print, empty)
    assert not made.exists(), "none is kept, and nobody uses it"
    monkeypatch.setattr(environment, "KEPT", 1)
    made = environment.ensure(Requirements("requirements.txt", ("mine",)), where, print, empty)
    arn = aws.deploy(environmentVariables={"ART_PACKAGES": str(made)})
    aws.ask(arn, {}, sid)
    monkeypatch.setattr(environment, "KEPT", 0)
    environment.prune(local.home() / "environments")
    assert made.is_dir()
    aws.stop(arn, sid)
    aws.control.delete_agent_runtime(agentRuntimeId=arn.rpartition("/")[2])

    def removed() -> bool:
        environment.prune(local.home() / "environments")
        return not made.exists()

    until(removed, "it is removed once the agent is")


def test_what_is_installed_already_needs_no_environment(
    links: Path, agent: Callable[[str], Path]
) -> None:
    assert install(agent("boto3\n")) is None
    assert not (local.home() / "environments").exists()


def test_others_may_read_it_whatever_the_umask(links: Path, agent: Callable[[str], Path]) -> None:
    wheel(links, "greeting", greeting="")
    before = os.umask(0o077)
    try:
        made = install(agent("greeting\n"))
    finally:
        os.umask(before)
    assert made is not None
    for path in (made, made.parent, made / "greeting.py"):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_source_is_never_built_on_the_host(
    links: Path, agent: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    source(links, "evil", trace)
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # "0" is how pip is told: none
    with pytest.raises(ConfigError, match=r"no wheel of 'evil'.*art deploy --build"):
        install(agent("evil\n"))
    assert not trace.exists()
    assert left() == []


def test_a_wheel_cannot_make_pip_build_what_it_points_at(
    links: Path, agent: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--only-binary`` alone does not hold for addresses."""
    trace = tmp_path / "trace"
    evil = source(tmp_path, "evil", trace)
    wheel(links, "bait", requires=(f"evil @ {evil.as_uri()}",), bait="")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    with pytest.raises(ConfigError, match="--build"):
        install(agent("bait\n"))
    assert not trace.exists()


def test_what_is_missing_is_named(links: Path, agent: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match=r"requirements\.txt: no wheel of 'no-such-thing==3'"):
        install(agent("no-such-thing==3\n"))
    assert left() == []


def test_a_broken_wheel_leaves_no_half_made_environment(
    links: Path, agent: Callable[[str], Path]
) -> None:
    wheel(links, "whole", whole="")
    (links / "broken-1.0-py3-none-any.whl").write_bytes(b"not a zip")
    with pytest.raises(ConfigError, match="pip said"):
        install(agent("whole\nbroken\n"))
    assert left() == []


def test_an_interrupted_install_is_replaced(links: Path, agent: Callable[[str], Path]) -> None:
    wheel(links, "greeting", greeting="")
    folder = agent("greeting\n")

    def killed(_: Requirements, __: Interpreter, target: Path, ___: environment.Show) -> None:
        (target / "half.py").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(folder, install=killed)
    made = install(folder)
    assert made is not None
    assert not (made / "half.py").exists()


def test_deployments_of_the_same_share_one_install(
    links: Path, agent: Callable[[str], Path]
) -> None:
    folder = agent("greeting\n")
    count, entered, finish = [0], threading.Event(), threading.Event()

    def slow(_: Requirements, __: Interpreter, target: Path, ___: environment.Show) -> None:
        count[0] += 1
        entered.set()
        finish.wait(20)
        (target / "greeting.py").write_text("")

    said: list[str] = []
    made: list[Path | None] = []

    def deploy() -> None:
        made.append(environment.for_agent(folder, None, said.append, slow))

    threads = [threading.Thread(target=deploy) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    while sum("waiting for another" in line for line in said) < 2:
        threads[0].join(0.01)
    finish.set()
    for thread in threads:
        thread.join()
    assert count == [1]
    assert len(set(made)) == 1


def found(folder: Path) -> Requirements:
    read = find(folder)
    assert read is not None
    return read


def test_a_wheel_of_the_agents_own_that_changes_is_installed_again(
    agent: Callable[[str], Path],
) -> None:
    folder = agent("./own-1.0-py3-none-any.whl\n")
    wheel(folder, "own", own="VALUE = 1\n")
    before = environment.digest(found(folder), interpreter(None))
    assert environment.digest(found(folder), interpreter(None)) == before
    wheel(folder, "own", own="VALUE = 2\n")
    assert environment.digest(found(folder), interpreter(None)) != before


# --- in sessions ------------------------------------------------------------------------------

USES = """
import greeting
EXTRA = greeting.WORD
"""


def test_a_session_imports_what_was_installed_and_its_programs_do_too(
    aws: Aws, links: Path, tmp_path: Path, sid: str
) -> None:
    wheel(links, "greeting", greeting="WORD = 'hello'\n")
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "requirements.txt").write_text("greeting\n")
    (folder / "rl_app.py").write_text(USES + ANSWER)
    packages = install(folder)
    variables = {"ART_PACKAGES": str(packages)}
    for extra in ({}, {"ART_ZYGOTE": "0"}, {"ART_ISOLATION": "process"}):
        arn = aws.deploy(folder, environmentVariables={**variables, **extra})
        said = aws.ask(arn, {}, sid)
        assert said["word"] == said["program"] == "hello", extra
        assert said["toolkit"], "the runtime's own packages come after"


ANSWER = """
import json, subprocess, sys, uvicorn

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    program = [sys.executable, "-c", "import greeting; print(greeting.WORD, end='')"]
    import agentcore_rl_toolkit
    answer = {"word": EXTRA, "toolkit": agentcore_rl_toolkit.__version__}
    if scope["path"] != "/ping":
        answer["program"] = subprocess.run(program, capture_output=True, text=True).stdout
    data = json.dumps(answer).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": data})

if __name__ == "__main__":
    uvicorn.run(app, port=8080, log_level="warning")
"""


def test_what_was_installed_runs_nothing_outside_the_sandbox(
    aws: Aws, links: Path, tmp_path: Path, sid: str
) -> None:
    """An interpreter imports ``sitecustomize`` and runs ``.pth`` files as soon as it starts."""
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'a').write('ran')"
    safe = f"try: {code}\nexcept OSError: pass\n"
    wheel(links, "greeting", greeting="WORD = 'hello'\n", sitecustomize=safe)
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "requirements.txt").write_text("greeting\n")
    (folder / "rl_app.py").write_text(USES + ANSWER)
    packages = install(folder)
    assert packages is not None
    (packages / "evil.pth").write_text(f"import os; exec({safe!r})\n")
    if isolation.select("auto").level != "namespace":
        pytest.skip("only level namespace keeps an agent's code off the host")
    arn = aws.deploy(folder, environmentVariables={"ART_PACKAGES": str(packages)})
    assert aws.ask(arn, {}, sid)["program"] == "hello"
    assert not trace.exists()


def test_packages_that_are_gone_are_told(aws: Aws, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    with pytest.raises(aws.control.exceptions.ValidationException, match="ART_PACKAGES"):
        aws.create(ASGI_AGENT, environmentVariables={"ART_PACKAGES": str(folder / "none")})


def test_source_is_built_inside_the_sandbox_when_that_is_asked_for(
    links: Path, agent: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = isolation.drivers()["namespace"].probe()
    if not probe.available:
        pytest.skip(probe.reason)
    if subprocess.run([sys.executable, "-c", "import setuptools"], capture_output=True).returncode:
        pytest.skip("needs setuptools to build with")
    trace = tmp_path / "trace"
    source(links, "homemade", trace)
    wheel(links, "greeting", greeting="")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # "0" is how pip is told: none
    said: list[str] = []
    made = environment.for_agent(agent("homemade\ngreeting\n"), None, said.append, in_sandbox)
    assert made is not None
    assert (made / "homemade.py").read_text() == "NAME = 'homemade'\n"
    assert (made / "greeting.py").exists()
    assert not trace.exists(), "its setup.py ran, but not here"
    assert any("homemade" in line for line in said)


def test_a_build_that_fails_says_what_pip_said(
    links: Path, agent: Callable[[str], Path], tmp_path: Path
) -> None:
    probe = isolation.drivers()["namespace"].probe()
    if not probe.available:
        pytest.skip(probe.reason)
    with pytest.raises(ConfigError, match=r"in the sandbox:[\s\S]*no-such-thing"):
        install(agent("no-such-thing\n"), install=in_sandbox)
    assert left() == []


# --- as a user types it -----------------------------------------------------------------------


def test_deploying_installs_and_says_so(
    aws: Aws, links: Path, agent: Callable[[str], Path], sid: str
) -> None:
    wheel(links, "greeting", greeting="WORD = 'hello'\n")
    folder = agent("greeting\n")
    (folder / "rl_app.py").write_text(USES + ANSWER)
    command = [sys.executable, "-m", "agentcore_rl_toolkit.cli.main", "deploy", str(folder)]
    done = subprocess.run(
        [*command, "--local", "--endpoint", aws.url, "--name", f"needs_{sid[:8]}"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "greeting not installed here" in done.stderr
    arn = re.search(r"arn:aws:\S+", done.stdout)
    assert arn is not None
    aws.created.append(local.parse_arn(arn[0]).runtime_id)
    assert json.dumps(aws.ask(arn[0], {}, sid)).count("hello") == 2
