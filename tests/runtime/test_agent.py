from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime import agent
from agentcore_rl_toolkit.runtime.agent import (
    agent_of,
    check_variables,
    copy_folder,
    limits_of,
    parse_uri,
    remove_leftovers,
    unpack_zip,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "lib").mkdir(parents=True)
    (source / "rl_app.py").write_text("app = 1\n")
    (source / "lib" / "tool.py").write_text("tool = 1\n")
    return source


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def zipped(tmp_path: Path, members: dict[str, str], after: bytes = b"") -> tuple[int, int]:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as packed:
        for name, text in members.items():
            packed.writestr(name, text)
    path = tmp_path / "code.zip"
    path.write_bytes(raw.getvalue() + after)
    return os.open(path, os.O_RDONLY), len(raw.getvalue())


def test_a_uri_names_folder_and_entry(folder: Path) -> None:
    assert parse_uri(f"{folder.as_uri()}#lib/tool.py") == (folder, "lib/tool.py")
    assert parse_uri(folder.as_uri()) == (folder, "rl_app.py")


@pytest.mark.parametrize(
    "uri",
    [
        "000000000000.dkr.ecr.us-east-1.amazonaws.com/agent:1",
        "file://elsewhere/agent#rl_app.py",
        "file:///does/not/exist#rl_app.py",
        "file:///tmp#../rl_app.py",
        "file:///tmp#/etc/rl_app.py",
        "file:///tmp#.",
        "file:///tmp#a%0Ab",
    ],
)
def test_a_uri_of_anything_else_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError):
        parse_uri(uri)


def test_a_copy_leaves_out_history_environments_and_caches(folder: Path, tmp_path: Path) -> None:
    for name in (".git", "__pycache__", ".venv", "lib/__pycache__", "env"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file.py").write_text("")
    (folder / "env" / "pyvenv.cfg").write_text("")
    copy_folder(folder, tmp_path / "copy" / "1", "rl_app.py")
    assert files(tmp_path / "copy" / "1") == ["lib/tool.py", "rl_app.py"]


def test_a_copy_leaves_out_what_the_agent_s_dockerignore_names(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("oracle.py", "data/a.json", "data/keep.json", "lib/deep/answer.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".dockerignore").write_text(
        "# not for the agent\n\n/oracle.py\n.dockerignore\ndata/\n!data/keep.*\n**/answer.tx?\n"
    )
    copy_folder(folder, tmp_path / "copy", "rl_app.py")
    assert files(tmp_path / "copy") == ["data/keep.json", "lib/tool.py", "rl_app.py"]


def test_an_entry_that_is_left_out_is_an_error(folder: Path, tmp_path: Path) -> None:
    (folder / ".dockerignore").write_text("*.py\n")
    with pytest.raises(ConfigError, match="leaves out the entry"):
        copy_folder(folder, tmp_path / "copy", "rl_app.py")


def test_a_copy_does_not_follow_later_changes(folder: Path, tmp_path: Path) -> None:
    copy_folder(folder, tmp_path / "copy", "rl_app.py")
    (folder / "rl_app.py").write_text("app = 2\n")
    assert (tmp_path / "copy" / "rl_app.py").read_text() == "app = 1\n"


def test_links_that_lead_out_of_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="link"):
        copy_folder(folder, tmp_path / "copy", "rl_app.py")
    assert not list(tmp_path.glob("copy*"))


def test_links_inside_the_folder_become_files(folder: Path, tmp_path: Path) -> None:
    (folder / "same.py").symlink_to("rl_app.py")
    copy_folder(folder, tmp_path / "copy", "rl_app.py")
    assert (tmp_path / "copy" / "same.py").read_text() == "app = 1\n"
    assert not (tmp_path / "copy" / "same.py").is_symlink()


def test_a_linked_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "all").symlink_to("/")
    with pytest.raises(ConfigError, match="link to a folder"):
        copy_folder(folder, tmp_path / "copy", "rl_app.py")


def test_a_missing_entry_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no entry script other\.py"):
        copy_folder(folder, tmp_path / "copy", "other.py")


def test_a_folder_that_is_too_large_is_refused_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "MAX_FOLDER_BYTES", 10)
    with pytest.raises(ConfigError, match="more than"):
        copy_folder(folder, tmp_path / "copy", "rl_app.py")
    assert not list(tmp_path.glob("copy*"))


