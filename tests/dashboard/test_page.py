"""The page in a real browser: every view, a run that grows, and content that wants to do harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from agentcore_rl_toolkit.dashboard.page import single_page
from agentcore_rl_toolkit.dashboard.rollout import RolloutView
from agentcore_rl_toolkit.dashboard.run import Run

from .browser import CHROMIUM, NO_CHROMIUM, VIEWS, Visitor, serving
from .sample import AT, HOSTILE, Sample, Talk, conversation, said, turn, user, whole

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


def open_run(runs: Path, name: str) -> Run:
    run = Run(runs / name)
    run.poll()
    return run


def in_sight(place: Locator) -> None:
    """The whole of it, not under what sticks to the top."""
    expect(place).to_be_in_viewport(ratio=1)


def test_every_view_shows_what_it_promises(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/")
    assert visitor.texts("tbody a") == ["one"]
    assert visitor.texts("tbody .pill") == ["ended"]

    visitor.open(f"{url}/#/run/one")
    assert visitor.texts("h1") == ["one"]
    assert "Reward" in " ".join(visitor.texts(".chart figcaption"))
    assert visitor.texts("#where tfoot td")[-1] == "100.0 %"
    expect(page.locator(".timeline svg a")).to_have_count(1)
    assert len(visitor.texts("#rollouts tbody tr")) == 8
    assert visitor.texts("#stages tbody td:first-child") == [
        *("queue", "earlier attempts", "start", "agent", "model", "reward", "store")
    ]

    visitor.open(f"{url}/#/run/one/rollout/1")
    assert visitor.texts(".call b") == ["calculator"]
    assert visitor.texts(".branch .fork") == ["branch: rewrite"]
    assert len(visitor.texts("#group tbody tr")) == 4
    assert "art invoke" in visitor.texts(".command")[0]
    assert visitor.complaints == []


def test_tokens_are_coloured_by_each_figure_and_explained(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/run/one/rollout/1/tokens")
    expect(page.locator(".box .t")).to_have_count(10)
    expect(page.locator(".box .t.on")).to_have_count(5)
    colours = ("log-probability", "mask", "advantage", "weight version", "entropy")
    for number, name in enumerate(colours, 1):
        visitor.press(str(number))
        expect(page.locator(".pieces")).to_have_attribute("data-colour", name)
    expect(page.locator(".box .t.e6")).to_have_count(1)
    visitor.press("ArrowRight")
    expect(page.locator(".inspect dl")).to_contain_text("0.010 nats")
    visitor.press("ArrowRight", "ArrowLeft")
    expect(page.locator(".inspect dl")).to_contain_text("\u22120.1000")
    page.locator(".box .t.on").nth(3).hover()
    expect(page.locator(".inspect dl")).to_contain_text("13")
    visitor.open(f"{url}/#/run/one/rollout/1/tokens?row=1")
    assert "fork: rewrite" in visitor.texts(".piece .pill")
    assert visitor.complaints == []


def test_the_strip_above_the_tokens_leads_to_them(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/run/one/rollout/1/tokens")
    strip = page.get_by_role("img", name="10 tokens from first to last")
    wide = strip.evaluate("(e) => e.clientWidth")
    strip.click(position={"x": wide * 0.45, "y": 10})  # the fifth: the second of those sampled
    expect(page.locator(".box .t.now")).to_have_attribute("data-i", "4")
    expect(page.locator(".inspect dl")).to_contain_text("\u22120.2000")
    ink = "(e) => e.getContext('2d').getImageData(%s * e.width, 4, 1, 1).data[3] > 0"
    assert strip.evaluate(ink % 0.35), "what was sampled stands high"
    assert not strip.evaluate(ink % 0.05), "what was given does not"


def test_a_step_of_a_curve_shows_its_figures_and_its_rollouts(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/run/one")
    plots = page.locator(".plot svg")
    plots.nth(1).hover()  # tokens a rollout: step 1 is all there is
    expect(page.locator(".tip").nth(1)).to_contain_text("step 1")
    expect(page.locator(".plot svg .cursor[visibility=visible]")).to_have_count(plots.count())
    plots.nth(1).click()
    expect(page.locator("#rollouts tr.go")).to_have_count(6)
    expect(page.get_by_label("Step of the time line")).to_have_value("train 0")
    assert page.url.endswith("?phase=train&step=0")


def test_conversation_and_tokens_lead_to_the_same_turn(tmp_path: Path, visitor: Visitor) -> None:
    sample = Sample(tmp_path / "run")
    graph = Talk("train-000000-0000-0")
    messages, ids = [user("begin")], [1]
    for number in range(30):
        turn(graph, messages, list(ids), said(f"answer {number}"), [20 + number] * 80)
        messages = [*messages, said(f"answer {number}"), user(f"go on {number}\n" * 5)]
        ids += [20 + number] * 80 + [2]
    sample.rollout("train-000000-0000", 0, 1.0, graph=graph)
    sample.close()
    with serving(tmp_path) as url:
        page = visitor.open(f"{url}/#/run/run/rollout/0")
        page.locator(".answer a").nth(25).click()
        here = page.locator(".piece.sampled.here")
        expect(here.locator("b")).to_have_text(["turn 25, sampled"])
        in_sight(here.locator(".who"))
        here.get_by_role("link", name="conversation").click()
        expect(page.locator("#view")).to_have_attribute("data-ready", re.compile("rollout/0.turn"))
        in_sight(page.locator(f"[id='turn-{graph.made[25].turn_id}'] .answer .who"))


def test_a_live_run_is_watched_from_its_start_to_its_end(runs: Path, visitor: Visitor) -> None:
    sample = Sample(runs / "live")
    with serving(runs) as url:
        page = visitor.open(f"{url}/#/run/live")
        expect(page.locator("#status")).to_have_text("live")
        assert visitor.texts("#rollouts tbody .none") == ["no rollout matches"]
        for step in range(2):
            name = f"train-{step:06d}-0000"
            sample.rollout(name, 0, 1.0, graph=conversation(f"{name}-0"))
            expect(page.locator("#rollouts tr.go")).to_have_count(step + 1)
            sample.step(step + 1, 0.5 + 0.25 * step)
            expect(page.locator(".facts dd").first).to_have_text(f"{step + 1} / 2")
        assert visitor.texts("#where tfoot td")[-1] == "100.0 %"
        sample.close()
        expect(page.locator("#status")).to_have_text("ended")
        expect(page.locator(".title .pill")).to_have_text("ended")
    assert [line for line in visitor.complaints if "refused" not in line.lower()] == []


def test_live_sessions_are_shown_with_their_age_and_memory(
    runs: Path, deployed: tuple[str, str], visitor: Visitor
) -> None:
    runtime, session_id = deployed
    sample = Sample(runs / "live")
    sample.out.event({"at": AT, "event": "started", "endpoint_url": runtime})
    sample.rollout("train-000000-0000", 0, 1.0, session_id=session_id)
    with serving(runs) as url:
        page = visitor.open(f"{url}/#/run/live")
        row = page.get_by_role("row").filter(has_text=session_id)
        expect(row.locator("td").nth(3)).to_have_text(re.compile(r"^[\d.]+ (ms|s|min)$"))
        expect(row.locator("td").nth(4)).to_have_text(re.compile(r"^[\d.]+ (kB|MB)$"))
        page = visitor.open(f"{url}/#/run/live/rollout/0")
        expect(page.locator("aside")).to_contain_text("hello from the agent")
        sample.close()


def test_looking_at_a_live_run_is_not_disturbed_by_it(runs: Path, visitor: Visitor) -> None:
    """What was opened stays open, the keys' line stays, at each change."""
    sample = Sample(runs / "live")
    sample.rollout("train-000000-0000", 0, 1.0)
    with serving(runs) as url:
        page = visitor.open(f"{url}/#/run/live")
        expect(page.locator("#status")).to_have_text("live")
        page.get_by_text("Configuration").click()
        page.locator("#rollouts a").focus()
        visitor.press("j")
        sample.rollout("train-000000-0000", 1, 1.0)
        expect(page.locator("#rollouts tr.go")).to_have_count(2)
        expect(page.get_by_text("agent: {path: examples/math}")).to_be_visible()
        assert visitor.texts("tr.cursor a") == ["train-000000-0000-0"]
        expect(page.locator("#rollouts a", has_text="train-000000-0000-0")).to_be_focused()
        sample.close()


