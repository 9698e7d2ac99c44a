"""``art doctor``: what works on this machine, and why the rest does not."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import typer

from .. import __version__, local
from ..errors import ConfigError, install_extra
from .show import console, escape, plain_table

State = Literal["ok", "note", "no"]
MARK = {"ok": "[green]ok[/]", "note": "[yellow]--[/]", "no": "[red]no[/]"}
ACTIVE_MB = 30
"""What a session takes once it works; see the runtime's quota for what one is expected to take."""
EXTRAS = {
    "gateway": ["aiohttp", "msgspec", "numpy"],
    "local": ["typer", "rich"],
    "train": ["torch", "peft", "safetensors"],
}
OPTIONAL = {"train": "needed only for 'art train' on this machine"}


class Check(NamedTuple):
    what: str
    state: State
    said: str


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    endpoint: Annotated[str | None, typer.Option(help="URL of the local runtime.")] = None,
    from_session: Annotated[
        str | None,
        typer.Option(
            help="Agent, by ARN or local name: only whether its sessions reach --base-url."
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Model endpoint, for --from-session.")
    ] = None,
) -> None:
    """Check this machine. Exits with 1 when something that art needs is missing."""
    if from_session is not None:
        from .reach import check_reach

        checks = [check_reach(from_session, base_url, endpoint)]
    else:
        checks = list(all_checks(endpoint))
    if as_json:
        sys.stdout.write(json.dumps([check._asdict() for check in checks], indent=2) + "\n")
    else:
        table = plain_table("", "check", "finding")
        table.columns[2].overflow = "fold"  # what to type must be whole
        for check in checks:
            table.add_row(MARK[check.state], check.what, escape(check.said))
        console.print(table)
    if any(check.state == "no" for check in checks):
        raise typer.Exit(1)


def all_checks(endpoint: str | None) -> Iterator[Check]:
    yield check_python()
    for extra, modules in EXTRAS.items():
        yield check_extra(extra, modules)
    yield from check_isolation()
    yield check_memory()
    yield check_home()
    yield check_runtime(endpoint)
    yield check_aws()


def check_python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("python", "ok", f"{found}, agentcore-rl-toolkit {__version__}")


def check_extra(extra: str, modules: list[str]) -> Check:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        said = f"lacks {', '.join(missing)}: {install_extra(extra)}"
        if extra in OPTIONAL:
            return Check(f"extra {extra}", "note", f"{said} ({OPTIONAL[extra]})")
        return Check(f"extra {extra}", "no", said)
    return Check(f"extra {extra}", "ok", "installed")


def check_isolation() -> Iterator[Check]:
    """Each level is really tried."""
    if importlib.util.find_spec("aiohttp") is None:
        yield Check("isolation", "note", "not tried: the local extra is not installed")
        return
    from ..runtime import isolation

    chosen = isolation.select("auto").level
    for driver in isolation.drivers().values():
        probe = driver.probe()
        used = " (used by default)" if driver.level == chosen else ""
        yield Check(
            f"isolation {driver.level}", "ok" if probe.available else "note", probe.reason + used
        )


def check_memory() -> Check:
    from ..runtime import memory
    from ..runtime.quota import Quota

    found = memory.read()
    if found is None:
        return Check("memory", "note", "unknown on this system; sessions are bounded by number")
    room = found.free - Quota().reserve(found.total)
    sessions = max(0, room) // (ACTIVE_MB * 1024**2)
    free_mb = found.free // 1024**2
    return Check("memory", "ok", f"{free_mb} MB free: room for about {sessions} active sessions")


def check_home() -> Check:
    home = local.home()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        free_gb = shutil.disk_usage(home).free / 1e9
    except OSError as error:
        return Check("state folder", "no", f"{home}: {error.strerror}; set ART_HOME to another")
    if not os.access(home, os.W_OK):
        return Check("state folder", "no", f"{home} is not writable; set ART_HOME to another")
    return Check("state folder", "ok" if free_gb > 1 else "note", f"{home}, {free_gb:.0f} GB free")


def check_runtime(endpoint: str | None) -> Check:
    url = local.find_endpoint(endpoint)
    try:
        return Check("local runtime", "ok", f"{url}, version {about_runtime(url)['version']}")
    except urllib.error.HTTPError as error:
        said = f"{url} answers {error.code}: "
        if error.code == 403:
            said += "it wants access keys. Set ART_ACCESS_KEYS to the file that it was started with"
        else:
            said += "it is no runtime"
        return Check("local runtime", "no", said)
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return Check("local runtime", "note", f"none at {url}: start one with 'art runtime serve'")


def about_runtime(url: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/_art/", headers=local.sign(f"{url}/_art/"))
    with urllib.request.urlopen(request, timeout=3) as answer:
        info: dict[str, Any] = json.load(answer)
    return info


def require_runtime(arn: local.RuntimeArn, endpoint: str | None) -> None:
    """ConfigError at once when a local ARN has no runtime behind it."""
    if arn.is_local:
        require_local(endpoint)


def require_local(endpoint: str | None) -> None:
    if (check := check_runtime(endpoint)).state != "ok":
        raise ConfigError(f"no local runtime: {check.said}, or name its URL with --endpoint")


def check_aws() -> Check:
    import boto3

    try:
        credentials = boto3.Session().get_credentials()
    except Exception as error:  # noqa: BLE001 - a broken profile is a finding, not a crash
        return Check("AWS credentials", "note", f"{error} (needed only for agents on AWS)")
    if credentials is None:
        return Check("AWS credentials", "note", "none (needed only for agents on AWS)")
    return Check("AWS credentials", "ok", f"found by {credentials.method}")
