"""Uploads in parts: where the parts wait until they become one object.

``{folder}/.uploads/{id}/`` holds ``upload.json`` and one file a part, in the object layout, so an
upload survives a restart and its parts are as whole as objects are. Uploads that nobody finished
for a week are removed at start. Called from the event loop; joining runs in a thread.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from .draft import ALGORITHMS, Draft
from .refusal import Refused, no_such_bucket, no_such_upload
from .store import ObjectStore, StoredObject, check_key, load_record

MIN_PART_BYTES = 5 * 1024**2
"""Of every part but the last, as in S3."""
MAX_PARTS = 10_000
ABANDONED_S = 7 * 24 * 3600
_BLOCK_BYTES = 1 << 20


@dataclass
class Upload:
    id: str
    template: StoredObject
    """What the object will be, but for size, etag and checksum."""
    algorithm: str | None
    full_object: bool
    """The checksum is over the whole content rather than over the parts' checksums."""
    parts: dict[int, StoredObject] = field(default_factory=dict)


@dataclass(frozen=True)
class WantedPart:
    number: int
    etag: str
    checksum: str | None


class Uploads:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._folder = store.folder / ".uploads"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._uploads: dict[str, Upload] = {}
        for entry in list(self._folder.iterdir()):
            self._load(entry)

    def create(self, template: StoredObject, algorithm: str | None, full_object: bool) -> Upload:
        check_key(template.key)
        if not self._store.has_bucket(template.bucket):
            raise no_such_bucket(template.bucket)
        upload = Upload(secrets.token_hex(16), template, algorithm, full_object)
        folder = self._folder / upload.id
        folder.mkdir(mode=0o700)
        unready = folder / "upload.tmp"
        unready.write_bytes(
            msgspec.json.encode(
                {"template": template, "algorithm": algorithm, "full_object": full_object}
            )
        )
        unready.rename(folder / "upload.json")
        self._uploads[upload.id] = upload
        return upload

    def get(self, upload_id: str, bucket: str, key: str) -> Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or (upload.template.bucket, upload.template.key) != (bucket, key):
            raise no_such_upload()
        return upload

    def of_bucket(self, bucket: str) -> list[Upload]:
        found = [u for u in self._uploads.values() if u.template.bucket == bucket]
        return sorted(found, key=lambda upload: (upload.template.key, upload.template.modified))

    def add_part(self, upload: Upload, number: int, part: StoredObject, sealed: str) -> None:
        if self._uploads.get(upload.id) is not upload:
            raise no_such_upload()
        os.rename(sealed, self._part_path(upload, number))
        upload.parts[number] = part

    def abort(self, upload: Upload) -> None:
        self._uploads.pop(upload.id, None)
        shutil.rmtree(self._folder / upload.id, ignore_errors=True)

    def begin_join(self, upload: Upload, wanted: Sequence[WantedPart]) -> list[StoredObject]:
        """Checks the wanted parts and closes the upload to everyone else until the end of it."""
        if [p.number for p in wanted] != sorted({p.number for p in wanted}):
            raise Refused("InvalidPartOrder", "The parts must be in ascending order, each once.")
        parts = [self._checked(upload, want) for want in wanted]
        if any(part.size < MIN_PART_BYTES for part in parts[:-1]):
            raise Refused("EntityTooSmall", "Every part but the last must be at least 5 MiB.")
        if sum(part.size for part in parts) > self._store.max_object_bytes:
            raise Refused("EntityTooLarge", "Your upload exceeds the maximum allowed size.")
        del self._uploads[upload.id]
        return parts

    def give_back(self, upload: Upload) -> None:
        """After a join that failed: the upload may be completed again."""
        self._uploads[upload.id] = upload

    def join(self, upload: Upload, wanted: Sequence[WantedPart], draft: Draft) -> None:
        """Runs in a thread."""
        for want in wanted:
            left = upload.parts[want.number].size
            with self._part_path(upload, want.number).open("rb") as file:
                while left and (block := file.read(min(left, _BLOCK_BYTES))):
                    draft.write(block)
                    left -= len(block)

    def _checked(self, upload: Upload, want: WantedPart) -> StoredObject:
        part = upload.parts.get(want.number)
        known = part.checksum[1] if part is not None and part.checksum else None
        if part is None or part.etag != want.etag or want.checksum not in (None, known):
            raise Refused(
                "InvalidPart",
                f"Part {want.number} could not be found, or its ETag or checksum is another.",
            )
        return part

    def _part_path(self, upload: Upload, number: int) -> Path:
        return self._folder / upload.id / f"{number:05d}"

    def _load(self, folder: Path) -> None:
        try:
            if folder.stat().st_mtime < time.time() - ABANDONED_S:
                raise FileNotFoundError(folder)
            record = msgspec.json.decode((folder / "upload.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            shutil.rmtree(folder, ignore_errors=True)
            return
        template = msgspec.convert(record["template"], StoredObject)
        upload = Upload(folder.name, template, record["algorithm"], record["full_object"])
        if not self._store.has_bucket(template.bucket):
            shutil.rmtree(folder, ignore_errors=True)
            return
        decoder = msgspec.json.Decoder(StoredObject)
        for path in folder.iterdir():
            if re.fullmatch(r"\d{5}", path.name) and (part := load_record(str(path), decoder)):
                upload.parts[int(path.name)] = part
        self._uploads[upload.id] = upload


def joined_etag(parts: Sequence[StoredObject]) -> str:
    digests = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


def joined_checksum(
    upload: Upload, parts: Sequence[StoredObject], draft: Draft
) -> tuple[str, str] | None:
    if upload.algorithm is None:
        return None
    if upload.full_object:
        return upload.algorithm, draft.checksum_text(upload.algorithm)
    if any(part.checksum is None or part.checksum[0] != upload.algorithm for part in parts):
        raise Refused("InvalidRequest", f"Not every part came with a {upload.algorithm} checksum.")
    hasher = ALGORITHMS[upload.algorithm][0]()
    for part in parts:
        assert part.checksum is not None
        hasher.update(base64.b64decode(part.checksum[1]))
    return upload.algorithm, f"{base64.b64encode(hasher.digest()).decode()}-{len(parts)}"
