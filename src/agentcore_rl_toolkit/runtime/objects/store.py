"""Objects on disk: buckets, keys and whole objects, nothing of HTTP.

Layout: ``{folder}/{bucket}/{2 hex}/{62 hex}`` where the hex is the SHA-256 of the key. A key is
therefore never a path: ``..``, a key that is the prefix of another, 1,024 bytes of one key and
file systems that ignore case are all the same to it. The key itself is in the object's record.

Invariant: a visible object is whole. Content and metadata are one file, completed under a
temporary name and renamed into place, so a reader, a restart and a ``kill -9`` at any moment see
the old object, the new one, or none. An answered put survives the death of the process; it
survives a power cut only with ``sync=True``, which waits for the disk before the put is answered
(and a file that a power cut left damaged is recognised, reported and not served).

The index of keys is in memory, sorted, and is read back from the files at start. One process owns
a folder (a lock says so) and one thread, the event loop's, calls the methods; content of more
than a little is written by ``draft.Draft`` in the ``pool``'s threads.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import logging
import os
import re
import shutil
import time
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import RuntimeServiceError
from .draft import SPILL_BYTES, Draft, read_record
from .listing import MAX_KEYS, Page, take
from .refusal import Refused, no_such_bucket, no_such_key, precondition

logger = logging.getLogger(__name__)

RESERVED_BUCKETS = frozenset({"runtimes", "tags", "_art"})
"""First path segments that the runtime uses for itself."""
MAX_KEY_BYTES = 1024
MAX_OBJECT_BYTES = 5 * 1024**3
"""S3's bound of one put."""
DEFAULT_CONTENT_TYPE = "binary/octet-stream"

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")


class StoredObject(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Everything about an object but its content; what the file's record holds."""

    bucket: str
    key: str
    size: int
    etag: str
    """Without the quotes."""
    modified: int
    """Unix seconds: the resolution of Last-Modified, so that every answer agrees."""
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    """Cache-Control and its like, given back as they were sent."""
    checksum: tuple[str, str] | None = None
    """(algorithm, value as S3 writes it); a composite one ends in ``-<parts>``."""
    content: bytes | None = None
    """Only in the copy that ``on_put`` gets, and only when small."""

    @property
    def checksum_type(self) -> str:
        return "COMPOSITE" if self.checksum and "-" in self.checksum[1] else "FULL_OBJECT"


class Bucket(NamedTuple):
    name: str
    created: int


@dataclass(frozen=True)
class Condition:
    """What must hold at the moment of the write; checked with no await before the rename."""

    absent: bool = False
    etag: str | None = None
    once: bool = False
    """The first write wins; the same content again is accepted and changes nothing."""

    def check(self, existing: StoredObject | None) -> None:
        if self.absent and existing is not None:
            raise precondition("If-None-Match")
        if self.etag is not None:
            if existing is None:
                raise no_such_key()
            if self.etag not in ("*", existing.etag):
                raise precondition("If-Match")


@dataclass
class _Index:
    created: int
    objects: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)


