"""How a session is kept apart from the machine and from other sessions.

``select(level)`` gives the driver. ``auto`` takes the strongest level that works here, of those
that are no experiment; a level that was asked for by name is given or refused, never lowered.
"""

from __future__ import annotations

from ...errors import ConfigError, IsolationError
from .base import Agent, Compute, Driver, Level, Limits, Probe, SessionSpec, Stats, Template
from .microvm import MicroVMDriver
from .namespace import NamespaceDriver
from .process import ProcessDriver

__all__ = [
    "Agent",
    "Compute",
    "Driver",
    "Level",
    "Limits",
    "Probe",
    "SessionSpec",
    "Stats",
    "Template",
    "drivers",
    "select",
]

_DRIVERS: dict[str, Driver] = {
    "microvm": MicroVMDriver(),
    "namespace": NamespaceDriver(),
    "process": ProcessDriver(),
}
_BY_NAME_ONLY = frozenset({"microvm"})


def drivers() -> dict[str, Driver]:
    """Every level by name, strongest first."""
    return dict(_DRIVERS)


def select(level: str = "auto") -> Driver:
    if level == "auto":
        usual = {name: one for name, one in _DRIVERS.items() if name not in _BY_NAME_ONLY}
        for driver in usual.values():
            if driver.probe().available:
                return driver
        reasons = "; ".join(f"{name}: {one.probe().reason}" for name, one in usual.items())
        raise IsolationError(f"no isolation level works on this machine ({reasons})")
    if level not in _DRIVERS:
        known = ", ".join(["auto", *_DRIVERS])
        raise ConfigError(f"isolation level {level!r} is not one of {known}")
    found = _DRIVERS[level]
    probe = found.probe()
    if not probe.available:
        raise IsolationError(
            f"isolation level {level!r} does not work here: {probe.reason}. "
            "Choose 'auto' to accept a weaker one"
        )
    return found
