"""Collecting rollouts: this client beside the published agentcore-rl-toolkit, on one endpoint.

    python benchmarks/rollouts.py [--rollouts 500] [--rounds 3] [--quick] [--json FILE]

Every client runs in a process of its own against the same local runtime, with warm sessions, in
interleaved rounds. "Noticed" is the time from the handler's return to the future's result; CPU is
the client process's own. "Slow invokes" are 128 at once that each take the agent half a second to
accept, from the first call to the last acceptance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER = ("agentcore-rl-toolkit==0.2.0", "boto3", "bedrock-agentcore")


# --- the measured side: runs in the peer's environment too, so only the kept public API ---------


async def drive(job: dict) -> dict:
    from agentcore_rl_toolkit import RolloutClient

    client = RolloutClient(
        agent_runtime_arn=job["arn"],
        s3_bucket="rollouts",
        exp_id=f"bench-{uuid.uuid4().hex[:8]}",
        tps_limit=job["tps"],
        max_pool_connections=job["concurrency"],
    )
    if not job["events"] and hasattr(client, "_watcher"):
        client._watcher._endpoint = None  # as on AWS: the store is all there is
    gate = asyncio.Semaphore(job["concurrency"])
    noticed: list[float] = []
    accepted: list[float] = []

    async def one(session_id: str) -> None:
        async with gate:
            future = await client.invoke_async(
                {"sleep": job["sleep"], "accept": job["accept"]},
                session_id=session_id,
                input_id=session_id,
            )
            accepted.append(time.perf_counter())
            result = await future.result_async(timeout=120)
            noticed.append(time.time() - result["returned"])

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one(session_id) for session_id in job["sessions"]))
    return {
        "noticed": noticed,
        "accepted_s": max(accepted) - wall,
        "wall_s": time.perf_counter() - wall,
        "cpu_ms": 1e3 * (time.process_time() - cpu) / len(noticed),
    }


# --- the conductor -----------------------------------------------------------------------------


def main() -> None:
    options = parse_arguments()
    if options.drive:
        json.dump(asyncio.run(drive(json.loads(options.drive))), sys.stdout)
        return
    from peer import environment
    from served import serve

    contenders = {
        "this, events": (sys.executable, True),
        "this, plain S3": (sys.executable, False),
    }
    if peer := environment("agentcore-rl-toolkit", *PEER):
        contenders["agentcore-rl-toolkit 0.2.0"] = (str(peer), False)
    with ExitStack() as stack:
        url, arn, _ = serve(stack, HERE / "agents" / "timed")
        rounds: dict[str, list[dict]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, (python, events) in contenders.items():
                rounds[name].append(run(python, arn, events, url, options))
        bursts = {
            name: [
                run(python, arn, events, url, options, burst=True, accept=accept)
                for accept in ((0.5,) if options.quick else (0.0, 0.5))
            ]
            for name, (python, events) in contenders.items()
        }
    print_table(rounds, bursts, options)
    write_rows(rounds, bursts, options.json)


def run(
    python: str,
    arn: str,
    events: bool,
    url: str,
    options: argparse.Namespace,
    burst: bool = False,
    accept: float = 0.0,
) -> dict:
    count = 128 if burst else options.rollouts
    job = {
        "arn": arn,
        "events": events,
        "sleep": (0.0 if accept else 0.5) if burst else 0.2,
        "accept": accept,
        "concurrency": 128 if burst else 64,
        "tps": 10_000 if burst else options.tps,
        "sessions": warm_sessions(arn, url, count),
    }
    env = {
        **os.environ,
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [python, str(Path(__file__).resolve()), "--drive", json.dumps(job)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise SystemExit(f"{python} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def warm_sessions(arn: str, url: str, count: int) -> list[str]:
    """Sessions that have answered once, so that no start is measured."""
    from concurrent.futures import ThreadPoolExecutor

    import boto3
    from botocore.config import Config

    client = boto3.client(
        "bedrock-agentcore",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(max_pool_connections=8),
    )
    ids = [str(uuid.uuid4()) for _ in range(count)]

    def warm(session_id: str) -> None:
        client.invoke_agent_runtime(
            agentRuntimeArn=arn, runtimeSessionId=session_id, payload=b"{}"
        )["response"].read()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(warm, ids))
    return ids


def print_table(rounds: dict, bursts: dict, options: argparse.Namespace) -> None:
    print(
        f"{options.rollouts} rollouts of 0.2 s on warm sessions, 64 at a time, "
        f"{options.tps} calls/s at most, {options.rounds} rounds; "
        "then 128 at once of 0.5 s, and 128 slow invokes"
    )
    print(
        "| client | noticed p50 ms | p99 ms | client CPU ms/rollout | wall s | 128 at once, s "
        "| 128 slow invokes, s |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, results in rounds.items():
        noticed = sorted(1e3 * value for result in results for value in result["noticed"])
        print(
            f"| {name} | {quantile(noticed, 0.5):.0f} | {quantile(noticed, 0.99):.0f} "
            f"| {statistics.median(r['cpu_ms'] for r in results):.1f} "
            f"| {statistics.median(r['wall_s'] for r in results):.1f} "
            f"| {'-' if options.quick else format(bursts[name][0]['wall_s'], '.2f')} "
            f"| {bursts[name][-1]['accepted_s']:.2f} |"
        )


def write_rows(rounds: dict, bursts: dict, path: Path | None) -> None:
    import report

    names = list(rounds)
    peers = names[1:] if "agentcore-rl-toolkit 0.2.0" in names else names[1:2]
    absent = {} if peers != names[1:2] else {"agentcore-rl-toolkit 0.2.0": "could not be installed"}
    found = report.Report()

    def row(name: str, unit: str, of: dict, **more: object) -> None:
        others = {one: of[one] for one in peers} | absent
        found.row(name, unit, of[names[0]], peers=others, headline=True, **more)

    for q, aim in ((50, 20), (99, 150)):
        noticed = {
            name: [quantile(sorted(1e3 * v for v in one["noticed"]), q / 100) for one in results]
            for name, results in rounds.items()
        }
        row(f"handler's return to future's result, p{q}", "ms", noticed, aim=aim)
    found.row(
        "handler's return to future's result, p99, plain S3", "ms", noticed[names[1]], aim=2000
    )
    cpu = {name: [one["cpu_ms"] for one in results] for name, results in rounds.items()}
    row("client CPU per rollout", "ms", cpu, aim=6)
    slow = {name: runs[-1]["accepted_s"] for name, runs in bursts.items()}
    row("128 invokes at once that each take 0.5 s", "s", slow, aim=1.5)
    found.write(path)


def quantile(values: list[float], q: float) -> float:
    return values[min(len(values) - 1, int(q * len(values)))]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tps", type=float, default=50.0)
    parser.add_argument("--quick", action="store_true", help="fewer rollouts, one burst")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rollouts, options.rounds = 128, 1
    return options


if __name__ == "__main__":
    main()
