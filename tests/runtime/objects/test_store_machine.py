"""The object store under random events, beside dictionaries that only remember what was written."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentcore_rl_toolkit.runtime.objects import Condition, ObjectStore, StoredObject
from agentcore_rl_toolkit.runtime.objects.refusal import Refused

BUCKETS = st.sampled_from(["one", "two"])
KEYS = st.sampled_from(["a", "a/", "a/b", "a/b/c", "a//b", "b", "é", "\U0010ffff", "..", "a%2Fb"])
DATA = st.binary(max_size=12)


def etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Store(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.store = ObjectStore(self.folder)
        self.model: dict[str, dict[str, bytes]] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(bucket=BUCKETS)
    def create_bucket(self, bucket: str) -> None:
        if bucket in self.model:
            with pytest.raises(Refused, match="BucketAlreadyOwnedByYou"):
                self.store.create_bucket(bucket)
        else:
            self.store.create_bucket(bucket)
            self.model[bucket] = {}

    @precondition(lambda self: self.model)
    @rule(bucket=BUCKETS)
    def delete_bucket(self, bucket: str) -> None:
        if self.model.get(bucket) == {}:
            self.store.delete_bucket(bucket)
            del self.model[bucket]
        else:
            with pytest.raises(Refused, match=r"BucketNotEmpty|NoSuchBucket"):
                self.store.delete_bucket(bucket)

    def commit(self, bucket: str, key: str, data: bytes, condition: Condition | None) -> bool:
        draft = self.store.draft()
        try:
            draft.write(data)
            wanted = StoredObject(bucket, key, draft.size, draft.md5.hex(), 0)
            return self.store.commit(wanted, self.store.seal(wanted, draft), condition)[1]
        finally:
            draft.discard()

    @precondition(lambda self: self.model)
    @rule(bucket=BUCKETS, key=KEYS, data=DATA)
    def put(self, bucket: str, key: str, data: bytes) -> None:
        if bucket not in self.model:
            with pytest.raises(Refused, match="NoSuchBucket"):
                self.commit(bucket, key, data, None)
            return
        assert self.commit(bucket, key, data, None)
        self.model[bucket][key] = data

    @precondition(lambda self: any(self.model.values()))
    @rule(key=KEYS, data=DATA, kind=st.sampled_from(["absent", "same", "other", "once"]))
    def put_on_condition(self, key: str, data: bytes, kind: str) -> None:
        bucket = next(name for name, objects in self.model.items() if objects)
        there = self.model[bucket].get(key)
        condition, may = {
            "absent": (Condition(absent=True), there is None),
            "same": (Condition(etag=etag(there or b"")), there is not None),
            "other": (Condition(etag=etag(b"never written so")), False),
            "once": (Condition(once=True), there is None or there == data),
        }[kind]
        if may:
            written = self.commit(bucket, key, data, condition)
            assert written == (kind != "once" or there is None)
            self.model[bucket][key] = data
        else:
            with pytest.raises(Refused):
                self.commit(bucket, key, data, condition)

    @precondition(lambda self: any(self.model.values()))
    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        bucket = next(name for name, objects in self.model.items() if objects)
        was = self.model[bucket].pop(key, None) is not None
        assert self.store.delete(bucket, key) is was

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = ObjectStore(self.folder)

    @invariant()
    def what_was_written_is_there_and_nothing_else(self) -> None:
        if not hasattr(self, "store"):
            return
        assert [bucket.name for bucket in self.store.buckets()] == sorted(self.model)
        for bucket, objects in self.model.items():
            assert self.store.count(bucket) == len(objects)
            for key, data in objects.items():
                assert self.store.read(bucket, key) == data
                assert self.store.head(bucket, key).etag == etag(data)

    @precondition(lambda self: self.model)
    @rule(prefix=st.sampled_from(["", "a", "a/", "zz"]), size=st.integers(1, 3))
    def list_in_pages(self, prefix: str, size: int) -> None:
        for bucket, objects in self.model.items():
            found: list[str] = []
            after = ""
            while True:
                page = self.store.list(bucket, prefix=prefix, after=after, max_keys=size)
                found += page.keys
                if not page.truncated:
                    break
                after = found[-1]
            assert found == sorted(key for key in objects if key.startswith(prefix))

    @invariant()
    def nothing_lies_outside_the_folder_of_a_bucket(self) -> None:
        if not hasattr(self, "store"):
            return
        names = {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}
        assert names == set(self.model)


TestStore = Store.TestCase
TestStore.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True
)
