"""Calls to AWS whose refusals say what to do."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)

from ..errors import ConfigError

DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden"}
EXPIRED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
}
ABSENT = {
    *("404", "NoSuchBucket", "NoSuchEntity", "RepositoryNotFoundException", "NoSuchKey"),
    *("ImageNotFoundException", "ResourceNotFoundException"),
}

ACTIONS = {
    "HeadBucket": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "HeadObject": "GetObject",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
}
"""Calls whose permission has another name."""
NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, TokenRetrievalError, ProfileNotFound)


def call(client: Any, operation: str, *, instead: str = "", **arguments: Any) -> dict[str, Any]:
    """``instead``: what somebody without the permission can do. ConfigError when AWS refuses."""
    try:
        answer: dict[str, Any] = getattr(client, operation)(**arguments)
        return answer
    except ClientError as error:
        raise _readable(client, operation, error, instead) from error
    except NO_CREDENTIALS as error:
        raise no_credentials(error) from error
    except EndpointConnectionError as error:
        raise ConfigError(f"AWS cannot be reached: {error}. Is --region right?") from error


def no_credentials(error: Exception) -> ConfigError:
    return ConfigError(
        f"no AWS credentials ({error}): run 'aws configure' or 'aws sso login', or set AWS_PROFILE"
    )


def find(client: Any, operation: str, **arguments: Any) -> dict[str, Any] | None:
    """None when what is asked for is not there."""
    try:
        return call(client, operation, **arguments)
    except ConfigError as error:
        cause = error.__cause__
        if isinstance(cause, ClientError) and code_of(cause) in ABSENT:
            return None
        raise


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _readable(client: Any, operation: str, error: ClientError, instead: str) -> ConfigError:
    service = client.meta.service_model.signing_name
    name = client.meta.method_to_api_mapping[operation]
    action = f"{service}:{ACTIONS.get(name, name)}"
    said = error.response.get("Error", {}).get("Message") or code_of(error)
    if code_of(error) in DENIED:
        other = f", or {instead}" if instead else ""
        return ConfigError(
            f"these credentials lack the permission {action}: ask for it{other}. AWS said: {said}"
        )
    if code_of(error) in EXPIRED:
        return ConfigError(
            f"the AWS credentials are expired or unknown: log in again ('aws sso login', or new "
            f"keys). AWS said: {said}"
        )
    return ConfigError(f"{action} failed with {code_of(error)}: {said}")
