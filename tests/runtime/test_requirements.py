"""What is read from an agent's folder, and what of it is already there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.requirements import Requirements, find, interpreter, unmet

from .packing import wheel

EXAMPLES = Path(__file__).parents[2] / "examples"


def listed(folder: Path, text: str) -> Requirements | None:
    (folder / "requirements.txt").write_text(text)
    return find(folder)


def test_an_agent_that_says_nothing_needs_nothing(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert listed(tmp_path, "# nothing yet\n\n") is None


def test_the_toolkit_is_never_asked_for(tmp_path: Path) -> None:
    assert listed(tmp_path, "agentcore_rl_toolkit[local] >= 0.1\n") is None


def test_lines_options_and_included_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("requests>=2  # for the tools\n-r requirements.txt\n")
    (tmp_path / "pins.txt").write_text("urllib3<3\n")
    made = wheel(tmp_path, "own")
    found = listed(
        tmp_path,
        "-r base.txt\n-c pins.txt\n--index-url=https://index.example/simple\n-f ./\n"
        "numpy>=1 \\\n  ; python_version >= '3.8'\npandas==2.0 --hash=sha256:00\n"
        "./own-1.0-py3-none-any.whl\nfar @ https://example.com/far-1-py3-none-any.whl#sha256=0\n",
    )
    assert found is not None
    assert found.lines == (
        "requests>=2",
        "numpy>=1    ; python_version >= '3.8'",
        "pandas==2.0 --hash=sha256:00",
        str(made),
        "far @ https://example.com/far-1-py3-none-any.whl#sha256=0",
    )
    assert found.options == ("--index-url=https://index.example/simple", f"--find-links {tmp_path}")
    assert found.constraints == ("urllib3<3",)


def test_dependencies_of_a_project_are_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\ndependencies = ["x>=1"]\n')
    assert find(tmp_path) == Requirements("pyproject.toml", ("x>=1",))
    (tmp_path / "requirements.txt").write_text("y\n")
    assert find(tmp_path) == Requirements("requirements.txt", ("y",))


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        ".",
        "./tools",
        "git+https://example.com/x.git",
        "x @ git+https://example.com/x.git",
        "x @ https://example.com/x-1.tar.gz",
        "x @ file:///tmp/x",
        "--no-binary :all:",
        "--config-settings a=b",
        "-r ../elsewhere.txt",
        "-r missing.txt",
        "./missing-1-py3-none-any.whl",
    ],
)
def test_what_would_be_built_or_lies_outside_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path.parent / "elsewhere.txt").write_text("x\n")
    with pytest.raises(ConfigError, match=r"\.txt"):
        listed(tmp_path, f"requests\n{line}\n")


def test_a_constraint_cannot_bring_in_source_code(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("x @ https://example.com/x-1.tar.gz\n")
    with pytest.raises(ConfigError, match="would have to be built"):
        listed(tmp_path, "x\n-c pins.txt\n")


def test_a_broken_project_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml cannot be read"):
        find(tmp_path)


CASES = [
    pytest.param("boto3", True, id="there"),
    pytest.param("boto3>=1.40,<99", True, id="in the range"),
    pytest.param("boto3<1", False, id="too new"),
    pytest.param("no-such-package-at-all", False, id="not there"),
    pytest.param("no-such-package-at-all; python_version < '3'", True, id="not for this Python"),
    pytest.param("strands-agents[openai]", True, id="an extra that is there"),
    pytest.param("strands_agents", True, id="another spelling"),
    pytest.param("/somewhere/x-1-py3-none-any.whl", False, id="a wheel of its own"),
]


@pytest.mark.parametrize(("line", "met"), CASES)
def test_what_is_installed_is_not_missed(line: str, met: bool) -> None:
    found = unmet(Requirements("requirements.txt", (line,)), interpreter(None))
    assert (found == []) is met


def test_an_extra_that_is_not_installed_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcore_rl_toolkit.runtime import requirements
    from agentcore_rl_toolkit.runtime.requirements import Installed

    have = {"tool": Installed("1.0", ["always", 'speech; extra == "voice"'])}
    where = interpreter(None)._replace(look_up=have.get)
    assert unmet(Requirements("r", ("tool",)), where) == []
    assert unmet(Requirements("r", ("tool[voice]",)), where) == ["tool[voice]"]
    have["speech"] = requirements.Installed("1.0", [])
    assert unmet(Requirements("r", ("tool[voice]",)), where) == []


def test_another_interpreter_is_asked_for_its_packages(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    found = interpreter(str(other))
    assert unmet(Requirements("r", ("no-such-package-at-all",)), found) != []
    assert found.identity != interpreter(None).identity
    with pytest.raises(ConfigError, match="cannot be used"):
        interpreter("/bin/false")


def test_the_example_costs_nothing() -> None:
    found = find(EXAMPLES / "strands_math_agent")
    assert found is not None
    assert unmet(found, interpreter(None)) == []
