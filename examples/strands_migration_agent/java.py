"""Builds a Java project and asks it questions, with the JDK's own tools or with Maven.

Invariant: of the project only its sources and its build file count; tests and libraries are the
``Original``'s, taken before anybody could change them. A virtual machine that runs the project's
code is believed nothing but values: whether they are right is decided here, where it cannot reach.
"""

from __future__ import annotations

import shutil
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import kept

MAJOR = 61
"""Of class files for Java 17."""
BUILD_S, PROGRAM_S = 600.0, 60.0
"""How long a compiler or Maven may take, and a test."""
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "MAVEN_SKIP_RC": "1"}
MAX_SETTINGS_BYTES = 1 << 16
SPOILED = (OSError, ValueError, RecursionError, ElementTree.ParseError)
"""A disk that the agent has filled, names and folders that no tool takes, a report of its own."""
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""Small heaps and little optimisation: these programs live for a second."""


@dataclass
class HeldOut:
    """Questions that nothing in the project's folder knows."""

    probe: dict[str, str] = field(default_factory=dict)
    """Java sources: a ``Probe`` reads questions, each a line, and prints the project's answers."""
    cases: list[tuple[str, str]] = field(default_factory=list)
    """Questions and what is right to answer."""


@dataclass
class Original:
    """What the reward needs of a project as it was: tests and Maven's options, libraries."""

    tests: dict[str, bytes] = field(default_factory=dict)
    libraries: dict[str, bytes] = field(default_factory=dict)
    held_out: HeldOut = field(default_factory=HeldOut)
    maven: bool = False

    @classmethod
    def of(cls, folder: Path, held_out: HeldOut | None = None) -> Original:
        return cls(
            {
                str(p.relative_to(folder)): p.read_bytes()
                for pattern in ("**/src/test/**/*", ".mvn/**/*")
                for p in _files(folder, pattern)
            },
            {p.name: p.read_bytes() for p in _files(folder, "repository/*.jar")},
            held_out or HeldOut(),
            (folder / "pom.xml").is_file(),
        )


@dataclass
class Verdict:
    """What a build gave."""

    built: bool = False
    majors: set[int] = field(default_factory=set)
    passed: int = 0
    total: int = 0
    log: str = ""

    @property
    def migrated(self) -> bool:
        return self.built and self.majors == {MAJOR}


def judge(folder: Path, original: Original) -> Verdict:
    how = _maven if original.maven else _javac  # as it was: a file makes no project Maven's
    try:
        with tempfile.TemporaryDirectory(prefix="build-", ignore_cleanup_errors=True) as scratch:
            return how(folder, original, Path(scratch))
    except SPOILED as error:
        return Verdict(log=repr(error))


# --- the JDK's own tools ---------------------------------------------------------------------


def _javac(folder: Path, original: Original, scratch: Path) -> Verdict:
    """Built means that the tests fit as well: a project without its classes is none."""
    verdict = Verdict()
    settings = _settings(folder / "build.properties")
    jars = [name for name in settings.get("libraries", "").split() if name in original.libraries]
    _put(scratch / "lib", {name: original.libraries[name] for name in jars})
    classes, tests = scratch / "classes", scratch / "tests"
    path = ":".join([str(classes), *(str(scratch / "lib" / name) for name in jars)])
    sources = _files(folder, "src/main/java/**/*.java")
    if not _compile(sources, classes, path, settings.get("release", "8"), verdict):
        return verdict
    verdict.majors = {major(file) for file in classes.rglob("*.class")}
    if verdict.majors != {MAJOR}:
        verdict.log += f"class files are of version {sorted(verdict.majors)}"
        return verdict
    ours = {name.partition("src/test/java/")[2]: text for name, text in original.tests.items()}
    ours |= {name: text.encode() for name, text in original.held_out.probe.items()}
    _put(scratch / "test-sources", ours)
    files = _files(scratch / "test-sources", "**/*.java")
    verdict.built = _compile(files, tests, path, "17", verdict)
    if verdict.built:
        path = f"{tests}:{path}"
        _run_tests([name for name in sorted(ours) if name.endswith("Test.java")], path, verdict)
        _ask(original.held_out, path, verdict)
    return verdict


