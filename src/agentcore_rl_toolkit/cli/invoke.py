"""``art invoke``: one call to a deployed agent, as production would make it or as a rollout."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import local
from ..errors import ConfigError
from ..rollout import FailureKind, failure_of
from .agent import bucket_of, check_base_url, find_agent
from .show import console, errors, fail, hint, printable

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

EXAMPLE = """'{"prompt": "hello"}'"""
NO_READ_TIMEOUT_S = 900
"""AWS ends a synchronous call after 15 minutes."""


def invoke(
    agent: Annotated[
        str, typer.Argument(help="ARN that 'art deploy' printed, or the agent's local name.")
    ],
    payload: Annotated[str, typer.Argument(help="JSON object, @FILE, or - for standard input.")],
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Run as a rollout and wait for its stored result.")
    ] = False,
    base_url: Annotated[str | None, typer.Option(help="Model endpoint, for --rollout.")] = None,
    model_id: Annotated[str | None, typer.Option(help="Model name, for --rollout.")] = None,
    bucket: Annotated[
        str | None, typer.Option(help="Result bucket, for --rollout of an agent on AWS.")
    ] = None,
    session_id: Annotated[
        str | None,
        typer.Option(
            help="Session to call, which then lives on, unless --rollout ends it. Default: a new "
            "one, stopped afterwards."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds to wait for a rollout.")
    ] = 900.0,
    endpoint: Annotated[str | None, typer.Option(help="URL of the local runtime.")] = None,
) -> None:
    """Call an agent and print its answer as JSON."""
    body = read_payload(payload)
    check_base_url(base_url)
    arn = find_agent(agent, endpoint)
    if rollout or base_url or model_id:
        place = bucket_of(arn, bucket)
        result = run_rollout(arn, body, place, base_url, model_id, session_id, timeout, endpoint)
        failure = failure_of(result)
        print_result(result, trace=failure is not None and failure.kind is not FailureKind.MODEL)
        if failure is not None:
            if base_url is None and (told := no_model(failure.message)):
                hint(told)
            fail(str(failure))
        if isinstance(result, dict) and "rewards" not in result:
            hint(
                "the result has no 'rewards', which 'art eval' and training need: return "
                '{"rewards": <number>} from the rollout entrypoint'
            )
    else:
        call_once(arn, body, session_id, endpoint)


def read_payload(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            with open(text[1:], encoding="utf-8") as file:
                text = file.read()
        body = json.loads(text)
    except OSError as error:
        raise ConfigError(f"the payload cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError(f"the payload is not JSON, such as {EXAMPLE}: {error}") from error
    if not isinstance(body, dict):
        raise ConfigError(f"the payload must be a JSON object, such as {EXAMPLE}")
    return body


def run_rollout(
    arn: local.RuntimeArn,
    body: dict[str, Any],
    bucket: str,
    base_url: str | None,
    model_id: str | None,
    session_id: str | None,
    timeout: float,
    endpoint: str | None,
) -> object:
    from ..client import RolloutClient

    with RolloutClient(
        agent_runtime_arn=arn.arn,
        s3_bucket=bucket,
        exp_id="invoke",
        base_url=base_url,
        model_id=model_id,
        endpoint_url=endpoint,
    ) as client:
        return client.invoke(body, session_id=session_id).result(timeout=timeout)


def call_once(
    arn: local.RuntimeArn, body: dict[str, Any], named: str | None, endpoint: str | None
) -> None:
    """Streams an event stream as it comes; anything else is printed whole."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    from ..deploy.call import NO_CREDENTIALS

    config = Config(read_timeout=NO_READ_TIMEOUT_S, retries={"total_max_attempts": 1})
    where: dict[str, Any] = {"region_name": arn.region}
    if arn.is_local:
        url = local.find_endpoint(endpoint)
        where = {"region_name": "us-east-1", "endpoint_url": url, **local.credentials(url)}
    client = boto3.client("bedrock-agentcore", config=config, **where)
    session_id = named or str(uuid.uuid4())
    try:
        answer = client.invoke_agent_runtime(
            agentRuntimeArn=arn.arn, runtimeSessionId=session_id, payload=json.dumps(body)
        )
        if "event-stream" in answer["contentType"]:
            for line in answer["response"].iter_lines(chunk_size=1):
                console.print(line.decode(errors="replace"), markup=False, soft_wrap=True)
        else:
            print_body(answer["response"].read())
    except NO_CREDENTIALS:
        raise
    except (ClientError, BotoCoreError) as error:
        fail(told(error, arn, session_id))
    finally:
        if named is None:
            with contextlib.suppress(ClientError, BotoCoreError):
                client.stop_runtime_session(agentRuntimeArn=arn.arn, runtimeSessionId=session_id)


def told(error: ClientError | BotoCoreError, arn: local.RuntimeArn, session_id: str) -> str:
    """A refusal without boto3's words about its operation and its retries."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return str(error)
    found = error.response["Error"]
    said = f"{found.get('Code', '')}: {found.get('Message', '')}"
    return local.with_log_here(said, f"art logs {session_id}") if arn.is_local else said


def no_model(message: str) -> str:
    """What to add to the failure of an agent that was given no model; empty when it is another."""
    if not re.search(r"KeyError: '(base_url|model_id|_rollout)'", message):
        return ""
    return "no --base-url given: the agent asks for a model; add --base-url URL --model-id NAME"


def print_body(raw: bytes) -> None:
    try:
        print_json(json.loads(raw))
    except ValueError:
        console.print(printable(raw.decode(errors="replace")), markup=False, soft_wrap=True)


def print_result(result: object, *, trace: bool) -> None:
    """A traceback is for people: as lines, on standard error. Programs find it in the JSON. Of a
    model that did not answer it says nothing that the error does not."""
    found = result.get("traceback") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(found, str) or not found:
        print_json(result)
        return
    shown = {key: value for key, value in result.items() if key != "traceback"}
    print_json(shown if console.is_terminal else result)
    if trace:
        errors.print(printable(found.rstrip()), markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    if console.is_terminal:
        console.print_json(data=value)
    else:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")
