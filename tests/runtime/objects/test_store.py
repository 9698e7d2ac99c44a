"""Objects on disk: what is visible, what survives, and what a listing costs."""

from __future__ import annotations

import hashlib
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_rl_toolkit.errors import RuntimeServiceError
from agentcore_rl_toolkit.runtime.objects import Condition, ObjectStore, StoredObject
from agentcore_rl_toolkit.runtime.objects.listing import Page, end_of, read_token, take
from agentcore_rl_toolkit.runtime.objects.refusal import Refused

SERVER = """
import asyncio, sys
from pathlib import Path
from aiohttp import web
from agentcore_rl_toolkit.runtime.objects import ROUTE, RUNNER_OPTIONS, ObjectServer
from agentcore_rl_toolkit.runtime.objects import ObjectStore

async def main():
    store = ObjectStore(Path(sys.argv[1]))
    store.ensure_bucket("bkt")
    app = web.Application()
    app.router.add_route("*", ROUTE, ObjectServer(store).handle)
    runner = web.AppRunner(app, **RUNNER_OPTIONS)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def server_process(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    opened = ObjectStore(tmp_path / "objects")
    opened.create_bucket("bkt")
    yield opened
    opened.close()


def reopened(store: ObjectStore) -> ObjectStore:
    store.close()
    return ObjectStore(store.folder)


# --- what survives ----------------------------------------------------------------------------


def test_everything_about_an_object_survives_a_restart(
    serve: Any, connect: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "objects"
    described = {"ContentType": "text/x", "Metadata": {"m": "ü".encode().hex()}, "Tagging": "a=b"}

    def look(client: Any) -> list[Any]:
        head = client.head_object(Bucket="bkt", Key="dir/../k", ChecksumMode="ENABLED")
        listed = client.list_objects_v2(Bucket="bkt")
        return [
            {k: v for k, v in head.items() if k != "ResponseMetadata"},
            listed["Contents"],
            client.list_buckets()["Buckets"],
            client.get_object(Bucket="bkt", Key="dir/../k")["Body"].read(),
        ]

    with serve(folder) as service:
        client = connect(service.url)
        client.create_bucket(Bucket="bkt")
        client.put_object(Bucket="bkt", Key="dir/../k", Body=b"content", **described)
        client.put_object(Bucket="bkt", Key="gone", Body=b"")
        client.delete_object(Bucket="bkt", Key="gone")
        before = look(client)
        client.close()
    with serve(folder) as service:
        client = connect(service.url)
        assert look(client) == before
        client.close()


def test_an_upload_in_parts_goes_on_after_a_restart(
    serve: Any, connect: Any, tmp_path: Path
) -> None:
    folder, body = tmp_path / "objects", os.urandom(5 * 1024**2)
    with serve(folder) as service:
        client = connect(service.url)
        client.create_bucket(Bucket="bkt")
        upload = client.create_multipart_upload(Bucket="bkt", Key="k", ContentType="text/x")
        where = {"Bucket": "bkt", "Key": "k", "UploadId": upload["UploadId"]}
        first = client.upload_part(**where, PartNumber=1, Body=body)["ETag"]
        client.close()
    with serve(folder) as service:
        client = connect(service.url)
        second = client.upload_part(**where, PartNumber=2, Body=b"end")["ETag"]
        parts = [{"PartNumber": 1, "ETag": first}, {"PartNumber": 2, "ETag": second}]
        client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
        got = client.get_object(Bucket="bkt", Key="k")
        assert (got["Body"].read(), got["ContentType"]) == (body + b"end", "text/x")
        client.close()


def content_of(key: str) -> bytes:
    """Some small, some through the temporary file."""
    seed = hashlib.sha256(key.encode()).digest()
    return seed * (1 if seed[0] % 4 else 50_000)


def put_until_killed(port: int, name: str, answered: set[str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        for n in range(100_000):
            key = f"{name}/{n}"
            connection.request("PUT", f"/bkt/{key}", content_of(key))
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                answered.add(key)
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()


@pytest.mark.parametrize("puts", [40, 200])
def test_kill_9_in_the_middle_of_puts_loses_no_answered_object_and_shows_no_half_one(
    tmp_path: Path, puts: int
) -> None:
    folder, answered = tmp_path / "objects", set[str]()
    with server_process(folder) as (process, port):
        threads = [
            threading.Thread(target=put_until_killed, args=(port, f"t{n}", answered))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        while len(answered) < puts:
            assert any(thread.is_alive() for thread in threads)
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
    store = ObjectStore(folder)
    try:
        assert list((folder / ".tmp").iterdir()) == []
        keys = everything(store)
        assert answered <= set(keys)
        for key in keys:
            assert store.read("bkt", key) == content_of(key)
            assert store.head("bkt", key).etag == hashlib.md5(content_of(key)).hexdigest()
    finally:
        store.close()


def everything(store: ObjectStore) -> list[str]:
    keys: list[str] = []
    page = Page(truncated=True)
    while page.truncated:
        page = store.list("bkt", after=keys[-1] if keys else "")
        keys += page.keys
    return keys


def test_a_large_put_does_not_grow_the_servers_memory(tmp_path: Path) -> None:
    size = 100 * 1024**2

    def peak(pid: int) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    with server_process(tmp_path / "objects") as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", "/bkt/warm", bytes(2 * 1024**2))
        connection.getresponse().read()
        before = peak(process.pid)
        headers = {"Content-Length": str(size)}
        connection.request("PUT", "/bkt/big", (bytes(1 << 20) for _ in range(100)), headers)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        connection.request("GET", "/bkt/big")
        response = connection.getresponse()
        assert sum(len(block) for block in iter(lambda: response.read(1 << 20), b"")) == size
        assert peak(process.pid) - before < 24 * 1024**2
        connection.close()


def test_a_damaged_file_is_not_served_and_can_be_written_again(store: ObjectStore) -> None:
    for key in ("cut", "flipped", "empty", "whole"):
        store.put("bkt", key, b"content")
    cut, flipped, empty = (Path(store._path("bkt", key)) for key in ("cut", "flipped", "empty"))
    cut.write_bytes(cut.read_bytes()[3:])
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"\xff")
    empty.write_bytes(b"")
    store = reopened(store)
    try:
        assert everything(store) == ["whole"]
        store.put("bkt", "cut", b"again")
        assert store.read("bkt", "cut") == b"again"
    finally:
        store.close()


def test_a_second_store_on_the_same_folder_is_refused(store: ObjectStore) -> None:
    with pytest.raises(RuntimeServiceError, match="another runtime"):
        ObjectStore(store.folder)


def test_a_reader_keeps_the_object_that_it_opened(store: ObjectStore) -> None:
    found = store.put("bkt", "k", b"first")
    file = store.open(found)
    try:
        store.put("bkt", "k", b"second")
        store.delete("bkt", "k")
        assert os.pread(file, found.size, 0) == b"first"
    finally:
        os.close(file)


def test_a_store_that_syncs_stores_the_same(tmp_path: Path, serve: Any) -> None:
    with serve(tmp_path / "objects", sync=True) as service:
        service.on_loop(lambda: service.store.create_bucket("bkt"))
        assert service.request("PUT", "/bkt/k", b"hello")[0] == 200
        assert service.request("GET", "/bkt/k")[2] == b"hello"


def test_a_write_condition_is_checked_at_the_moment_of_the_rename(store: ObjectStore) -> None:
    draft = store.draft()
    draft.write(b"late")
    wanted = StoredObject("bkt", "k", 4, draft.md5.hex(), 0)
    sealed = store.seal(wanted, draft)
    store.put("bkt", "k", b"early")
    with pytest.raises(Refused, match="PreconditionFailed"):
        store.commit(wanted, sealed, Condition(absent=True))
    draft.discard()
    assert store.read("bkt", "k") == b"early"
    assert list((store.folder / ".tmp").iterdir()) == []


# --- listing ----------------------------------------------------------------------------------

NAMES = st.text("ab/\u00e9\U0010ffff", min_size=1, max_size=6)


def plain_listing(keys: list[str], prefix: str, delimiter: str) -> list[str]:
    out: list[str] = []
    for key in keys:
        if not key.startswith(prefix):
            continue
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        item = key if cut < 0 else key[: cut + len(delimiter)]
        if not out or out[-1] != item or cut < 0:
            out.append(item)
    return out


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    names=st.sets(NAMES, max_size=30),
    prefix=st.text("ab/\U0010ffff", max_size=2),
    delimiter=st.sampled_from(["", "/", "ab", "\U0010ffff"]),
    size=st.integers(1, 5),
)
def test_pages_together_are_the_plain_listing(
    names: set[str], prefix: str, delimiter: str, size: int
) -> None:
    keys = sorted(names)
    seen: list[str] = []
    page = take(keys, prefix, delimiter, max_keys=size)
    seen += sorted(page.keys + page.prefixes)
    while page.truncated:
        after, after_prefix = read_token(page.token)
        page = take(keys, prefix, delimiter, after, after_prefix, size)
        assert 1 <= len(page.keys) + len(page.prefixes) <= size
        seen += sorted(page.keys + page.prefixes)
    assert seen == plain_listing(keys, prefix, delimiter)


class Counting(list[str]):
    looked = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked += 1
        return super().__getitem__(at)


def test_a_page_costs_what_it_returns_and_not_what_the_bucket_holds() -> None:
    keys = Counting(f"{n % 100:03d}/{n:06d}" for n in sorted(range(100_000), key=lambda n: n % 100))
    assert len(take(keys, delimiter="/").prefixes) == 100
    assert keys.looked < 100 * 2 * 18 + 100
    keys.looked = 0
    assert len(take(keys, prefix="050/", max_keys=10).keys) == 10
    assert keys.looked < 100


@pytest.mark.parametrize("token", ["?", "", "a", "eA==", "ü"])
def test_a_token_of_somebody_else_is_refused(token: str) -> None:
    with pytest.raises(Refused, match="InvalidArgument"):
        read_token(token)


def test_the_end_of_a_prefix_of_the_last_code_point_is_the_end() -> None:
    keys = ["a", "\U0010ffff", "\U0010ffff\U0010ffff"]
    assert end_of(keys, "\U0010ffff") == 3
    assert end_of(keys, "") == 3
    assert end_of(keys, "a") == 1


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("pd"), NAMES), max_size=30))
def test_the_index_agrees_with_the_disk(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    store = ObjectStore(tmp_path_factory.mktemp("objects"))
    store.create_bucket("bkt")
    model: dict[str, bytes] = {}
    for n, (step, key) in enumerate(steps):
        if step == "p":
            model[key] = b"%d" % n
            store.put("bkt", key, model[key])
        else:
            assert store.delete("bkt", key) == (model.pop(key, None) is not None)
    assert everything(store) == sorted(model)
    store = reopened(store)
    assert {key: store.read("bkt", key) for key in everything(store)} == model
    store.close()
