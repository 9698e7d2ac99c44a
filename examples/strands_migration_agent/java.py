"""Builds a Java project and runs tests on it, with the JDK's own tools or with Maven.

Invariant: of the project only its sources and its build file count. Tests and libraries are the
``Original``'s, taken before anybody could change them, and a test's word counts only with the
token that it was given.
"""

from __future__ import annotations

import random
import re
import secrets
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

MAJOR = 61
"""Of class files for Java 17."""
TIMEOUT_S = 600.0
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "MAVEN_SKIP_RC": "1"}
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""Small heaps and little optimisation: these programs live for a second."""
SHADOWS = re.compile(
    "Boolean|Byte|Character|Class|Exception|Integer|Iterable|Long|Math|Object|Override|Runnable|"
    "String|StringBuilder|System|Thread|Throwable|IllegalArgumentException"
)
"""A class of one of these names in a test's package would be used by the test."""


@dataclass
class Original:
    """What the reward needs of a project as it was: tests and Maven's options, libraries."""

    tests: dict[str, bytes] = field(default_factory=dict)
    libraries: dict[str, bytes] = field(default_factory=dict)
    held_out: dict[str, bytes] = field(default_factory=dict)
    """Tests that are not in the project."""
    maven: bool = False

    @classmethod
    def of(cls, folder: Path, held_out: dict[str, bytes] | None = None) -> Original:
        return cls(
            {
                str(p.relative_to(folder)): p.read_bytes()
                for pattern in ("**/src/test/**/*", ".mvn/**/*")
                for p in _files(folder, pattern)
            },
            {p.name: p.read_bytes() for p in _files(folder, "repository/*.jar")},
            held_out or {},
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
    with tempfile.TemporaryDirectory(prefix="build-") as scratch:
        if original.maven:  # as it was: a project does not become Maven's by a file
            return _maven(folder, original, Path(scratch))
        return _javac(folder, original, Path(scratch))


# --- the JDK's own tools ---------------------------------------------------------------------


def _javac(folder: Path, original: Original, scratch: Path) -> Verdict:
    verdict = Verdict()
    settings = _settings(folder / "build.properties")
    jars = [name for name in settings.get("libraries", "").split() if name in original.libraries]
    for name in jars:
        _put(scratch / "lib", {name: original.libraries[name]})
    classes, tests = scratch / "classes", scratch / "tests"
    path = ":".join([str(classes), *(str(scratch / "lib" / name) for name in jars)])
    sources = list(_files(folder, "src/main/java/**/*.java"))
    release = settings.get("release", "8")
    if not sources or any(map(_shadows, sources)):
        verdict.log = "no sources, or some that pretend to be Java's own"
        return verdict
    if not _compile(sources, classes, path, release, verdict):
        return verdict
    verdict.built = True
    verdict.majors = {major(file) for file in classes.rglob("*.class")}
    if not verdict.migrated:
        verdict.log += f"class files are of version {sorted(verdict.majors)}"
        return verdict
    ours = {name.partition("src/test/java/")[2]: text for name, text in original.tests.items()}
    ours |= original.held_out
    _put(scratch / "test-sources", ours)
    files = list(_files(scratch / "test-sources", "**/*.java"))
    if _compile(files, tests, path, "17", verdict):
        for name in sorted(ours):
            if name.endswith("Test.java"):
                _run_test(name.removesuffix(".java").replace("/", "."), f"{tests}:{path}", verdict)
    return verdict


def _shadows(file: Path) -> bool:
    declared = re.findall(
        r"(?:class|interface|enum|record)\s+(\w+)", file.read_text(errors="replace")
    )
    return any(map(SHADOWS.fullmatch, declared))


def _compile(sources: list[Path], into: Path, path: str, release: str, verdict: Verdict) -> bool:
    command = ["javac", *(f"-J{option}" for option in QUICK), "-proc:none", "-nowarn"]
    command += ["--release", release, "-cp", path, "-d", str(into), *map(str, sources)]
    code, output = _run(command, into.parent)
    verdict.log += output
    return code == 0


def _run_test(name: str, path: str, verdict: Verdict) -> None:
    """The token goes in through standard input before any code of the project is loaded."""
    token, seed = secrets.token_hex(16), random.SystemRandom().getrandbits(40)
    _, output = _run(["java", *QUICK, "-cp", path, name], Path("/"), f"{token} {seed}\n")
    verdict.log += output.replace(token, "")
    said = re.search(rf"^{token} passed (\d+) of (\d+)$", output, re.MULTILINE)
    verdict.passed += int(said[1]) if said else 0
    verdict.total += int(said[2]) if said else 1


def major(file: Path) -> int:
    head = file.read_bytes()[:8]
    return int.from_bytes(head[6:8], "big") if head[:4] == b"\xca\xfe\xba\xbe" else 0


def _settings(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    lines = (line.partition("=") for line in file.read_text(errors="replace").splitlines())
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


def _run(command: list[str], folder: Path, stdin: str = "") -> tuple[int, str]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**ENV, "HOME": str(Path.home())},
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not installed: the reward needs a JDK 17") from None
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} took longer than {TIMEOUT_S:g} s\n"
    return done.returncode, done.stdout.decode(errors="replace")
