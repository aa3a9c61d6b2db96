"""Every page of the console against a live suite: whole, without fault, for every reader."""

from __future__ import annotations

import pytest

from kourou_rigs.console_scene import ConsoleScene

NARROW = {"width": 390, "height": 844}
PAGES = {
    "": "Overview",
    "cluster": "Cluster",
    "cluster/broker-a": "broker-a",
    "cluster/broker-a/settings": "broker-a",
    "cluster/broker-a/history": "broker-a",
    "cluster/broker-a/groups": "broker-a",
    "cluster/broker-a/figures": "broker-a",
    "name-servers": "Name servers",
    "topics": "Topics",
    "topics/departures": "departures",
    "topics/departures/route": "departures",
    "topics/departures/groups": "departures",
    "topics/departures/config": "departures",
    "topics/departures/browse": "departures",
    "topics/departures/tail": "departures",
    "groups": "Groups",
    "groups/nightly": "nightly",
    "groups/board/members": "board",
    "groups/carousel/subscriptions": "carousel",
    "groups/billing/config": "billing",
    "producers": "Producers",
    "messages?topic=departures&key=CDG": "Messages",
    "messages?by=time": "Messages",
    "messages/{sent}?topic=departures": "{sent}",
    "messages/{sent}/why?topic=departures": "{sent}",
    "messages/{sent}/trace?topic=departures": "{sent}",
    "trace?id={sent}&topic=departures": "Trace",
    "dead-letters": "Dead letters",
    "dead-letters/billing": "Dead letters of billing",
    "delayed": "Delayed",
    "transactions": "Transactions",
    "leases": "Leases",
    "filters": "Filters",
    "spark": "Spark",
    "spark/latency": "Table latency",
    "history": "Control history",
    "audit": "Audit",
}
"""Path behind `#`, and the heading that stands there."""

ACCESSIBLE = ("", "topics", "groups/carousel/subscriptions", "messages/{sent}?topic=departures")
"""Those that axe looks at in every run; between them they have most parts of pages."""


def filled(text: str, scene: ConsoleScene) -> str:
    return text.replace("{sent}", scene.sent)


def test_every_page_is_there(walk, scene) -> None:
    """Its heading, an answer in every panel, when that was so, and no fault in the browser."""
    for path, heading in PAGES.items():
        page = walk.to(filled(path, scene))
        assert page.locator("main h1").inner_text() == filled(heading, scene), path
        assert page.title() == f"{filled(heading, scene)} · Kourou"
        for panel in page.locator("main .panel").all():
            asks = panel.get_by_role("button", name="Refresh").count()
            assert bool(asks) == bool(panel.locator(".as-of").count()), (path, panel.inner_text())
        refused = page.locator(".notice.bad[role=alert]").all_inner_texts()
        assert not refused, f"{path}: {refused}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(walking, scene, scheme) -> None:
    walk = walking(scene.console.address, color_scheme=scheme)
    for path in ACCESSIBLE if scheme == "light" else ACCESSIBLE[:2]:
        walk.to(filled(path, scene))
        assert walk.violations() == "", path


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1360, "height": 900}, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing_on_any_page(walking, scene, scheme, size) -> None:
    walk = walking(scene.console.address, color_scheme=scheme, viewport=size)
    for path in PAGES:
        walk.to(filled(path, scene))
        assert walk.violations() == "", path


def test_on_a_telephone_nothing_is_cut_off(walking, scene) -> None:
    """Tables scroll in themselves; the page does not. The menu opens and leads on."""
    walk = walking(scene.console.address, viewport=NARROW)
    for path in ("", "topics", "messages/{sent}?topic=departures", "dead-letters/billing"):
        walk.to(filled(path, scene))
        assert walk.overflow() == 0, path
    page = walk.page
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Groups").click()
    walk.settled()
    assert page.locator("main h1").inner_text() == "Groups"
    assert page.get_by_role("button", name="Menu").get_attribute("aria-expanded") == "false"


@pytest.mark.slow
def test_no_page_is_wider_than_a_telephone(walking, scene) -> None:
    walk = walking(scene.console.address, viewport=NARROW)
    for path in PAGES:
        walk.to(filled(path, scene))
        assert walk.overflow() == 0, path


def test_by_keyboard_alone(walk) -> None:
    """The first stop leads past the navigation; a new page says what it is; a dialog gives back."""
    page = walk.to("groups")
    focused = page.locator(":focus")
    page.keyboard.press("Tab")
    assert focused.inner_text() == "Skip to the page"
    page.keyboard.press("Enter")
    assert focused.inner_text() == "Groups"
    page.keyboard.press("Tab")
    assert focused.inner_text() == "Add or update"
    page.keyboard.press("Enter")
    assert walk.dialog().evaluate("element => element.contains(document.activeElement)")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert focused.inner_text() == "Add or update"
    page.get_by_role("link", name="nightly").press("Enter")
    walk.settled()
    page.locator("h1:focus").get_by_text("nightly").wait_for()


def test_colours_follow_the_choice(walk) -> None:
    page = walk.to("topics")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Theme").select_option("dark")
    assert page.evaluate(ground) != light
    page.reload()
    walk.settled()
    assert page.evaluate(ground) != light, "the choice is kept"


def test_only_what_is_ours_is_loaded_and_little_of_it(walk) -> None:
    """A page comes without the charts and the pages that nobody looks at."""
    asked: list[str] = []
    walk.page.on("request", lambda request: asked.append(request.url))
    walk.to("topics")
    assert all(url.startswith(walk.address) for url in asked)
    assert not any(url.endswith(("uplot.js", "/overview.js", "/spark.js")) for url in asked)
    sent = walk.page.evaluate(
        "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0)"
    )
    assert 0 < sent < 80_000