def test_an_archive_is_unpacked_without_what_follows_it(tmp_path: Path) -> None:
    file, size = zipped(tmp_path, {"rl_app.py": "app = 1", "lib/a.py": ""}, after=b"record")
    unpack_zip(file, size, tmp_path / "copy", "rl_app.py")
    assert files(tmp_path / "copy") == ["lib/a.py", "rl_app.py"]


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py", "a/../../out.py", "a\\..\\out.py"])
def test_an_archive_whose_members_climb_is_refused(tmp_path: Path, name: str) -> None:
    file, size = zipped(tmp_path, {"rl_app.py": "", name: "out"})
    with pytest.raises(ConfigError, match="leads out"):
        unpack_zip(file, size, tmp_path / "copy", "rl_app.py")
    assert not list(tmp_path.glob("copy*"))


def test_an_archive_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"not a zip")
    with pytest.raises(ConfigError, match="not a zip"):
        unpack_zip(os.open(tmp_path / "bad", os.O_RDONLY), 9, tmp_path / "copy", "rl_app.py")


def test_leftovers_of_a_killed_runtime_are_removed(tmp_path: Path) -> None:
    for name in ("kept-1/1", "kept-1/2", "kept-1/3.partial", "gone-1/1"):
        (tmp_path / name).mkdir(parents=True)
    remove_leftovers(tmp_path, [("kept-1", "1")])
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/*")] == ["kept-1/1"]
    assert not (tmp_path / "gone-1").exists()


def make(variables: dict[str, str]) -> agent.Agent:
    return agent_of(
        "agent-1",
        "1",
        Path("/agents/agent-1/1"),
        "rl_app.py",
        variables,
        endpoint_url="http://127.0.0.1:1",
        isolation="process",
        init_timeout_s=3,
    )


def test_a_session_sees_nothing_of_the_hosts_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    env = make({"MINE": "2"}).env
    assert "SECRET_OF_THE_HOST" not in env
    assert env["AWS_ACCESS_KEY_ID"] == "local"
    assert env["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:1"
    assert env["MINE"] == "2"


def test_art_variables_set_how_sessions_run() -> None:
    made = make(
        {
            "ART_ISOLATION": "namespace",
            "ART_NETWORK": "allowlist",
            "ART_ALLOW": "a.example, b.example",
            "ART_ZYGOTE": "0",
            "ART_PYTHON": "/usr/bin/python3",
        }
    )
    assert (made.isolation, made.network, made.zygote) == ("namespace", "allowlist", False)
    assert made.allow == ("a.example", "b.example")
    assert made.python == "/usr/bin/python3"
    assert make({}).isolation == "process"


@pytest.mark.parametrize(
    "variables",
    [{"ART_ISOLATION": "strong"}, {"ART_NETWORK": "all"}, {"ART_PYTHON": "/no/python"}],
)
def test_settings_no_session_could_have_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="ART_"):
        check_variables(variables)


def test_a_variable_that_only_looks_like_a_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean ART_NETWORK"):
        check_variables({"ART_NETWROK": "none"})
    with pytest.raises(ConfigError, match="there are ART_ALLOW, "):
        check_variables({"ART_XYZ": "1"})
    check_variables({"MY_ART_XYZ": "1"})


@pytest.mark.parametrize(
    ("text", "asked", "memory", "disk"),
    [
        ("", 0, 1024, 256),
        ("", 512, 1024, 256),
        ("", 4096, 4096, 256),
        ("memory_mb=2048, disk_mb=1000", 0, 2048, 1000),
        ("memory_mb=512", 0, 512, 256),
    ],
)
def test_limits_are_the_usual_ones_unless_named(
    text: str, asked: int, memory: int, disk: int
) -> None:
    found = limits_of(text, asked)
    assert (found.memory_mb, found.disk_mb) == (memory, disk)


@pytest.mark.parametrize("text", ["ram=5", "memory_mb", "memory_mb=0", "cpus=x", "cpus=nan", "a"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ART_LIMITS"):
        limits_of(text)


def test_an_archive_whose_program_cannot_be_started_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nor executable"):
        unpack_zip(*zipped(tmp_path, {"start": "#!/bin/sh"}), tmp_path / "copy", "start")


def test_runs_in_an_agents_folder_are_not_part_of_it(tmp_path: Path) -> None:
    run = tmp_path / "agent" / "runs" / "20260101-120000-agent"
    (run / "turns").mkdir(parents=True)
    (run / "config.yaml").write_text("agent: {}")
    (run / "latest").symlink_to(run / "turns", target_is_directory=True)
    (tmp_path / "agent" / "rl_app.py").write_text("")
    assert [path.name for path in agent._walk(tmp_path / "agent")] == ["rl_app.py"]