def test_the_list_of_runs_follows_new_and_growing_runs(runs: Path, visitor: Visitor) -> None:
    with serving(runs) as url:
        page = visitor.open(f"{url}/#/")
        assert visitor.texts("td.name") == ["one"]
        sample = Sample(runs / "two")
        expect(page.locator("td.name")).to_have_count(2)
        sample.step(1, 0.5)
        expect(page.locator("tr.go").first).to_contain_text("0.500")
        sample.close()
        expect(page.locator(".pill.ended")).to_have_count(2)


def test_what_failed_is_named_marked_and_leads_to_its_rollouts(url: str, visitor: Visitor) -> None:
    page = visitor.open(f"{url}/#/run/one")
    assert visitor.texts("#failed td") == [
        "1",
        "session_lost",
        "session_lost: it broke",
        "train-000000-0000-3",
    ]
    assert "session_lost1" in visitor.texts(".chart .key")
    page.locator("#where").get_by_role("button", name="session lost").click()
    expect(page.locator("#rollouts tr.go")).to_have_count(1)
    assert visitor.texts("#rollouts .why") == ["session_lost: it broke"]
    assert "fate=session_lost" in page.url
    page.locator("#where").get_by_role("button", name="trained", exact=True).click()
    expect(page.locator("#rollouts tr.go")).to_have_count(3)


