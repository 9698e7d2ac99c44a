"""``art deploy --aws`` and ``art destroy`` as a user sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore_rl_toolkit.cli import aws
from agentcore_rl_toolkit.cli.deploy import deploy
from agentcore_rl_toolkit.errors import ConfigError


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
