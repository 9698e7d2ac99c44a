"""Debian's chromium, driven through its own protocol: to open a page, ask it, look at it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--proxy-server=direct://",
]
START_S = 60.0
WAIT_S = 20.0


class Page:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.console: list[str] = []
        """What the page logged, threw, or was refused by its own policy."""
        self.requests: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                waiting = self._waiting.pop(event["id"])
                if not waiting.done():  # it may have been given up
                    waiting.set_result(event)
            elif event["method"] == "Runtime.exceptionThrown":
                self.console.append(json.dumps(event["params"]["exceptionDetails"])[:2000])
            elif event["method"] == "Log.entryAdded":
                self.console.append(event["params"]["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])

    async def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        done = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        answer = await asyncio.wait_for(done, WAIT_S)
        assert "error" not in answer, answer
        return answer["result"]

    async def evaluate(self, expression: str) -> Any:
        answer = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The first value of the expression that is true."""
        async with asyncio.timeout(WAIT_S):
            while not (value := await self.evaluate(expression)):
                await asyncio.sleep(0.02)
        return value

    async def open(self, url: str) -> None:
        """Goes there and waits until the view says that it is shown."""
        await self.send("Page.navigate", url="about:blank")
        await self.send("Page.navigate", url=url)
        wanted = json.dumps("#" + (url.partition("#")[2] or "/"))
        await self.until(f"document.getElementById('view')?.dataset.ready === {wanted}")

    async def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def scheme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def size(self, width: int, height: int) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def screenshot(self, path: Path) -> None:
        answer = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        await self._socket.close()
        await self._reading


@contextmanager
def chromium() -> Iterator[str]:
    """A browser for many pages; gives the address of its protocol."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        child = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"HOME": profile, "PATH": "/usr/bin:/bin", "TMPDIR": profile},
        )
        try:
            yield f"http://127.0.0.1:{_port(Path(profile) / 'DevToolsActivePort', child)}"
        finally:
            child.kill()
            child.wait()


@asynccontextmanager
async def new_page(browser: str) -> AsyncIterator[Page]:
    """A tab of its own, gone afterwards."""
    async with aiohttp.ClientSession() as http:
        async with http.put(f"{browser}/json/new?about:blank") as answer:
            tab = await answer.json()
        page = Page(await http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0))
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.send(f"{domain}.enable")
            yield page
        finally:
            await page.close()
            async with http.get(f"{browser}/json/close/{tab['id']}"):
                pass


def _port(path: Path, child: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_S
    while not path.exists() or not path.read_text().strip():
        assert child.poll() is None, "chromium ended before it listened"
        assert time.monotonic() < deadline, "chromium does not listen"
        time.sleep(0.02)
    return int(path.read_text().splitlines()[0])