def test_runs_are_compared_by_every_figure(runs: Path, visitor: Visitor) -> None:
    whole(runs / "two").close()
    with serving(runs) as url:
        page = visitor.open(f"{url}/#/")
        for box in page.get_by_role("checkbox").all():
            box.check()
        expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
        assert page.url.endswith("compare=two%2Cone") or page.url.endswith("compare=one%2Ctwo")
        visitor.open(f"{url}/#/?compare=one,two")
        assert [title.strip() for title in visitor.texts(".chart figcaption")] == [
            "reward",
            "held-out success",
            "success",
            "tokens a rollout",
            "tokens a second",
            "staleness, steps",
            "failures: session_lost",
        ]
        label = page.locator(".plot svg").first.get_attribute("aria-label")
        assert "one from 0.500 to 0.500; two from 0.500 to 0.500" in str(label)


def test_a_crashed_run_says_what_could_not_be_read(tmp_path: Path, visitor: Visitor) -> None:
    sample = whole(tmp_path / "crashed")
    sample.close(ended=False)
    with (tmp_path / "crashed" / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"rollout_id": "half')
    with serving(tmp_path) as url:
        visitor.open(f"{url}/#/run/crashed")
        assert visitor.texts(".title .pill") == ["stopped"]
        assert "half written" in visitor.texts(".problems li")[0]
        assert len(visitor.texts("#rollouts tr.go")) == 8


def hostile_run(path: Path) -> None:
    """Everywhere that an agent, a model or a data set can write."""
    sample = Sample(path, config=HOSTILE[0])
    evil = "\n".join(HOSTILE)
    for number, text in enumerate(HOSTILE):
        name = f"train-000000-0000-{number}"
        graph = Talk(name)
        call = {"function": {"name": text, "arguments": text}, "id": text}
        answer = {**said(evil), "tool_calls": [call], "reasoning_content": text}
        messages = [{"role": text, "content": text}, user(evil)]
        turn(graph, messages, [1, 2], answer, [3, 4], flags=[text], error=None)
        more = {"rollout_id": text, "error": evil, "session_id": f"session-{name}"}
        result = {"response": evil, text: text}
        sample.rollout("train-000000-0000", number, 1.0, graph=graph, result=result, **more)
    sample.step(1, 0.5, failures={evil: 1})
    sample.out.event({"at": 0.0, "event": evil, "endpoint_url": "http://attacker.invalid"})
    sample.close()


def check_harmless(page: Page) -> None:
    assert page.evaluate("window.pwned === undefined")
    expect(page.locator("main img, iframe, style")).to_have_count(0)


def test_hostile_content_does_nothing(tmp_path: Path, visitor: Visitor) -> None:
    run = "<img src=x onerror=alert(1)>"
    hostile_run(tmp_path / run)
    with serving(tmp_path) as url:
        name = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
        for n in range(len(HOSTILE)):
            page = visitor.open(f"{url}/#/run/{name}/rollout/{n}")
            assert HOSTILE[0] in "".join(visitor.texts(".answer .text"))
            check_harmless(page)
        for view in ("", f"run/{name}", f"run/{name}/rollout/0/tokens"):
            check_harmless(visitor.open(f"{url}/#/{view}"))
        assert [one for one in visitor.requests if not one.startswith((url, "about:"))] == []
    assert visitor.complaints == []


def test_a_saved_page_with_hostile_content_does_nothing(tmp_path: Path, visitor: Visitor) -> None:
    run = "<img src=x onerror=alert(1)>"
    hostile_run(tmp_path / run)
    saved = tmp_path / "saved.html"
    saved.write_text(single_page(RolloutView(open_run(tmp_path, run), 0), "\n".join(HOSTILE)))
    visitor.page.goto(saved.as_uri())
    expect(visitor.page.locator(".answer .text").last).to_contain_text(HOSTILE[0])
    assert visitor.page.evaluate("window.pwned === undefined")
    expect(visitor.page.locator("main img, iframe")).to_have_count(0)
    assert [one for one in visitor.requests if not one.startswith(("file:", "about:"))] == []
    assert visitor.complaints == []


def test_a_saved_page_needs_no_server(runs: Path, visitor: Visitor) -> None:
    saved = runs / "saved.html"
    saved.write_text(single_page(RolloutView(open_run(runs, "one"), 1)), encoding="utf-8")
    page = visitor.page
    page.goto(saved.as_uri())
    visitor.shows("#/run/one/rollout/1")
    assert visitor.texts(".call b") == ["calculator"]
    assert visitor.texts(".branch .fork") == ["branch: rewrite"]
    visitor.press("t")
    expect(page.locator(".box .t")).to_have_count(10)
    visitor.open(f"{saved.as_uri()}#/run/one/rollout/1/tokens?row=1")
    assert "fork: rewrite" in visitor.texts(".piece .pill")
    visitor.open(f"{saved.as_uri()}#/run/one/rollout/2")
    assert "one rollout only" in visitor.texts("[role=alert]")[0]
    assert [one for one in visitor.requests if not one.startswith(("file:", "about:"))] == []
    assert visitor.complaints == []


def test_light_and_dark_follow_the_system(url: str, visitor: Visitor) -> None:
    visitor.page.emulate_media(color_scheme="light")
    body = visitor.open(f"{url}/#/run/one").locator("body")
    expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
    visitor.page.emulate_media(color_scheme="dark")
    expect(body).to_have_css("background-color", "rgb(15, 18, 22)")


def test_a_narrow_window_needs_no_sideways_scrolling(url: str, visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": 420, "height": 800})
    for view in VIEWS:
        page = visitor.open(f"{url}/{view}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
