"""Milliseconds from navigation to a painted view, in Debian's chromium driven by Playwright.

Taken by the page's own clock: when an element is there, its frame is over. Each view is opened in
a profile that has seen nothing, in a browser that runs already.
"""

from __future__ import annotations

import os
import shutil

REPEATS = 5
WIDE = {"width": 1440, "height": 900}
NOTICE = """new MutationObserver((_, self) => {
  if (!document.querySelector(%r)) return;
  self.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.paintedAt = performance.now(); }));
}).observe(document, { childList: true, subtree: true })"""
PAINTED = """() => new Promise((done) => {
  const ask = () => (window.paintedAt ? done(window.paintedAt) : setTimeout(ask, 5));
  ask();
})"""


def open_views(views: dict[str, tuple[str, str]]) -> dict[str, list[float] | str]:
    """By name, of an address and the selector that has to be there; a string says why not."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return dict.fromkeys(views, "playwright is not installed")
    if program is None:
        return dict.fromkeys(views, "chromium is not installed")
    found: dict[str, list[float] | str] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--proxy-server=direct://", "--disable-dev-shm-usage"],
            chromium_sandbox=os.geteuid() != 0,
        )
        for name, (url, selector) in views.items():
            taken: list[float] = []
            for _ in range(REPEATS):
                context = browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
                context.add_init_script(NOTICE % selector)
                page = context.new_page()
                page.goto(url, wait_until="commit")
                taken.append(page.evaluate(PAINTED))
                context.close()
            found[name] = taken
        browser.close()
    return found
