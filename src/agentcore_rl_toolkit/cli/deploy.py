"""``art deploy``: an agent folder becomes a runtime that can be invoked."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import local
from ..errors import ConfigError
from .doctor import about_runtime, require_local
from .show import console, live_line
from .suggest import print_next

READY_TIMEOUT_S = 180.0
ROLE = f"arn:aws:iam::{local.ACCOUNT}:role/local"


# --- options ----------------------------------------------------------------------------------

AgentPath = Annotated[Path, typer.Argument(help="Agent folder, or its entry script.")]
Local = Annotated[bool, typer.Option("--local", help="On the local runtime.")]
Endpoint = Annotated[
    str | None, typer.Option(help="URL of the local runtime, if not the usual one.")
]
Name = Annotated[str | None, typer.Option(help="Name of the runtime. Default: the folder's name.")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE for the sessions.")]
Python = Annotated[str | None, typer.Option(help="Interpreter that has what the agent imports.")]
Build = Annotated[
    bool,
    typer.Option(
        "--build",
        help="Also take requirements that come as source, and build them inside a sandbox: "
        "it sees the network of this machine and pip's settings, none of its files.",
    ),
]
Aws = Annotated[bool, typer.Option("--aws", help="On AWS. The options below are for it.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only show what would be done.")]
Region = Annotated[str | None, typer.Option(help="AWS region. Default: as boto3.")]
Bucket = Annotated[
    str | None, typer.Option(help="Bucket of results. Default: one for account and region.")
]
Role = Annotated[str | None, typer.Option(help="ARN of an execution role. Default: one is made.")]
Container = Annotated[
    bool, typer.Option("--container", help="Build and push an image, instead of a code zip.")
]
Image = Annotated[
    str | None, typer.Option(help="URI of an ARM64 image in ECR that is there already.")
]
Qualifier = Annotated[
    str | None, typer.Option(help="Endpoint to point at the new version, besides DEFAULT.")
]


def deploy(
    path: AgentPath,
    is_local: Local = False,
    endpoint: Endpoint = None,
    name: Name = None,
    env: Env = None,
    python: Python = None,
    build: Build = False,
    is_aws: Aws = False,
    plan: Plan = False,
    region: Region = None,
    bucket: Bucket = None,
    role: Role = None,
    container: Container = False,
    image: Image = None,
    qualifier: Qualifier = None,
) -> None:
    """Register an agent. Deploying the same name again makes a new version."""
    if is_local == is_aws:
        raise ConfigError("say where: --local (the runtime of 'art runtime serve') or --aws")
    on_aws: dict[str, Any] = {"region": region, "bucket": bucket, "role": role, "image": image}
    on_aws |= {"container": container, "qualifier": qualifier}
    check_names(name=name, qualifier=qualifier)
    folder, entry = find_entry(path)
    named, variables = name or runtime_name(folder), parse_env(env or [])
    if is_local:
        refuse("--aws", plan=plan, **on_aws)
        if python:
            variables["ART_PYTHON"] = python
        deploy_local(folder, entry, named, variables, build=build, endpoint=endpoint)
        return
    refuse("--local", endpoint=endpoint, python=python, build=build)
    if not entry.endswith(".py"):
        raise ConfigError(f"{entry} is not a Python script: --aws deploys Python agents")
    from ..deploy.step import Wanted
    from . import aws

    aws.deploy(Wanted(folder, entry, named, env=variables, **on_aws), plan=plan)


def deploy_local(
    folder: Path,
    entry: str,
    name: str,
    variables: dict[str, str],
    *,
    build: bool,
    endpoint: str | None,
) -> None:
    require_local(endpoint)
    variables |= install_requirements(folder, variables, python_of(endpoint), build=build)
    with live_line() as line:
        line.say(f"starting {folder.name}/{entry} once, to see that it imports")
        runtime = register(control_client(endpoint), name, folder, entry, variables)
    arn = runtime["agentRuntimeArn"]
    where = f" --endpoint {endpoint}" if endpoint else ""
    console.print(f"agent    {folder.name}/{entry}, version {runtime['agentRuntimeVersion']}")
    console.print(f"arn      [bold]{arn}[/]", soft_wrap=True)
    console.print(f"bucket   {local.DEFAULT_BUCKET}")
    print_next(folder / entry, name, always=where)


def check_names(**options: str | None) -> None:
    for option, text in options.items():
        if text is not None and not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", text):
            raise ConfigError(
                f"--{option} {text!r}: a runtime's name is a letter, then up to 47 letters, digits "
                "or _"
            )


def refuse(where: str, **options: object) -> None:
    """Nothing is ignored silently."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"--{name} goes with {where} only")


