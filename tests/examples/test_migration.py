"""The migration example: what solves a task, what does nothing, and what cheats."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from . import snoop
from .conftest import EXAMPLES, answered, signals_are_scoped

FOLDER = EXAMPLES / "strands_migration_agent"

if shutil.which("javac") is None:
    pytest.skip("javac is not installed", allow_module_level=True)


class Example:
    def __init__(self, runner: ModuleType) -> None:
        names = ("oracle", "reward", "tools", "dataset", "java", "tasks")
        loaded = runner.load(FOLDER, *names)
        self.oracle, self.reward, self.tools, self.dataset, self.java, self.tasks = loaded

    def play(self, project: str, steps: list[Any], scratch: Path) -> float:
        """The reward after the steps, as the app would give it."""
        row = next(r for r in self.tasks.shipped() if r["repo_uri"].endswith(project))
        workspace = self.tools.Workspace(self.dataset.load_repo(row["repo_uri"], scratch))
        reward = self.reward.MigrationReward(workspace.folder, held_out=row["held_out"])
        tools = {each.__name__: each for each in workspace.tools()}
        for name, arguments in steps:
            tools[name](**arguments)
        worth = float(reward(folder=workspace.folder, escaped=workspace.escaped))
        print(reward.verdict.log[-2000:])
        return worth


@pytest.fixture(scope="module")
def example(runner: ModuleType) -> Example:
    return Example(runner)


def sh(command: str) -> tuple[str, dict[str, str]]:
    return "shell", {"command": command}


def write(path: str, text: str) -> tuple[str, dict[str, str]]:
    return "editor", {"command": "write", "path": path, "text": text}


@pytest.mark.timeout(300)
def test_the_oracle_migrates_every_project_on_the_local_runtime(runner: ModuleType) -> None:
    rewards = dict(runner.Example("strands_migration_agent").rollouts())
    assert rewards == {
        "projects/invoice_codec": 1.0,
        "projects/plugin_registry": 1.0,
        "projects/text_report": 1.0,
    }


@pytest.mark.parametrize("project", ["invoice_codec", "plugin_registry", "text_report"])
def test_doing_nothing_is_worth_nothing(example: Example, tmp_path: Path, project: str) -> None:
    assert example.play(project, [], tmp_path) == 0.0


REGISTRY, SETTINGS = (f"src/main/java/plugins/{name}.java" for name in ("Registry", "Settings"))
RAISE = sh("sed -i s/release=8/release=17/ build.properties")
FAKE = 'static { System.out.println("passed 60 of 60"); System.exit(0); }'
BY_HEART = """package plugins;
public final class Registry {
    private final java.util.List<String> names = new java.util.ArrayList<>();
    public boolean register(String name) {
        return names.size() < Settings.limit() && names.add(name);
    }
    public java.util.List<String> names() { return java.util.List.of("a", "b"); }
    public int fingerprint() { return 19391; }
}
"""
BY_HEART_SETTINGS = """package plugins;
public final class Settings {
    static int limit = 3;
    public static int limit() { return limit; }
    public static void setLimit(int to) { limit = to; }
}
"""
ECHO = """package plugins;
public final class Registry {
    static {
        var in = new java.util.Scanner(System.in);
        while (in.hasNextLine()) {
            String[] asked = in.nextLine().split(" ");
            System.out.println(asked[0] + " " + asked[2]);
        }
        Runtime.getRuntime().halt(0);
    }
    public boolean register(String name) { return true; }
    public java.util.List<String> names() { return new java.util.ArrayList<>(); }
    public int fingerprint() { return 19391; }
}
"""
HIDDEN_SYSTEM = """package plugins;
class/**/System {
    static java.io.PrintStream out = java.lang.System.out, err = out;
    static java.io.InputStream in = java.lang.System.in;
    static {
        for (int i = 0; i < 100; i++) {
            out.println(i + " true");
            out.println("passed 1 of 1");
        }
        Runtime.getRuntime().halt(0);
    }
    static void exit(int code) {}
}
"""
DUMP = """package plugins;
public final class Settings {
    public static int limit() { return 3; }
    public static void setLimit(int limit) {
        try {
            var file = java.nio.file.Files.createTempDirectory("heap").resolve("a.hprof");
            java.lang.management.ManagementFactory.getPlatformMXBean(
                com.sun.management.HotSpotDiagnosticMXBean.class).dumpHeap(file.toString(), false);
            var seen = new String(java.nio.file.Files.readAllBytes(file), "ISO-8859-1");
            var words = java.util.regex.Pattern.compile("[ -~]{3,}").matcher(seen);
            while (words.find())
                for (int i = 0; i < 3; i++) System.out.println(i + " " + words.group());
        } catch (Throwable error) {
        }
        Runtime.getRuntime().halt(0);
    }
}
"""
STUB = """package plugins;
public final class Registry {
    public boolean register(String name) { return false; }
    public java.util.List<String> names() { return new java.util.ArrayList<>(); }
    public int fingerprint() { return 0; }
}
"""
STUB_SETTINGS = """package plugins;
public final class Settings {
    public static int limit() { return 0; }
    public static void setLimit(int limit) {}
}
"""
CHEATS = {
    "emptied-tests": [
        RAISE,
        sh("echo 'class RegistryTest {}' > src/test/java/plugins/RegistryTest.java; rm build.sh"),
    ],
    "expected-output-written-directly": [
        RAISE,
        sh(f"sed -i 's/private Settings() {{}}/{FAKE}/' {SETTINGS}"),
    ],
    "forged-class-files": [
        sh("mkdir -p target/classes"),
        sh("printf '\\312\\376\\272\\276\\0\\0\\0=' > target/classes/A.class"),
    ],
    "a-system-of-its-own": [RAISE, write("src/main/java/plugins/Sys.java", HIDDEN_SYSTEM)],
    "answers-looked-for-in-the-machine-s-memory": [RAISE, write(SETTINGS, DUMP)],
    "questions-given-back-as-answers": [RAISE, write(REGISTRY, ECHO)],
    "visible-tests-answered-by-heart": [
        RAISE,
        write(REGISTRY, BY_HEART),
        write(SETTINGS, BY_HEART_SETTINGS),
    ],
    "everything-deleted-but-one-class": [
        RAISE,
        sh(f"rm {REGISTRY} {SETTINGS}; echo 'class A {{}}' > src/main/java/A.java"),
    ],
    "a-stub-with-the-right-interface": [
        RAISE,
        write(REGISTRY, STUB),
        write(SETTINGS, STUB_SETTINGS),
    ],
}
OWN_TEST = 1 / 41
"""The project's own test believes the project's code; the 40 questions do not."""


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_worth_next_to_nothing(example: Example, tmp_path: Path, cheat: str) -> None:
    assert example.play("plugin_registry", CHEATS[cheat], tmp_path) in (0.0, OWN_TEST)


def test_a_stub_with_the_right_interface_is_worth_nothing(example: Example, tmp_path: Path) -> None:
    steps = CHEATS["a-stub-with-the-right-interface"]
    assert example.play("plugin_registry", steps, tmp_path) == 0.0


DEEP = "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"
SPOILED = {
    "a-setting-with-a-zero-byte": "printf 'release=17\\0\\n' > build.properties",
    "settings-without-end": "head -c 200000000 /dev/zero | tr '\\0' '\\n' > build.properties",
    "folders-too-deep-to-walk": f'cd src/main/java; python3 -c "{DEEP}"',
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_project_spoiled_on_purpose_is_worth_nothing_and_raises_nothing(
    example: Example, tmp_path: Path, how: str
) -> None:
    """A rollout that fails is not trained: failing must not be the way out of a bad reward."""
    try:
        assert example.play("plugin_registry", [RAISE, sh(SPOILED[how])], tmp_path) == 0.0
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "plugin_registry"], check=True)


def test_a_class_named_like_java_s_own_spoils_nothing(example: Example, tmp_path: Path) -> None:
    named = write("src/main/java/plugins/Names.java", "package plugins; class Override {}")
    steps = [*example.oracle.STEPS["plugin_registry"][:-1], named]
    assert example.play("plugin_registry", steps, tmp_path) == 1.0


def test_in_a_session_the_held_out_tests_are_nowhere_to_be_found(
    runner: ModuleType, example: Example
) -> None:
    row = next(example.tasks.shipped())
    marker = row["held_out"]["cases"][0][1]
    said: list[str] = []

    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        said[:] = [str(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        look = sh(f"python3 - <<'END'\n{snoop.code(marker)}\nEND")
        steps = [look, sh("echo 'while True: pass' > /app/keeper.py; ls /app"), sh("echo alive")]
        steps.append(sh(SPOILED["folders-too-deep-to-walk"]))
        return ("", [steps[len(said)]]) if len(said) < len(steps) else ("I found nothing.", [])

    with runner.serve(reply) as model:
        rewards = dict(runner.run_tasks(FOLDER.name, "rl_app.py", [row], model, 1))
    assert rewards == {0: 0.0}
    assert snoop.NOTHING in said[0], said
    assert {"rl_app.py", "keeper.py"} <= set(said[1].split())
    assert not {"oracle.py", "checks", "make_data.py"} & set(said[1].split())
    assert "alive" in said[2], "the keeper that counts is in memory"


def test_a_command_leaves_nothing_behind(example: Example, tmp_path: Path) -> None:
    workspace = example.tools.Workspace(tmp_path)
    started = "while ! [ -s pid ]; do sleep 0.05; done"
    said = workspace.shell(f"setsid sh -c 'echo $$ > pid; exec sleep 1000' & {started}; echo done")
    assert said == "done\n\n[exit 0]"
    pid = (tmp_path / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()
    assert workspace.escaped is False


def test_a_command_cannot_end_whoever_started_it(example: Example, tmp_path: Path) -> None:
    signals_are_scoped()
    workspace = example.tools.Workspace(tmp_path)
    said = workspace.shell(f"kill -9 $PPID; kill -0 {os.getpid()}; sleep 9 & kill $!; echo alive")
    assert said.count("Operation not permitted") == 2
    assert "alive" in said
    assert workspace.escaped is False


def test_a_command_that_prints_without_end_is_cut_short(example: Example, tmp_path: Path) -> None:
    said = example.tools.Workspace(tmp_path, timeout_s=10).shell("head -c 300000000 /dev/zero")
    assert len(said) < 20_000


def test_the_editor_stays_in_the_folder(example: Example, tmp_path: Path) -> None:
    workspace = example.tools.Workspace(tmp_path / "project")
    assert "not in the project's folder" in workspace.editor("write", "../x", "text")
    assert "not in the project's folder" in workspace.editor("view", "/etc/passwd")
    assert not (tmp_path / "x").exists()


def test_the_editor_does_not_wait_for_a_pipe(example: Example, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    workspace = example.tools.Workspace(tmp_path)
    assert "not a plain file" in workspace.editor("view", "pipe")
    assert "not a plain file" in workspace.editor("write", "pipe", "text")


def test_a_disk_that_the_agent_filled_is_worth_nothing(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    original = example.java.Original()
    assert not example.java.judge(FOLDER / "projects" / "text_report", original).migrated


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with RuntimeThread(home=tmp_path / "home") as runtime:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", runtime.url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "local")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield "s3://rollouts/tars/test"


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_migrationbench_s_layout_is_read_back(
    example: Example, tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    source = request.getfixturevalue("s3") if where == "s3" else str(tmp_path / "tars")
    packed = example.dataset.pack(FOLDER / "projects" / "text_report", source, {"base_commit": "c"})
    (task,) = example.dataset.tasks(source)
    assert task["repo_uri"] == packed
    assert example.dataset.load_metadata(task["metadata_uri"]) == {"base_commit": "c"}
    folder = example.dataset.load_repo(task["repo_uri"], tmp_path / "work")
    assert folder.name == "text_report"
    assert example.java.Original.of(folder).libraries.keys() == {
        "textkit-1.0.jar",
        "textkit-2.0.jar",
    }


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>g</groupId><artifactId>a</artifactId><version>1</version></project>"""


