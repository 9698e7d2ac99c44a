"""The page for those who use no mouse, or do not see it well, or at all."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from .browser import CHROMIUM, NO_CHROMIUM, VIEWS, Visitor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)

LACKS = (Path(__file__).parent / "access.js").read_text()

FOCUS = """() => {
  const e = document.activeElement;
  const text = (e.textContent || e.ariaLabel || e.id).trim();
  return e === document.body ? null : { text, ring: getComputedStyle(e).outlineStyle !== "none" };
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_everything_has_a_name_and_a_place(url: str, visitor: Visitor, view: str) -> None:
    page = visitor.open(f"{url}/{view}")
    lacks = page.evaluate(LACKS)
    levels = lacks.pop("headings")
    assert lacks == {"nameless": [], "twice": [], "unscoped": [], "faint": []}
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title().endswith("art")
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("navigation", name="Where you are")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    url: str, visitor: Visitor, scheme: Any
) -> None:
    visitor.page.emulate_media(color_scheme=scheme)
    for view in VIEWS:
        page = visitor.open(f"{url}/{view}")
        assert page.evaluate(LACKS)["faint"] == [], view
    for number in "2345":
        visitor.press(number)
        assert visitor.page.evaluate(LACKS)["faint"] == [], f"tokens by colour {number}"


def test_the_short_keys_reach_every_view(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/")
    for key, expected in [
        ("j", "#/"),
        ("Enter", "#/run/one"),
        ("j", "#/run/one"),
        ("Enter", "#/run/one/rollout/7"),
        ("t", "#/run/one/rollout/7/tokens"),
        ("u", "#/run/one/rollout/7"),
        ("u", "#/run/one"),
        ("u", "#/"),
    ]:
        visitor.press(key)
        visitor.shows(expected)
    visitor.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    visitor.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    visitor.open(f"{url}/#/run/one/rollout/1")
    visitor.press("]")
    visitor.shows("#/run/one/rollout/2")


def tab_to(visitor: Visitor, text: str) -> None:
    """Tabs on until it has the focus; wherever the focus is on the way, it can be seen."""
    for _ in range(80):
        visitor.press("Tab")
        focus = visitor.page.evaluate(FOCUS)
        if focus is None:
            continue
        assert focus["ring"], focus
        if text == focus["text"]:
            return
    raise AssertionError(f"Tab does not lead to {text!r}")


def test_a_run_is_read_down_to_its_tokens_with_tab_and_enter(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/")
    tab_to(visitor, "one")
    visitor.press("Enter")
    visitor.shows("#/run/one")
    tab_to(visitor, "session lost")
    visitor.press("Enter")
    expect(page.locator("#rollouts tr.go")).to_have_count(1)
    tab_to(visitor, "train-000000-0000-3")
    visitor.press("Enter")
    visitor.shows("#/run/one/rollout/4")
    visitor.open(f"{url}/#/run/one/rollout/1")
    tab_to(visitor, "tokens")
    visitor.press("Enter")
    visitor.shows("#/run/one/rollout/1/tokens")
    tab_to(visitor, "advantage")
    visitor.press("Enter")
    expect(page.locator(".pieces")).to_have_attribute("data-colour", "advantage")
    expect(page.get_by_role("button", name="advantage")).to_have_attribute("aria-pressed", "true")


def test_the_first_tab_leads_past_the_header_and_nowhere_else(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/run/one")
    visitor.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    visitor.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    visitor.shows("#/run/one")
    assert page.url.endswith("#/run/one")