def control_client(endpoint: str | None) -> Any:
    import boto3
    from botocore.config import Config

    url = local.find_endpoint(endpoint)
    return boto3.client(
        "bedrock-agentcore-control",
        endpoint_url=url,
        region_name="us-east-1",
        config=Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 2}),
        **local.credentials(url),
    )


def python_of(endpoint: str | None) -> str | None:
    """The runtime's own interpreter, which runs the agents; None where it is this one."""
    found = about_runtime(local.find_endpoint(endpoint)).get("python")
    return None if found == sys.executable else found


def install_requirements(
    folder: Path, variables: dict[str, str], default: str | None = None, *, build: bool = False
) -> dict[str, str]:
    """What the agent's requirements bring, as a variable for the runtime; nothing runs of them.
    ``default``: the interpreter of agents that name none."""
    from ..runtime import environment
    from ..runtime.build import in_sandbox

    if "ART_PACKAGES" in variables:
        return {}
    with live_line() as line:
        packages = environment.for_agent(
            folder,
            variables.get("ART_PYTHON") or default,
            line.say,
            in_sandbox if build else None,
        )
    return {"ART_PACKAGES": str(packages)} if packages else {}


def register(
    control: Any, name: str, folder: Path, entry: str, variables: dict[str, str]
) -> dict[str, Any]:
    """Creates the runtime or gives it a new version; returns its description once READY."""
    from botocore.exceptions import ClientError, EndpointConnectionError

    body = {
        "agentRuntimeArtifact": {
            "containerConfiguration": {"containerUri": f"{folder.as_uri()}#{entry}"}
        },
        "roleArn": ROLE,
        "networkConfiguration": {"networkMode": "PUBLIC"},
        "environmentVariables": variables,
    }
    try:
        existing = find_runtime(control, name)
        if existing is None:
            made = control.create_agent_runtime(agentRuntimeName=name, **body)
        else:
            made = control.update_agent_runtime(agentRuntimeId=existing, **body)
    except EndpointConnectionError as error:
        raise ConfigError(
            f"no local runtime answers at {control.meta.endpoint_url}: start one with "
            "'art runtime serve', or name its URL with --endpoint"
        ) from error
    except ClientError as error:  # the runtime's own sentence, without boto3's before it
        raise ConfigError(error.response["Error"]["Message"]) from error
    return wait_ready(control, made["agentRuntimeId"])


def find_runtime(control: Any, name: str) -> str | None:
    return names_of(control).get(name)


def names_of(control: Any) -> dict[str, str]:
    """Name to id."""
    pages = control.get_paginator("list_agent_runtimes").paginate()
    items = [item for page in pages for item in page["agentRuntimes"]]
    return {str(item["agentRuntimeName"]): str(item["agentRuntimeId"]) for item in items}


def wait_ready(control: Any, runtime_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        runtime: dict[str, Any] = control.get_agent_runtime(agentRuntimeId=runtime_id)
        status = runtime["status"]
        if status == "READY":
            return runtime
        if status.endswith("_FAILED"):
            reason = str(runtime.get("failureReason", "no reason given")).rstrip()
            if "ModuleNotFoundError" in reason:
                reason += "\nA package that is missing belongs into the agent's requirements.txt"
            raise ConfigError(f"the agent does not start:\n{reason}")
        if time.monotonic() > deadline:
            raise ConfigError(f"the runtime is still {status} after {READY_TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def find_entry(path: Path) -> tuple[Path, str]:
    """The folder to deploy and the script in it that starts the agent."""
    path = path.expanduser().resolve()
    if path.is_file():
        if path.suffix != ".py" and not os.access(path, os.X_OK):
            raise ConfigError(
                f"{path} is not a Python script, and not a program either (chmod +x makes it one): "
                "name the agent's folder or script"
            )
        return path.parent, path.name
    if not path.is_dir():
        raise ConfigError(
            f"{path} does not exist: name an agent's folder or script, or make one with 'art init'"
        )
    if (path / "rl_app.py").is_file():
        return path, "rl_app.py"
    candidates = [
        script.name
        for script in sorted(path.glob("*.py"))
        if re.search(r"@\w+\.(rollout_)?entrypoint\b", script.read_text(errors="replace"))
    ]
    if len(candidates) == 1:
        return path, candidates[0]
    raise ConfigError(
        f"{path} has no rl_app.py and {len(candidates)} scripts with an entrypoint"
        f"{': ' + ', '.join(candidates) if candidates else ''}. Name the script: "
        f"art deploy {path}/<script>.py --local"
    )


def runtime_name(folder: Path) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", folder.name)[:48]
    return name if name[:1].isalpha() else f"agent_{name}"[:48]


def parse_env(pairs: list[str]) -> dict[str, str]:
    out = {}
    for pair in pairs:
        name, sep, value = pair.partition("=")
        if not sep or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"--env {pair!r} is not NAME=VALUE")
        out[name] = value
    return out