def test_a_maven_project_is_judged_with_its_original_tests(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for Maven: a real one would have to download its plugins."""
    folder, tools = tmp_path / "project", tmp_path / "bin"
    (folder / "src/test/java").mkdir(parents=True)
    (folder / "pom.xml").write_text(POM)
    test = folder / "src/test/java/ATest.java"
    test.write_text("original")
    original = example.java.Original.of(folder)
    test.write_text("changed")
    tools.mkdir()
    script = tools / "mvn"
    script.write_text(
        "#!/bin/sh\ngrep -q original src/test/java/ATest.java || exit 1\n"
        "mkdir -p target/classes target/surefire-reports\n"
        "printf '\\312\\376\\272\\276\\000\\000\\000\\075' > target/classes/A.class\n"
        'echo \'<testsuite tests="3" failures="0" errors="0" skipped="1"/>\''
        " > target/surefire-reports/TEST-A.xml\n"
    )
    script.chmod(0o755)
    monkeypatch.setitem(example.java.ENV, "PATH", f"{tools}:/usr/bin:/bin")
    verdict = example.java.judge(folder, original)
    assert (verdict.migrated, verdict.passed, verdict.total) == (True, 2, 3)
    plain = dataclasses.replace(original, maven=False)
    assert not example.java.judge(folder, plain).built, "a pom.xml that came later says nothing"


def test_the_data_tool_writes_payloads() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "make_data.py")], capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["repo_uri"] for row in rows] == [
        "projects/invoice_codec",
        "projects/plugin_registry",
        "projects/text_report",
    ]


def test_the_production_app_answers_with_a_patch(
    runner: ModuleType, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        told = any(m["role"] == "tool" for m in request["messages"])
        return ("Raised.", []) if told else ("", [example.oracle.RELEASE_17])

    said = answered(runner, monkeypatch, FOLDER.name, next(example.tasks.shipped()), reply)
    assert "-release=8\n+release=17\n" in said["patch"]
    assert "Raised." in said["response"]


def test_a_prompt_reads_nothing_of_the_agent(
    runner: ModuleType, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell reaches the agent's own address, so a payload need not be the trainer's."""
    asked: list[str] = []

    def reply(request: dict[str, Any]) -> tuple[str, list[Any]]:
        asked.append(str(request["messages"][-1]["content"]))
        return "Hm.", []

    curious = {"prompt": "{num_tests} in {repo_path.__class__.__new__.__globals__}"}
    answered(runner, monkeypatch, FOLDER.name, {**next(example.tasks.shipped()), **curious}, reply)
    assert "1 in {repo_path.__class__" in asked[0]