def _compile(sources: list[Path], into: Path, path: str, release: str, verdict: Verdict) -> bool:
    if not sources:
        verdict.log += "there are no sources"
        return False
    command = ["javac", *(f"-J{option}" for option in QUICK), "-proc:none", "-nowarn"]
    command += ["--release", release, "-cp", path, "-d", str(into), *map(str, sources)]
    code, output = _run(command, into.parent)
    verdict.log += output
    return code == 0


def _run_tests(names: list[str], path: str, verdict: Verdict) -> None:
    """The project's own; its code can say that they pass, which answers no question."""
    for name in names:
        command = ["java", *QUICK, "-cp", path, _class(name)]
        code, output = _run(command, Path("/"), timeout_s=PROGRAM_S)
        verdict.log += output
        verdict.passed += code == 0
        verdict.total += 1


def _ask(held_out: HeldOut, path: str, verdict: Verdict) -> None:
    for name in held_out.probe:
        asked = "".join(f"{n} {question}\n" for n, (question, _) in enumerate(held_out.cases))
        command = ["java", *QUICK, "-cp", path, _class(name)]
        _, output = _run(command, Path("/"), asked.encode(), PROGRAM_S)
        said = dict(line.partition(" ")[::2] for line in output.splitlines())
        right = [said.get(str(n)) == answer for n, (_, answer) in enumerate(held_out.cases)]
        verdict.log += f"{sum(right)} of {len(right)} questions answered rightly\n"
        verdict.passed += sum(right)
        verdict.total += len(right)


def _class(file: str) -> str:
    return file.removesuffix(".java").replace("/", ".")


def major(file: Path) -> int:
    head = file.read_bytes()[:8]
    return int.from_bytes(head[6:8], "big") if head[:4] == b"\xca\xfe\xba\xbe" else 0


def _settings(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    with file.open("rb") as opened:
        text = opened.read(MAX_SETTINGS_BYTES).decode(errors="replace")
    lines = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip().strip('"') for name, _, value in lines}


# --- Maven -----------------------------------------------------------------------------------


def _maven(folder: Path, original: Original, scratch: Path) -> Verdict:
    """``mvn clean verify`` with the original tests in place of those that are there."""
    project = scratch / "project"
    shutil.copytree(
        folder, project, symlinks=True, ignore=shutil.ignore_patterns("target", ".git", ".mvn")
    )
    for tests in list(project.glob("**/src/test")):
        shutil.rmtree(tests)
    _put(project, original.tests)
    code, output = _run(["mvn", "-B", "-ntp", "-q", "clean", "verify"], project)
    verdict = Verdict(built=code == 0, log=output[-4000:])
    verdict.majors = {major(file) for file in project.glob("**/target/**/*.class")}
    for report in project.glob("**/target/surefire-reports/TEST-*.xml"):
        suite = ElementTree.parse(report).getroot()
        ran, bad = int(suite.get("tests", 0)), 0
        bad += sum(int(suite.get(kind, 0)) for kind in ("failures", "errors", "skipped"))
        verdict.total += ran
        verdict.passed += ran - bad
    return verdict


# --- small parts -----------------------------------------------------------------------------


def _files(folder: Path, pattern: str) -> list[Path]:
    """Plain files that are really in the folder, whatever links say."""
    root = folder.resolve()
    found = (p for p in sorted(folder.glob(pattern)) if p.is_file())
    return [p for p in found if p.resolve().is_relative_to(root)]


def _put(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _run(
    command: list[str], folder: Path, stdin: bytes = b"", timeout_s: float = BUILD_S
) -> tuple[int, str]:
    if shutil.which(command[0], path=ENV["PATH"]) is None:
        raise RuntimeError(f"{command[0]} is not installed: the reward needs a JDK 17")
    folder.mkdir(parents=True, exist_ok=True)
    done = kept.run(command, folder, {**ENV, "HOME": str(Path.home())}, timeout_s, stdin)
    return done.code, done.output
