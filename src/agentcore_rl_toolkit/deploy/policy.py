"""What the agent's role may do on AWS: write results, write logs, fetch its own code. No more."""

from __future__ import annotations

from typing import Any

SERVICE = "bedrock-agentcore.amazonaws.com"
CODE_PREFIX = "_agents"
"""Of code archives in the bucket; experiments are beside it."""
LOGS = "/aws/bedrock-agentcore/runtimes"

Document = dict[str, Any]


def trust(account: str, region: str, partition: str) -> Document:
    """AgentCore may take the role, for runtimes of this account and region only."""
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"Service": SERVICE},
            "Action": "sts:AssumeRole",
            "Condition": {
                "StringEquals": {"aws:SourceAccount": account},
                "ArnLike": {
                    "aws:SourceArn": f"arn:{partition}:bedrock-agentcore:{region}:{account}:*"
                },
            },
        }
    )


def permissions(
    account: str, region: str, partition: str, bucket: str, name: str, repository: str | None
) -> Document:
    """``repository``: ARN of the image's; None for an agent that is a zip."""
    logs = f"arn:{partition}:logs:{region}:{account}:log-group:{LOGS}/{name}-*"
    out = [
        _allow(["s3:PutObject"], f"arn:{partition}:s3:::{bucket}/*"),
        _allow(
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
            logs,
            f"{logs}:log-stream:*",
        ),
        _allow(["logs:DescribeLogStreams"], logs),
        _allow(["logs:DescribeLogGroups"], f"arn:{partition}:logs:{region}:{account}:log-group:*"),
    ]
    if repository is None:
        archive = f"arn:{partition}:s3:::{bucket}/{CODE_PREFIX}/{name}/*"
        out += [
            _allow(["s3:GetObject"], archive),
            {**_allow(["s3:PutObject"], archive), "Effect": "Deny"},  # not its own code
        ]
    else:
        out += [
            _allow(["ecr:GetAuthorizationToken"], "*"),
            _allow(["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], repository),
        ]
    return _document(*out)


def _allow(actions: list[str], *resources: str) -> Document:
    return {"Effect": "Allow", "Action": actions, "Resource": list(resources)}


def _document(*statements: Document) -> Document:
    return {"Version": "2012-10-17", "Statement": list(statements)}
