"""``art deploy --aws`` and ``art destroy`` as a user sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli import aws
from agentcore_rl_toolkit.cli.deploy import deploy
from agentcore_rl_toolkit.errors import ConfigError
from agentcore_rl_toolkit.runtime.thread import RuntimeThread


@pytest.mark.usefixtures("moto")
def test_plan_deploy_and_destroy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # the local control plane runs a folder where AWS runs an image
    image = f"{folder.as_uri()}#rl_app.py"
    deploy(folder, is_aws=True, plan=True, image=image)
    said = capsys.readouterr()
    assert "create" in said.out
    assert "account 123456789012, region us-west-2" in said.err

    deploy(folder, is_aws=True, image=image)
    said = capsys.readouterr()
    assert "art invoke arn:aws:bedrock-agentcore:" in said.out
    assert "--bucket art-rollouts-123456789012-us-west-2" in said.out

    deploy(folder, is_aws=True, image=image)
    assert "create" not in capsys.readouterr().out, "everything is there"

    aws.destroy("math_agent")
    assert "--yes removes it" in capsys.readouterr().err
    aws.destroy("math_agent", yes=True)
    capsys.readouterr()
    with pytest.raises(ConfigError, match="nothing of 'math_agent'"):
        aws.destroy("math_agent")


@pytest.mark.usefixtures("moto")
def test_options_of_the_local_runtime_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--python goes with --local only"):
        deploy(folder, is_aws=True, python="/usr/bin/python3")
    with pytest.raises(ConfigError, match="leave one of them out"):
        deploy(folder, is_aws=True, container=True, image="123456789012.dkr.ecr.x.y/z:1")
    with pytest.raises(ConfigError, match="--container goes with --aws only"):
        deploy(folder, is_local=True, container=True)
    with pytest.raises(ConfigError, match="--qualifier 'a b'"):
        deploy(folder, is_aws=True, qualifier="a b")


def test_an_arn_removes_that_runtime_and_no_other_of_its_name(
    folder: Path, control: RuntimeThread, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy(folder, is_local=True, endpoint=control.url, name="twice")
    arn = re.search(r"arn:aws:\S+", capsys.readouterr().out)
    assert arn is not None
    earlier = arn[0][:-10] + "0000000000"
    with pytest.raises(ConfigError, match="name that one"):
        aws.destroy(earlier, endpoint=control.url, yes=True)
    aws.destroy(arn[0], endpoint=control.url, yes=True)
    with pytest.raises(ConfigError, match="here: is it another runtime's"):
        aws.destroy(arn[0], endpoint=control.url)
    with pytest.raises(ConfigError, match="no local runtime"):
        aws.destroy(arn[0], endpoint="http://127.0.0.1:9")
