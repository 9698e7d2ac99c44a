"""The experimental level as far as it can be seen without a machine that boots guests: how it is
found out, and that it is never replaced by another. Its sessions are not tested anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore_rl_toolkit.errors import IsolationError
from agentcore_rl_toolkit.runtime import isolation
from agentcore_rl_toolkit.runtime.isolation import Agent, microvm
from agentcore_rl_toolkit.runtime.isolation.base import Network
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

FAKE = """
class MicrosandboxError(Exception): pass
class Image:
    bind = staticmethod(lambda path: path)
class Network:
    none = staticmethod(lambda: None)
class Machine:
    async def kill(self): pass
class Sandbox:
    @staticmethod
    async def create(name, **options):
        {boot}
        return Machine()
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands in for the library, in the probe's own process, on a machine without obstacles."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(microvm, "obstacle", lambda: "")
    microvm._probe.cache_clear()
    yield tmp_path / "microsandbox.py"
    microvm._probe.cache_clear()


def test_a_guest_that_boots_makes_it_available_and_auto_still_takes_another(library: Path) -> None:
    library.write_text(FAKE.format(boot="pass"))
    assert isolation.drivers()["microvm"].probe().available
    assert isolation.select("microvm").level == "microvm"
    assert isolation.select("auto").level != "microvm"


def test_a_guest_that_does_not_boot_gives_the_reason(library: Path) -> None:
    library.write_text(FAKE.format(boot="raise MicrosandboxError('KVM internal error')"))
    probe = isolation.drivers()["microvm"].probe()
    assert not probe.available
    assert "KVM internal error" in probe.reason
    assert "experimental" in probe.reason


def test_a_guest_that_hangs_is_given_up(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microvm, "BOOT_S", 0.3)
    library.write_text(FAKE.format(boot="import time; time.sleep(60)"))
    assert "timed out" in isolation.drivers()["microvm"].probe().reason


def test_asked_for_by_name_it_is_given_or_refused(library: Path, tmp_path: Path) -> None:
    library.write_text(FAKE.format(boot="raise MicrosandboxError('no')"))
    with pytest.raises(IsolationError, match="does not work here: a guest did not boot"):
        isolation.select("microvm")
    with (
        pytest.raises(IsolationError, match="'microvm' does not work here"),
        RuntimeThread(home=tmp_path / "home", isolation="microvm"),
    ):
        pass


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    microvm._probe.cache_clear()
    monkeypatch.setattr(microvm.importlib.util, "find_spec", lambda name: None)
    assert "pip install -e '.[microvm]'" in isolation.drivers()["microvm"].probe().reason
    microvm._probe.cache_clear()


def machine(root: Path, *, kvm: bool = True, emulated: bool = False, flags: str = "vmx") -> Path:
    for folder in ("dev", "proc", "sys/module"):
        (root / folder).mkdir(parents=True)
    if kvm:
        (root / "dev/kvm").touch()
    if emulated:
        (root / "sys/module/kvm_pvm").mkdir()
    (root / "proc/cpuinfo").write_text(f"flags : fpu {flags} sse\n")
    return root


def test_known_obstacles_are_told_without_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm.sys, "platform", "linux")
    monkeypatch.setattr(microvm.platform, "machine", lambda: "x86_64")
    assert microvm.obstacle(machine(tmp_path / "a")) == ""
    assert "/dev/kvm" in microvm.obstacle(machine(tmp_path / "b", kvm=False))
    assert "emulated" in microvm.obstacle(machine(tmp_path / "c", emulated=True))
    assert "neither vmx nor svm" in microvm.obstacle(machine(tmp_path / "d", flags=""))


@pytest.mark.parametrize(
    ("network", "env", "said"),
    [
        pytest.param(
            "model", {"ART_IMAGE": "x"}, "ART_NETWORK=none", id="a network it cannot give"
        ),
        pytest.param("open", {}, "ART_IMAGE", id="no image"),
    ],
)
async def test_what_it_cannot_do_is_refused(
    tmp_path: Path, network: Network, env: dict[str, str], said: str
) -> None:
    agent = Agent("r", "1", tmp_path, "rl_app.py", "python", network=network, env=env)
    with pytest.raises(IsolationError, match=said):
        await microvm.MicroVMDriver().prepare(agent)
