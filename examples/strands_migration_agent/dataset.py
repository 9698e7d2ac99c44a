"""Projects and their tasks, in MigrationBench's layout, on disk or in S3.

    SOURCE/{owner__name}/{owner__name}.tar.gz     the repository at its base commit
    SOURCE/{owner__name}/metadata.json            base_commit, num_test_cases, …

``SOURCE`` is a folder or ``s3://bucket/prefix``. A project may also be a plain folder: the ones in
``projects`` are, and are named relative to this file.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROMPT = (
    "Please migrate the Java 8 project in {repo_path} to Java 17. It has {num_tests} test classes."
)


def tasks(source: str) -> Iterator[dict[str, Any]]:
    """The payloads of everything in MigrationBench's layout under ``source``."""
    for uri in _archives(source):
        metadata = f"{uri.rpartition('/')[0]}/metadata.json"
        yield {"prompt": PROMPT, "repo_uri": uri, "metadata_uri": metadata}


def prompt_of(payload: dict[str, Any], folder: Path, tests: int) -> str:
    """Only the two names are filled in: ``str.format`` would let a prompt read this process."""
    text = str(payload["prompt"]).replace("{repo_path}", str(folder))
    return text.replace("{num_tests}", str(tests))


def load_repo(uri: str, into: Path) -> Path:
    """A copy of a project that may be changed."""
    folder = into / uri.rstrip("/").rpartition("/")[2].removesuffix(".tar.gz")
    if not uri.endswith(".tar.gz"):
        return Path(shutil.copytree(HERE / uri, folder, ignore=shutil.ignore_patterns("target")))
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_read(uri))) as archive:
        archive.extractall(folder, filter="data")
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def load_metadata(uri: str | None) -> dict[str, Any]:
    return dict(json.loads(_read(uri))) if uri else {}


def pack(folder: Path, source: str, metadata: dict[str, Any]) -> str:
    """Puts a project into the layout; returns the archive's address."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    base = f"{source.rstrip('/')}/{folder.name}"
    _write(f"{base}/{folder.name}.tar.gz", packed.getvalue())
    _write(f"{base}/metadata.json", json.dumps(metadata).encode())
    return f"{base}/{folder.name}.tar.gz"


def _archives(source: str) -> list[str]:
    if not source.startswith("s3://"):
        return sorted(map(str, Path(source).glob("*/*.tar.gz")))
    bucket, prefix = _bucket_and_key(source.rstrip("/") + "/")
    pages = _s3().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
    return [f"s3://{bucket}/{key}" for key in sorted(keys) if key.endswith(".tar.gz")]


def _read(uri: str) -> bytes:
    if not uri.startswith("s3://"):
        return (HERE / uri).read_bytes()
    bucket, key = _bucket_and_key(uri)
    return bytes(_s3().get_object(Bucket=bucket, Key=key)["Body"].read())


def _write(uri: str, content: bytes) -> None:
    if uri.startswith("s3://"):
        bucket, key = _bucket_and_key(uri)
        _s3().put_object(Bucket=bucket, Key=key, Body=content)
        return
    Path(uri).parent.mkdir(parents=True, exist_ok=True)
    Path(uri).write_bytes(content)


def _bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def _s3() -> Any:
    import boto3

    return boto3.client("s3")
