"""What the runtime tells about itself under ``/_art/``."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest

from agentcore_rl_toolkit.prometheus import metric

from .conftest import Aws


def metrics(aws: Aws) -> dict[str, float]:
    with urllib.request.urlopen(aws.url + "/_art/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# TYPE [a-z_]+ (counter|gauge)", line)
            continue
        match = re.fullmatch(
            r"([a-z_]+(?:{[a-z]+=\"[^\"]*\"(?:,[a-z]+=\"[^\"]*\")*})?) (\S+)", line
        )
        assert match is not None, line
        assert match[1] not in found
        found[match[1]] = float(match[2])
    return found


def test_metrics_count_what_happens(aws: Aws, asgi_arn: str, sid: str) -> None:
    before = metrics(aws)
    aws.ask(asgi_arn, {}, sid)
    aws.ask(asgi_arn, {}, sid)
    with pytest.raises(aws.data.exceptions.RuntimeClientError):
        aws.ask(asgi_arn, {"status": 500, "body": "no"}, sid)
    aws.s3.put_object(Bucket="rollouts", Key="counted", Body=b"x")
    after = metrics(aws)

    def grown(name: str) -> float:
        return after[f"art_runtime_{name}"] - before.get(f"art_runtime_{name}", 0)

    assert grown('requests_total{operation="InvokeAgentRuntime",status="200"}') == 2
    assert grown('requests_total{operation="InvokeAgentRuntime",status="424"}') == 1
    assert grown('sessions{state="idle"}') == 1
    assert grown('objects{bucket="rollouts"}') == 1
    assert grown("events_total") == 2  # a session started, an object was put
    starts = [n for n in after if n.startswith("art_runtime_session_starts_total")]
    assert sum(after[n] - before.get(n, 0) for n in starts) == 1
    seconds = [n for n in after if n.startswith("art_runtime_session_start_seconds_total")]
    assert sum(after[n] - before.get(n, 0) for n in seconds) > 0
    assert after["art_runtime_resident_bytes"] > 10_000_000
    assert after["art_runtime_runtimes"] >= 1
    aws.s3.delete_object(Bucket="rollouts", Key="counted")
    aws.stop(asgi_arn, sid)


def test_readers_of_events_are_counted_while_they_read(aws: Aws) -> None:
    with urllib.request.urlopen(aws.url + "/_art/events", timeout=60) as events:
        events.readline()
        assert metrics(aws)["art_runtime_event_readers"] >= 1


def test_a_followed_log_goes_on_while_the_session_lives(aws: Aws, asgi_arn: str, sid: str) -> None:
    aws.ask(asgi_arn, {"say": "one"}, sid)
    url = f"{aws.url}/_art/sessions/{sid}/log?follow=1"
    with urllib.request.urlopen(url, timeout=60) as log:
        assert log.readline() == b"one\n"
        aws.ask(asgi_arn, {"say": "two"}, sid)
        assert log.readline() == b"two\n"
        aws.stop(asgi_arn, sid)
        assert log.read() == b""


@pytest.mark.parametrize(
    "path",
    ["/_art/nothing", "/_art/sessions/x", "/_art/sessions/" + "x" * 40 + "/log", "/_art/x/y"],
)
def test_what_is_not_there_is_404(aws: Aws, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        aws.get(path)
    with refused.value as error:
        assert error.code == 404


def test_labels_are_escaped() -> None:
    lines = metric("m", "gauge", [({"a": 'x"\\\n'}, 1.5), ({}, 2)])
    assert lines == ["# TYPE m gauge", 'm{a="x\\"\\\\\\n"} 1.5', "m 2"]
