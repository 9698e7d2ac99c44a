from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from agentcore_rl_toolkit.dashboard import DashboardServer
from agentcore_rl_toolkit.runtime.thread import RuntimeThread

from ..runtime.conftest import Aws
from .browser import Visitor, chromium, serving
from .sample import whole


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one run, ``one``, that has ended."""
    base = tmp_path / "runs"
    base.mkdir()
    whole(base / "one").close()
    return base


@pytest.fixture
async def dashboard(runs: Path) -> AsyncIterator[DashboardServer]:
    async with DashboardServer(runs, port=0) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    visitor.close()


@pytest.fixture
def url(runs: Path) -> Iterator[str]:
    """Of a dashboard of those runs, for a browser."""
    with serving(runs) as url:
        yield url


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A local runtime with one session, whose agent has printed something: its URL and the id."""
    with RuntimeThread(home=tmp_path / "home") as runtime:
        aws, session_id = Aws(runtime.url), str(uuid.uuid4())
        aws.ask(aws.deploy(), {"say": "hello from the agent"}, session_id)
        yield runtime.url, session_id
        aws.close()
