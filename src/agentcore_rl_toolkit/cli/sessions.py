"""``art sessions``, ``art logs`` and ``art stop``: the live sessions of a local runtime."""

from __future__ import annotations

import codecs
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from .. import local
from ..errors import ConfigError, RuntimeServiceError
from .show import coloured, console, escape, plain_table

Endpoint = Annotated[str | None, typer.Option(help="URL of the runtime. Default: find it.")]
SessionId = Annotated[str, typer.Argument(help="Its id, or the beginning of it.")]
WATCH_S = 1.0


def sessions(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Until Ctrl-C.")] = False,
    endpoint: Endpoint = None,
) -> None:
    """List the live sessions of the local runtime."""
    url = local.find_endpoint(endpoint)
    if as_json:
        for found in snapshots(url) if watch else [listed(url)]:
            for session in found:
                sys.stdout.write(json.dumps(session) + "\n")
            sys.stdout.flush()
        return
    if not watch:
        console.print(table(listed(url)))
        return
    with Live(table(listed(url)), console=console, auto_refresh=False) as live:
        for found in snapshots(url):
            live.update(table(found), refresh=True)


def snapshots(url: str) -> Iterator[list[dict[str, Any]]]:
    while True:
        yield listed(url)
        time.sleep(WATCH_S)


def logs(
    session: SessionId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until it ends.")] = False,
    endpoint: Endpoint = None,
) -> None:
    """Print what a session has printed. Logs outlive their sessions."""
    url = local.find_endpoint(endpoint)
    name = find(url, session, or_itself=True)
    with fetch(f"{url}/_art/sessions/{name}/log{'?follow=1' if follow else ''}") as answer:
        copy(answer, sys.stdout.buffer, tame=sys.stdout.isatty())


def copy(source: Any, out: IO[bytes], *, tame: bool) -> None:
    """Byte by byte into a file or a pipe; on a terminal without what would steer it."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while piece := source.read1(65536):
        out.write(coloured(decoder.decode(piece)).encode() if tame else piece)
        out.flush()


def stop(
    session: Annotated[str | None, typer.Argument(help="Its id, or the beginning of it.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Stop all sessions.")] = False,
    endpoint: Endpoint = None,
) -> None:
    """Stop a session, or all of them, as StopRuntimeSession does."""
    if (session is None) is not every:
        raise ConfigError("name one session, or give --all")
    url = local.find_endpoint(endpoint)
    known = listed(url)
    if session is not None:
        name = find(url, session)
        known = [one for one in known if one["session_id"] == name]
    with ThreadPoolExecutor(16) as pool:
        stopped = sum(pool.map(stopper(url), known))
    console.print(f"stopped {stopped} session{'' if stopped == 1 else 's'}")


def stopper(url: str) -> Any:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError

    client = boto3.client(
        "bedrock-agentcore",
        endpoint_url=url,
        region_name="us-east-1",
        config=Config(max_pool_connections=16, retries={"mode": "standard"}, proxies={}),
        **local.credentials(url),
    )

    def one(session: dict[str, Any]) -> bool:
        try:
            client.stop_runtime_session(
                agentRuntimeArn=local.runtime_arn(session["runtime_id"]),
                qualifier=session["qualifier"],
                runtimeSessionId=session["session_id"],
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            return False  # it ended by itself
        return True

    return one


# --- what the runtime tells -------------------------------------------------------------------


def fetch(url: str) -> Any:
    """An open answer; our error with the runtime's own words when there is none."""
    request = urllib.request.Request(url, headers=local.sign(url))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request)
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeServiceError(said(error)) from None
    except urllib.error.URLError as error:
        raise RuntimeServiceError(
            f"no local runtime at {url.partition('/_art')[0]} ({error.reason}): start one with "
            "'art runtime serve', or name its URL with --endpoint"
        ) from error


def said(error: IO[bytes]) -> str:
    raw = error.read()
    try:
        return str(json.loads(raw)["message"])
    except (ValueError, KeyError, TypeError):
        return raw.decode(errors="replace")[:500]


def listed(url: str) -> list[dict[str, Any]]:
    with fetch(f"{url}/_art/sessions") as answer:
        found: list[dict[str, Any]] = json.load(answer)["sessions"]
    return sorted(found, key=lambda session: float(session["started"]))


def find(url: str, beginning: str, or_itself: bool = False) -> str:
    names = [s["session_id"] for s in listed(url) if s["session_id"].startswith(beginning)]
    if beginning in names or (or_itself and not names):
        return beginning
    if not names:
        raise ConfigError(f"no live session begins with {beginning!r}: see 'art sessions'")
    if len(names) > 1:
        raise ConfigError(f"{len(names)} live sessions begin with {beginning!r}: say more of it")
    return str(names[0])


def table(found: list[dict[str, Any]]) -> Table:
    columns = ("session", "runtime", "version", "state", "age", "isolation", "memory", "pid")
    shown = plain_table(*columns)
    for session in found:
        shown.add_row(
            escape(session["session_id"]),
            escape(session["runtime_id"]),
            session["version"],
            session["state"],
            age(session["age_s"]),
            session["isolation"],
            f"{session['memory_bytes'] / 1e6:.0f} MB",
            str(session["pid"] or ""),
        )
    shown.caption = None if found else "no live sessions"
    return shown


def age(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