class ObjectStore:
    def __init__(
        self, folder: Path, *, sync: bool = False, max_object_bytes: int = MAX_OBJECT_BYTES
    ) -> None:
        self.folder = folder
        self._root = str(folder)
        self.sync = sync
        self.max_object_bytes = max_object_bytes
        self.pool = ThreadPoolExecutor(2, thread_name_prefix="objects")
        self._buckets: dict[str, _Index] = {}
        self._serial = itertools.count()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _lock(folder)
        self._temporary = folder / ".tmp"
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(mode=0o700, exist_ok=True)
        self._load()

    def close(self) -> None:
        self.pool.shutdown()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- buckets ------------------------------------------------------------------------------

    def buckets(self) -> list[Bucket]:
        return [Bucket(name, self._buckets[name].created) for name in sorted(self._buckets)]

    def has_bucket(self, name: str) -> bool:
        return name in self._buckets

    def create_bucket(self, name: str) -> None:
        check_bucket_name(name)
        if name in self._buckets:
            raise Refused("BucketAlreadyOwnedByYou", f"You already own the bucket {name}.")
        created = int(time.time())
        folder = self._temporary / f"{next(self._serial)}"
        folder.mkdir(mode=0o700)
        (folder / "bucket.json").touch(mode=0o600)
        (folder / "bucket.json").write_bytes(msgspec.json.encode({"created": created}))
        folder.rename(self.folder / name)
        self._buckets[name] = _Index(created)

    def ensure_bucket(self, name: str) -> None:
        if name not in self._buckets:
            self.create_bucket(name)

    def delete_bucket(self, name: str) -> None:
        if self._bucket(name).objects:
            raise Refused("BucketNotEmpty", "The bucket you tried to delete is not empty.")
        doomed = self._temporary / f"{next(self._serial)}"
        (self.folder / name).rename(doomed)
        del self._buckets[name]
        shutil.rmtree(doomed, ignore_errors=True)

    # --- objects ------------------------------------------------------------------------------

    def find(self, bucket: str, key: str) -> StoredObject | None:
        return self._bucket(bucket).objects.get(key)

    def head(self, bucket: str, key: str) -> StoredObject:
        found = self.find(bucket, key)
        if found is None:
            raise no_such_key()
        return found

    def count(self, bucket: str) -> int:
        return len(self._bucket(bucket).keys)

    def list(
        self,
        bucket: str,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        after_prefix: str = "",
        max_keys: int = MAX_KEYS,
    ) -> Page:
        return take(self._bucket(bucket).keys, prefix, delimiter, after, after_prefix, max_keys)

    def read(self, bucket: str, key: str) -> bytes:
        """The whole content, in memory."""
        found = self.head(bucket, key)
        file = self.open(found)
        try:
            return os.pread(file, found.size, 0)
        finally:
            os.close(file)

    def open(self, found: StoredObject) -> int:
        """A file descriptor whose first ``size`` bytes are the content, whatever happens next."""
        return os.open(self._path(found.bucket, found.key), os.O_RDONLY)

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
    ) -> StoredObject:
        """For callers in the runtime itself; blocks for as long as the write takes."""
        draft = self.draft()
        try:
            draft.write(data)
            wanted = StoredObject(
                bucket,
                key,
                draft.size,
                draft.md5.hex(),
                int(time.time()),
                content_type,
                tuple((metadata or {}).items()),
            )
            return self.commit(wanted, self.seal(wanted, draft))[0]
        finally:
            draft.discard()

    def draft(self, algorithms: Iterable[str] = (), spill: int = SPILL_BYTES) -> Draft:
        return Draft(f"{self._temporary}/{next(self._serial)}", algorithms, spill)

    def seal(self, wanted: StoredObject, draft: Draft) -> str:
        """The one step of a write that may take long; safe in a thread."""
        return draft.seal(msgspec.json.encode(wanted), self.sync)

    def commit(
        self, wanted: StoredObject, sealed: str, condition: Condition | None = None
    ) -> tuple[StoredObject, bool]:
        """Makes a sealed draft visible: (the object that is there now, whether it is this one)."""
        index = self._bucket(wanted.bucket)
        check_key(wanted.key)
        existing = index.objects.get(wanted.key)
        if condition is not None:
            if condition.once and existing is not None:
                if (existing.etag, existing.size) == (wanted.etag, wanted.size):
                    return existing, False
                raise precondition("the result of this session is already written")
            condition.check(existing)
        path = self._path(wanted.bucket, wanted.key)
        try:
            os.rename(sealed, path)
        except FileNotFoundError:
            Path(path).parent.mkdir(mode=0o700, exist_ok=True)
            os.rename(sealed, path)
        if self.sync:
            _sync_folder(Path(path).parent)
        if existing is None:
            insort(index.keys, wanted.key)
        index.objects[wanted.key] = wanted
        return wanted, True

    def delete(self, bucket: str, key: str) -> bool:
        """Whether there was one; deleting nothing is no error, as in S3."""
        index = self._bucket(bucket)
        if index.objects.pop(key, None) is None:
            return False
        del index.keys[bisect_left(index.keys, key)]
        Path(self._path(bucket, key)).unlink(missing_ok=True)
        return True

    # --- inside -------------------------------------------------------------------------------

    def _bucket(self, name: str) -> _Index:
        try:
            return self._buckets[name]
        except KeyError:
            raise no_such_bucket(name) from None

    def _path(self, bucket: str, key: str) -> str:
        """Text rather than Path, which would cost more than the file's system calls."""
        name = hashlib.sha256(key.encode()).hexdigest()
        return f"{self._root}/{bucket}/{name[:2]}/{name[2:]}"

    def _load(self) -> None:
        for entry in os.scandir(self.folder):
            marker = Path(entry.path, "bucket.json")
            if entry.name.startswith(".") or not marker.is_file():
                continue
            index = _Index(msgspec.json.decode(marker.read_bytes())["created"])
            for found in self._scan(entry.name):
                index.objects[found.key] = found
            index.keys = sorted(index.objects)
            self._buckets[entry.name] = index

    def _scan(self, bucket: str) -> Iterator[StoredObject]:
        decoder = msgspec.json.Decoder(StoredObject)
        for folder in os.scandir(f"{self._root}/{bucket}"):
            if not folder.is_dir():
                continue
            for entry in os.scandir(folder.path):
                found = load_record(entry.path, decoder)
                if found is None or self._path(bucket, found.key) != entry.path:
                    logger.warning("file=<%s> | damaged object is not served", entry.path)
                else:
                    yield found


def load_record(path: str, decoder: msgspec.json.Decoder[StoredObject]) -> StoredObject | None:
    """What an object file says of itself; None when it is not whole."""
    file = os.open(path, os.O_RDONLY)
    try:
        record, content_size = read_record(file)
        found = decoder.decode(record)
        return found if found.size == content_size else None
    except (msgspec.MsgspecError, UnicodeError):
        return None
    finally:
        os.close(file)


def check_bucket_name(name: str) -> None:
    if name in RESERVED_BUCKETS:
        raise Refused("InvalidBucketName", f"The runtime uses the name {name!r} for itself.")
    if not _BUCKET_NAME.fullmatch(name) or ".." in name:
        raise Refused(
            "InvalidBucketName",
            "The specified bucket is not valid: 3 to 63 of a-z, 0-9, '.' and '-'.",
        )


def check_key(key: str) -> None:
    if not key:
        raise Refused("InvalidRequest", "The key is empty.")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise Refused("KeyTooLongError", f"Your key is longer than {MAX_KEY_BYTES} bytes.")


def _lock(folder: Path) -> int:
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise RuntimeServiceError(
            f"another runtime is using {folder}: stop it, or set ART_HOME to another folder"
        ) from None
    return lock


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
