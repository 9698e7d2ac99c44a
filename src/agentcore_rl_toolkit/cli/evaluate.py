"""``art eval``: every row of a data file as one rollout; results in a file that can be resumed."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .. import local
from ..errors import ConfigError, ContractError, RolloutError
from ..rollout import FailureKind, failure_of
from .agent import bucket_of, check_base_url, find_agent
from .invoke import no_model
from .results import ResultLog, Subject
from .show import Line, console, hint, live_line

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..client import BatchItem, RolloutClient
    from ..rollout import Failure


# --- options ----------------------------------------------------------------------------------

Data = Annotated[Path, typer.Argument(help="JSONL file; each row is a payload.")]
Agent = Annotated[
    str, typer.Option(help="ARN that 'art deploy' printed, or the agent's local name.")
]
BaseUrl = Annotated[str | None, typer.Option(help="Model endpoint for the agent.")]
ModelId = Annotated[str | None, typer.Option(help="Model name for the agent.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Sessions at a time.")]
Out = Annotated[Path, typer.Option(help="Results, one JSON line each.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Begin anew: drop what --out holds, and run every row.")
]
Bucket = Annotated[str | None, typer.Option(help="Result bucket, of an agent on AWS.")]
Timeout = Annotated[float, typer.Option(help="Seconds for one rollout.")]
Retry = Annotated[int, typer.Option(min=0, help="Runs again after an infrastructure failure.")]
TpsLimit = Annotated[float, typer.Option(help="Calls a second to the runtime.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N rows.")]
ExpId = Annotated[str | None, typer.Option(help="Prefix of the result keys.")]
Endpoint = Annotated[str | None, typer.Option(help="URL of the local runtime.")]

ADVICE: dict[str, str] = {
    FailureKind.MODEL: "is the model there? art doctor --from-session AGENT --base-url URL",
    FailureKind.TIMEOUT: "give a rollout longer with --timeout, or the model less with "
    "--concurrency",
    FailureKind.SESSION_LOST: "a session ended by itself: art logs SESSION, or 'dmesg' for memory",
    FailureKind.THROTTLED: "ask the runtime less often with --tps-limit",
    FailureKind.QUOTA: "run fewer sessions at a time with --concurrency",
    FailureKind.STORE: "may the agent write to --bucket, and may you read it?",
}
"""What to do about failures that are not the agent's."""


def evaluate(
    data: Data,
    agent: Agent,
    base_url: BaseUrl = None,
    model_id: ModelId = None,
    concurrency: Concurrency = 16,
    out: Out = Path("results.jsonl"),
    overwrite: Overwrite = False,
    bucket: Bucket = None,
    timeout: Timeout = 900.0,
    retry: Retry = 1,
    tps_limit: TpsLimit = 25.0,
    limit: Limit = None,
    exp_id: ExpId = None,
    endpoint: Endpoint = None,
) -> None:
    """Evaluate an agent on a data file. Run the same command again to resume: rows that failed are
    tried again. Exits with 1 when no row succeeded, or infrastructure failed some.
    """
    from ..client import RolloutClient

    check_base_url(base_url)
    arn = find_agent(agent, endpoint)
    place = bucket_of(arn, bucket)
    if out.resolve() == data.resolve():
        raise ConfigError(f"--out {out} is the data file itself: name another")
    rows = read_rows(data, limit)
    subject = Subject(arn.arn, version_of(arn, endpoint), model_id)
    with contextlib.closing(ResultLog(out, rows, subject, overwrite=overwrite)) as log:
        client = RolloutClient(
            agent_runtime_arn=arn.arn,
            s3_bucket=place,
            exp_id=exp_id or time.strftime("eval-%Y%m%d-%H%M%S"),
            tps_limit=tps_limit,
            max_pool_connections=concurrency,
            base_url=base_url,
            model_id=model_id,
            endpoint_url=endpoint,
            retry=retry,
        )
        run(client, log, rows, concurrency, timeout)
    finish(log, told_model=base_url is not None)


def run(
    client: RolloutClient,
    log: ResultLog,
    rows: list[dict[str, Any]],
    concurrency: int,
    timeout: float,
) -> None:
    if log.finished:
        hint(f"resuming {log.path}: {len(log.finished)} of {len(rows)} rows are done")
    try:
        with client, live_line() as line:
            collect_inflight(client, log, concurrency, timeout, line)
            run_missing(client, log, rows, concurrency, timeout, line)
    except KeyboardInterrupt:
        hint(
            f"interrupted: {len(log.finished)} of {len(rows)} rows are in {log.path}; "
            "run the same command to go on"
        )
        raise


