"""Answers that come late, twice asked for, or not at all: none is taken for another's."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, Route, expect

PREVIEW = "Show what will happen"
REFRESH_MS = 10_000


def held_back(page: Page, url: re.Pattern[str]) -> list[Route]:
    """The requests for these addresses, which wait until they are let on."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(url, hold)
    return held


def test_a_preview_of_other_values_is_not_taken_for_these(walking, scene) -> None:
    """A field is changed while it is asked what would happen: what comes is of the old value."""
    walk = walking(scene.console.address)
    page = walk.to("topics")
    page.get_by_role("button", name="RESET CONSUMER OFFSET of departures").click()
    dialog = walk.dialog()
    dialog.get_by_label("Group", exact=True).select_option("nightly")
    confirm = dialog.locator("footer button").last
    url = re.compile(r"/offsets/reset\?")
    held = held_back(page, url)
    with page.expect_request(url):
        confirm.click()
    dialog.get_by_label("To", exact=True).select_option("end")
    with page.expect_response(url):
        held.pop().continue_()
    expect(confirm).to_be_enabled()
    expect(confirm).to_have_text(PREVIEW)
    expect(dialog.get_by_role("table", name="Moves")).to_have_count(0)
    with page.expect_request(url):
        confirm.click()
    expect(confirm).to_be_disabled()
    held.pop().continue_()
    expect(confirm).to_have_text("Reset")
    page.unroute(url)


def test_a_refusal_of_other_values_is_not_taken_for_these(walking, scene) -> None:
    walk = walking(scene.console.address)
    walk.refusals = {404}
    page = walk.to("topics")
    page.get_by_role("button", name="RESET CONSUMER OFFSET of departures").click()
    dialog = walk.dialog()
    confirm = dialog.locator("footer button").last
    url = re.compile(r"/offsets/reset\?")
    held = held_back(page, url)
    with page.expect_request(url):
        confirm.click()
    dialog.get_by_label("To", exact=True).select_option("end")
    with page.expect_response(url):
        held.pop().fulfill(status=404, json={"title": "There is no such time"})
    expect(confirm).to_be_enabled()
    expect(dialog.get_by_role("alert")).to_have_count(0)
    page.unroute(url)


def test_an_answer_that_takes_longer_than_the_refresh_comes(walking, scene) -> None:
    """It is waited for: asking anew each time, a slow list would never be there."""
    walk = walking(scene.console.address)
    url = re.compile(r"/v1/topics\?")
    held = held_back(walk.page, url)
    walk.page.clock.install()
    with walk.page.expect_request(url):
        page = walk.open("topics")
    expect(walk.panel("Topics")).to_have_attribute("aria-busy", "true")
    page.clock.run_for(REFRESH_MS + 1)
    held[0].continue_()
    expect(page.get_by_role("link", name="departures", exact=True)).to_be_visible()
    with page.expect_request(url):  # and from then on again
        page.clock.run_for(REFRESH_MS + 1)
    page.unroute(url)


def test_older_decisions_are_listed_once(walking, scene) -> None:
    """However often the button is pressed."""
    answer = scene.console.get("/v1/history", query={"count": 50}).json
    first = {**answer, "items": answer["items"][:2], "cursor": "older"}
    older = {**answer, "items": answer["items"][2:3], "cursor": None}
    walk = walking(scene.console.address)
    held: list[Route] = []
    walk.page.route(
        "**/v1/history?*",
        lambda route: (
            held.append(route) if "cursor=" in route.request.url else route.fulfill(json=first)
        ),
    )
    page = walk.to("history")
    rows = page.get_by_role("table", name="Decisions, newest first").locator("tbody tr")
    expect(rows).to_have_count(2)
    button = page.get_by_role("button", name="Show older")
    with page.expect_request("**/v1/history?*"):
        button.dblclick()
    expect(rows).to_have_count(2)
    for route in held:
        route.fulfill(json=older)
    expect(button).to_have_count(0)
    expect(rows).to_have_count(3)


def test_groups_that_could_not_be_asked_for_are_not_said_to_be_none(walking, scene) -> None:
    """Another time they can, and are offered."""
    walk = walking(scene.console.address)
    walk.refusals = {503}
    page = walk.to("topics")
    url = re.compile(r"/v1/topics/departures/groups$")
    page.route(url, lambda route: route.fulfill(status=503, json={"title": "Nobody answers"}))
    opener = page.get_by_role("button", name="RESET CONSUMER OFFSET of departures")
    opener.click()
    dialog = walk.dialog()
    expect(dialog).to_contain_text("Which groups consume it could not be asked.")
    expect(dialog).not_to_contain_text("No group is known")
    dialog.get_by_role("button", name="Cancel").click()
    page.unroute(url)
    opener.click()
    dialog.get_by_label("To", exact=True).select_option("end")
    dialog.get_by_role("button", name=PREVIEW).click()
    expect(dialog.get_by_role("table", name="Moves")).to_be_visible()


def test_that_a_redrive_cannot_be_stopped_is_told(walking, scene) -> None:
    """As where the console was started anew since."""
    job: dict[str, Any] = {
        "id": "r-1",
        "group": "billing",
        "state": "running",
        "dry_run": False,
        "deal_with": False,
        "selected": 3,
        "sent": 1,
        "failed": 0,
        "left": 2,
        "started_ms": 1_795_324_000_000,
        "ended_ms": None,
        "error": None,
        "outcomes": [],
        "outcomes_total": 0,
        "truncated": False,
        "as_of_ms": 1_795_324_000_000,
    }
    jobs = {"items": [job], "total": 1, "truncated": False, "as_of_ms": job["as_of_ms"]}
    walk = walking(scene.console.address)
    walk.refusals = {404}

    def answered(route: Route) -> None:
        if route.request.method == "DELETE":
            route.fulfill(status=404, json={"title": "There is no redrive r-1", "hint": "Look."})
        else:
            route.fulfill(json=job if route.request.url.endswith("r-1") else jobs)

    walk.page.route("**/v1/dead-letters/redrives**", answered)
    page = walk.open("dead-letters")
    page.get_by_role("button", name="Outcomes of redrive r-1").click()
    walk.dialog().get_by_role("button", name="Stop").click()
    expect(walk.dialog().get_by_role("alert")).to_contain_text("There is no redrive r-1")
