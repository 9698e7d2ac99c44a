"""What the object store says no with: S3's own error codes, so that boto3 maps them.

The store, the request body and the HTTP face all raise ``Refused``; only the HTTP face turns it
into a status and an XML document.
"""

from __future__ import annotations

from ...errors import RuntimeServiceError

STATUS = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "BadDigest": 400,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "IncompleteBody": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidDigest": 400,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidToken": 400,
    "InvalidURI": 400,
    "KeyTooLongError": 400,
    "MalformedXML": 400,
    "MetadataTooLarge": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "NotModified": 304,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403,
    "XAmzContentSHA256Mismatch": 400,
}


class Refused(RuntimeServiceError):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message, self.status = code, message, STATUS[code]
        self.headers: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def no_such_bucket(name: str) -> Refused:
    return Refused("NoSuchBucket", f"The specified bucket does not exist: {name}")


def no_such_key() -> Refused:
    return Refused("NoSuchKey", "The specified key does not exist.")


def no_such_upload() -> Refused:
    return Refused(
        "NoSuchUpload",
        "The specified upload does not exist. It may have been aborted or completed.",
    )


def precondition(header: str) -> Refused:
    return Refused(
        "PreconditionFailed",
        f"At least one of the pre-conditions you specified did not hold: {header}",
    )