def version_of(arn: local.RuntimeArn, endpoint: str | None) -> str | None:
    """Which one answers; None, and a word about it, where the caller may not ask."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    from ..deploy.call import NO_CREDENTIALS
    from .deploy import control_client

    if arn.is_local:
        control = control_client(endpoint)
    else:
        control = boto3.client("bedrock-agentcore-control", region_name=arn.region)
    try:
        found = control.get_agent_runtime_endpoint(
            agentRuntimeId=arn.runtime_id, endpointName="DEFAULT"
        )
        return str(found["liveVersion"])  # the newest may have failed to start
    except NO_CREDENTIALS:
        raise
    except (ClientError, BotoCoreError) as error:
        hint(f"results are kept without the agent's version: {error}")
        return None
    finally:
        control.close()


def read_rows(path: Path, limit: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ConfigError(f"{path}:{number} is not a JSON object")
                rows.append(row)
                if len(rows) == limit:
                    break
    except OSError as error:
        raise ConfigError(f"the data file cannot be read: {error}") from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}:{len(rows) + 1} is not JSON: {error}") from error
    if not rows:
        raise ConfigError(f"{path} has no rows")
    return rows


def collect_inflight(
    client: RolloutClient, log: ResultLog, concurrency: int, timeout: float, line: Line
) -> None:
    """What an earlier, killed run had started: its results are taken, its sessions ended."""
    for record in log.ended[-2 * concurrency :]:  # older ones were stopped before these began
        client.attach(record["result_key"], record["session_id"]).cancel()
    futures = {
        index: client.attach(record["result_key"], record["session_id"])
        for index, record in log.unfinished.items()
    }
    for index, future in futures.items():
        line.say(f"collecting {len(futures)} sessions of an earlier run: {headline(log)}")
        try:
            result = future.result(timeout=timeout)
        except RolloutError:
            continue  # it runs again below
        if failure_of(result) is None:
            stop_at_contract(index, log.add(index, result, None, None))


def run_missing(
    client: RolloutClient,
    log: ResultLog,
    rows: list[dict[str, Any]],
    concurrency: int,
    timeout: float,
    line: Line,
) -> None:
    todo = log.missing()
    if not todo:
        return
    line.say(f"running {len(todo)} of {len(rows)} rows, {concurrency} at a time")
    batch = client.run_batch(
        (rows[index] for index in todo),
        max_concurrent_sessions=concurrency,
        timeout=timeout,
        on_start=lambda position, future: log.started(todo[position], future),
    )
    with contextlib.closing(cast("Generator[BatchItem]", batch)) as items:
        for item in items:
            assert item.index is not None
            index = todo[item.index]
            stop_at_contract(index, log.add(index, item.result, item.failure, item.elapsed))
            line.say(f"running: {headline(log)}")


def stop_at_contract(index: int, failure: Failure | None) -> None:
    if failure is not None and failure.kind is FailureKind.CONTRACT:
        raise ContractError(f"row {index + 1}: {failure}. It would recur on every row: stopped")


def headline(log: ResultLog) -> str:
    done = list(log.entries.values())
    good = sum(entry.success for entry in done)
    rewards = [entry.reward for entry in done if entry.reward is not None]
    text = f"{len(done)}/{len(log.digests)} done, {good} succeeded"
    text += f", {len(done) - good} failed" if good < len(done) else ""
    of = f" over {len(rewards)}" if len(rewards) != len(done) else ""
    return text + (f", mean reward {sum(rewards) / len(rewards):.3f}{of}" if rewards else "")


def finish(log: ResultLog, *, told_model: bool) -> None:
    """What came out of it; exit code 1 where a script should not go on."""
    print_summary(log)
    if not told_model:
        for line in {no_model(entry.error or "") for entry in log.entries.values()} - {""}:
            hint(line)
    if missing := log.missing():
        hint(
            f"{len(missing)} did not run to an end, for reasons outside the agent: mend them and "
            "run the same command again, which runs only these"
        )
        raise typer.Exit(1)
    if not any(entry.success for entry in log.entries.values()):
        raise typer.Exit(1)


def print_summary(log: ResultLog) -> None:
    console.print(headline(log))
    kinds = Counter(entry.failure for entry in log.entries.values() if entry.failure)
    for kind, count in kinds.most_common():
        example = next(e.error or "" for e in log.entries.values() if e.failure == kind)
        first = example.partition("\n")[0][:200]
        console.print(f"  {count} x {kind}: {first}", markup=False, soft_wrap=True)
        if kind in ADVICE:
            console.print(f"      {ADVICE[kind]}", markup=False, soft_wrap=True, style="dim")
    console.print(f"results in {log.path}")
