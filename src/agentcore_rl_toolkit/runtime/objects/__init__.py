"""The object store of the local runtime: the subset of S3 that results need, on disk."""

from .refusal import Refused
from .server import ROUTE, RUNNER_OPTIONS, ObjectServer, Scope
from .store import Condition, ObjectStore, StoredObject

__all__ = [
    "ROUTE",
    "RUNNER_OPTIONS",
    "Condition",
    "ObjectServer",
    "ObjectStore",
    "Refused",
    "Scope",
    "StoredObject",
]
