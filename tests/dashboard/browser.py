"""Debian's chromium, driven by Playwright, and a dashboard for it to open.

Playwright's synchronous calls hold an event loop of their own in the thread that makes them, so
tests of the page are plain functions, and what they look at is served from another thread.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from agentcore_rl_toolkit.dashboard import DashboardServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_CHROMIUM = "no chromium here: make browser"
WIDE: ViewportSize = {"width": 1280, "height": 800}
WAIT_MS = 20_000
VIEWS = ("#/", "#/run/one", "#/run/one/rollout/1", "#/run/one/rollout/1/tokens")
"""One of each kind, of the run that ``sample.whole`` writes."""
QUIET = ["--proxy-server=direct://", "--disable-dev-shm-usage", "--no-pings"]

expect.set_options(timeout=WAIT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for many pages. Its own sandbox does not work for root."""
    assert CHROMIUM is not None, NO_CHROMIUM
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=QUIET, chromium_sandbox=os.geteuid() != 0
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A page of its own, with what it asked for and what it complained about."""

    def __init__(self, browser: Browser) -> None:
        self._context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
        self._context.set_default_timeout(WAIT_MS)
        self.page: Page = self._context.new_page()
        self.complaints: list[str] = []
        """What the page logged, threw, or was refused by its own policy."""
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url: str) -> Page:
        """Goes there and waits until the view says that it is shown."""
        self.page.goto("about:blank")
        self.page.goto(url)
        self.shows("#" + (url.partition("#")[2] or "/"))
        return self.page

    def shows(self, place: str) -> None:
        expect(self.page.locator("#view")).to_have_attribute("data-ready", place)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_text_contents()

    def close(self) -> None:
        self._context.close()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The dashboard of a folder in a thread of its own; gives its address."""
    urls: list[str] = []
    ready, ended = threading.Event(), asyncio.Event()
    loop: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loop.append(asyncio.get_running_loop())
        async with DashboardServer(folder, port=0) as server:
            urls.append(server.url)
            ready.set()
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="dashboard")
    thread.start()
    ready.wait()
    assert urls, "the dashboard did not start"
    try:
        yield urls[0]
    finally:
        loop[0].call_soon_threadsafe(ended.set)
        thread.join()
