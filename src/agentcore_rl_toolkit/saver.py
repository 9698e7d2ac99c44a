"""Saves results in S3 from inside an agent: patient with a store that fails, quick after a fork.

The saver owns the S3 client. It is made at the first save, so that constructing needs neither
credentials nor a region; it may be given instead. ``save`` blocks: it belongs in the rollout's own
thread. A client is never carried into a fork once it was used, and a warmed one only when the
session's AWS environment is the one it was made for. A store on this machine gets small results
without a client, see ``put``, unless one was given.
"""

from __future__ import annotations

import io
import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

from . import put
from .rollout import RolloutConfig

GIVE_UP_S = 300.0
"""How long a result is offered to a store that fails. The client can still ask the session."""
FIRST_WAIT_S = 0.2
MAX_WAIT_S = 20.0
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
SMALL_BYTES = 1024 * 1024
"""Sent at once; for what is larger the store is asked first."""

_REFUSED = {
    "AccessDenied": "allow s3:PutObject on {bucket}/* in the agent's execution role",
    "AllAccessDisabled": "allow s3:PutObject on {bucket}/* in the agent's execution role",
    "NoSuchBucket": "create the bucket {bucket}, or correct s3_bucket of the client",
    "InvalidBucketName": "correct s3_bucket of the client",
    "InvalidAccessKeyId": "give the agent valid credentials; on AWS, remove static ones",
    "SignatureDoesNotMatch": "give the agent valid credentials; on AWS, remove static ones",
    "EntityTooLarge": "return less from the handler",
    "ParamValidationError": "correct s3_bucket, exp_id and input_id of the client",
}
"""Store errors that no retry mends, and what does."""

RANDOM = random.SystemRandom()
"""Jitter that leaves the agent's seeded ``random`` alone and differs between forks."""


class Saver:
    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self._lock = threading.RLock()
        self._session: Any = None
        self._client: Any = None
        self._given = False
        self._warmed: tuple[dict[str, str], Any] | None = None

    @property
    def client(self) -> Any:
        with self._lock:
            if self._client is None:
                environment, client = self._warmed or (None, None)
                self._warmed = None
                same = environment == _aws_environment()
                self._client = client if same else self._new_client()
            return self._client

    @client.setter
    def client(self, client: Any) -> None:
        with self._lock:
            self._client, self._given = client, client is not None

    def _new_client(self, **credentials: str) -> Any:
        with self._lock:
            if self._session is None:
                self._session = boto3.Session()
            elsewhere = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
            config = Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": 1},  # save() retries, and longer
                s3={"addressing_style": "path" if elsewhere else "auto"},
            )
            region = os.environ.get("AWS_REGION")  # boto3 itself reads AWS_DEFAULT_REGION only
            client = self._session.client("s3", region_name=region, config=config, **credentials)
            client.meta.events.register("before-sign.s3.PutObject", _send_at_once)
            return client

    def warm(self) -> None:
        """Makes a client and rehearses a save, sending nothing."""
        known = "AWS_ACCESS_KEY_ID" in os.environ  # else the search for credentials may do I/O
        stand_in = {"aws_access_key_id": "warm", "aws_secret_access_key": "warm"}
        client = self._new_client(**({} if known else stand_in))
        client.meta.events.register("before-send.s3.PutObject", _no_send)
        client.put_object(Bucket="warm", Key="warm", Body=b"{}", ContentType="application/json")
        client.meta.events.unregister("before-send.s3.PutObject", _no_send)
        "localhost".encode("idna")  # the first connection imports this codec: 3 ms
        self._warmed = (_aws_environment(), client) if known else None

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        if not self._given:
            self._client = None

    def save(self, config: RolloutConfig, body: bytes) -> bool:
        """Offers the result to the store until it is taken, refused for good or too old."""
        deadline, wait = time.monotonic() + GIVE_UP_S, FIRST_WAIT_S
        while True:
            try:
                self._put(config, body)
                return True
            except Exception as error:  # noqa: BLE001  (whatever a client or a stand-in raises)
                remedy = _REFUSED.get(_code(error))
                if remedy is not None or time.monotonic() + wait > deadline:
                    self._log_loss(config, error, remedy or "the store kept failing")
                    return False
                self.logger.warning(
                    "key=<%s> wait_s=<%.1f> | saving failed, trying again: %s",
                    config.result_key,
                    wait,
                    error,
                )
                if isinstance(error, NoCredentialsError) and not self._given:
                    self._client = self._session = None  # they remember that there were none
            time.sleep(wait * RANDOM.uniform(0.5, 1.0))
            wait = min(wait * 2, MAX_WAIT_S)

    def _put(self, config: RolloutConfig, body: bytes) -> None:
        place = put.find() if not self._given and len(body) <= SMALL_BYTES else None
        if place is not None:
            put.put(place, config.s3_bucket, config.result_key, body)
            return
        self.client.put_object(
            Bucket=config.s3_bucket,
            Key=config.result_key,
            Body=body,
            ContentType="application/json",
        )

    def _log_loss(self, config: RolloutConfig, error: Exception, remedy: str) -> None:
        self.logger.error(
            "bucket=<%s> key=<%s> | result not saved: %s | %s; until the session ends a status "
            "request still returns it",
            config.s3_bucket,
            config.result_key,
            error,
            remedy.format(bucket=config.s3_bucket),
        )


def _code(error: Exception) -> str:
    if isinstance(error, put.Refused):
        return error.code
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return "ParamValidationError" if isinstance(error, ParamValidationError) else ""


def _aws_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.upper().startswith(("AWS_", "HTTP", "NO_PR"))}


def _send_at_once(request: Any, **kwargs: Any) -> None:
    """botocore asks the store before it sends a body of any size: one more round trip."""
    body = request.data
    if isinstance(body, io.BytesIO) and body.getbuffer().nbytes <= SMALL_BYTES:
        del request.headers["Expect"]  # as of a mail: nothing when it is not there


def _no_send(request: Any, **kwargs: Any) -> AWSResponse:
    return AWSResponse(request.url, 200, {}, _NoBody())


class _NoBody:
    def stream(self, **kwargs: Any) -> Iterator[bytes]:
        return iter(())
