"""Answers that come late, twice asked for, or not at all: none is taken for another's."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

PREVIEW = "Preview"
REFRESH_MS = 10_000


def held_back(page: Page, url: re.Pattern[str]) -> list[Route]:
    """The requests for these addresses, which wait until they are let on."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(url, hold)
    return held


def reset_of_departures(walk: Any) -> tuple[Page, Locator]:
    """The page of topics, and the dialog that is open there."""
    page = walk.to("topics")
    page.get_by_role("button", name="RESET CONSUMER OFFSET of departures").click()
    return page, walk.dialog()


def redrive(**said: Any) -> dict[str, Any]:
    """A job as the API tells of it."""
    job = {"id": "r-1", "group": "billing", "dry_run": False, "deal_with": False}
    counts = {"sent": 0, "failed": 0, "left": 0, "outcomes": [], "outcomes_total": 0}
    times = {"started_ms": 1_795_324_000_000, "ended_ms": None, "as_of_ms": 1_795_324_000_000}
    return job | counts | times | {"error": None, "truncated": False} | said


def listed(job: dict[str, Any]) -> dict[str, Any]:
    return {"items": [job], "total": 1, "truncated": False, "as_of_ms": job["as_of_ms"]}


def test_a_preview_of_other_values_is_not_taken_for_these(walk) -> None:
    """A field is changed while it is asked what would happen: what comes is of the old value."""
    page, dialog = reset_of_departures(walk)
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


def test_a_refusal_of_other_values_is_not_taken_for_these(walk) -> None:
    walk.refusals = {404}
    page, dialog = reset_of_departures(walk)
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


def test_an_answer_that_takes_longer_than_the_refresh_comes(walk) -> None:
    """It is waited for: asking anew each time, a slow list would never be there."""
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


def test_older_decisions_are_listed_once(walk, scene) -> None:
    """However often the button is pressed."""
    answer = scene.console.get("/v1/history", query={"count": 50}).json
    first = {**answer, "items": answer["items"][:2], "cursor": "older"}
    older = {**answer, "items": answer["items"][2:3], "cursor": None}
    held: list[Route] = []
    walk.page.route(
        "**/v1/history?*",
        lambda route: (
            held.append(route) if "cursor=" in route.request.url else route.fulfill(json=first)
        ),
    )
    page = walk.to("history")
    rows = page.get_by_role("table", name="Changes, newest first").locator("tbody tr")
    expect(rows).to_have_count(2)
    button = page.get_by_role("button", name="Show older")
    with page.expect_request("**/v1/history?*"):
        button.dblclick()
    expect(rows).to_have_count(2)
    for route in held:
        route.fulfill(json=older)
    expect(button).to_have_count(0)
    expect(rows).to_have_count(3)


def test_groups_that_could_not_be_asked_for_are_not_said_to_be_none(walk) -> None:
    """Another time they can, and are offered."""
    walk.refusals = {503}
    page = walk.to("topics")
    url = re.compile(r"/v1/topics/departures/groups$")
    page.route(url, lambda route: route.fulfill(status=503, json={"title": "Nobody answers"}))
    opener = page.get_by_role("button", name="RESET CONSUMER OFFSET of departures")
    opener.click()
    dialog = walk.dialog()
    expect(dialog).to_contain_text("The consumer groups could not be determined.")
    expect(dialog).not_to_contain_text("No known consumer group")
    dialog.get_by_role("button", name="Cancel").click()
    page.unroute(url)
    opener.click()
    dialog.get_by_label("To", exact=True).select_option("end")
    dialog.get_by_role("button", name=PREVIEW).click()
    expect(dialog.get_by_role("table", name="Moves")).to_be_visible()


def test_that_a_redrive_cannot_be_stopped_is_told(walk) -> None:
    """As where the console was started anew since."""
    job = redrive(state="running", selected=3, sent=1, left=2)
    walk.refusals = {404}

    def answered(route: Route) -> None:
        if route.request.method == "DELETE":
            route.fulfill(status=404, json={"title": "There is no redrive r-1", "hint": "Look."})
        else:
            route.fulfill(json=job if "r-1?" in route.request.url else listed(job))

    walk.page.route("**/v1/dead-letters/redrives**", answered)
    page = walk.open("dead-letters")
    page.get_by_role("button", name="Results of redelivery r-1").click()
    walk.dialog().get_by_role("button", name="Stop").click()
    expect(walk.dialog().get_by_role("alert")).to_contain_text("There is no redrive r-1")


def test_a_dialog_stays_with_what_it_was_opened_for(walk, scene) -> None:
    """However the list is asked again: with another row in front, or without its own."""
    page = walk.page
    page.clock.install()
    walk.to("topics")
    whole = scene.console.get("/v1/topics", query={"kind": "normal"}).json
    row = next(one for one in whole["items"] if one["topic"] == "departures")
    others = [one for one in whole["items"] if one is not row]
    newer = {**others[0], "topic": "a-new-one"}
    lists = [[newer, *others, row], [newer]]
    page.route(
        re.compile(r"/v1/topics\?"),
        lambda route: route.fulfill(json={**whole, "items": lists.pop(0)}),
    )
    page.get_by_role("button", name="RESET CONSUMER OFFSET of departures").click()
    dialog = walk.dialog()
    title = "Reset a group's offsets on departures"
    expect(dialog).to_have_accessible_name(title)
    dialog.get_by_label("To", exact=True).select_option("end")
    topics = page.locator("main table").first.locator("tbody tr")
    for left in list(map(len, lists)):
        page.clock.run_for(REFRESH_MS + 1)
        expect(topics).to_have_count(left)
        expect(dialog).to_have_accessible_name(title)
        with page.expect_response(re.compile(r"/topics/departures/offsets/reset\?")):
            dialog.locator("footer button").last.click()
        expect(dialog.get_by_role("table", name="Moves")).to_be_visible()
        dialog.get_by_label("To", exact=True).select_option("begin")


def test_a_button_stays_with_its_row(walk, scene) -> None:
    """The focus is on the same topic's after the list was asked again."""
    page = walk.page
    page.clock.install()
    walk.to("topics")
    whole = scene.console.get("/v1/topics", query={"kind": "normal"}).json
    more = [{**whole["items"][0], "topic": "a-new-one"}, *whole["items"]]
    page.get_by_role("button", name="DELETE departures").focus()
    page.route(
        re.compile(r"/v1/topics\?"), lambda route: route.fulfill(json={**whole, "items": more})
    )
    page.clock.run_for(REFRESH_MS + 1)
    expect(page.get_by_role("button", name="DELETE a-new-one")).to_be_visible()
    expect(page.get_by_role("button", name="DELETE departures")).to_be_focused()


@pytest.mark.parametrize(("total", "button"), [(101, "Show more"), (1_001, "Later")])
def test_the_last_outcome_of_a_redrive_can_be_seen(walk, total, button) -> None:
    states = ["sent"] * (total - 1) + ["failed"]
    outcomes = [{"id": f"m-{at}", "state": one, "error": None} for at, one in enumerate(states)]
    job = redrive(selected=total, state="failed", sent=total - 1, failed=1, outcomes_total=total)

    def answered(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        begin, count = int(query.get("from", ["0"])[0]), int(query.get("count", ["100"])[0])
        shown = {"outcomes": outcomes[begin : begin + count], "truncated": begin + count < total}
        route.fulfill(json={**job, **shown})

    walk.page.route("**/v1/dead-letters/redrives/r-1**", answered)
    walk.page.route("**/v1/dead-letters/redrives", lambda route: route.fulfill(json=listed(job)))
    page = walk.open("dead-letters")
    page.get_by_role("button", name="Results of redelivery r-1").click()
    last = walk.dialog().get_by_role("link", name=f"m-{total - 1}", exact=True)
    expect(walk.dialog().get_by_role("link", name="m-0", exact=True)).to_be_visible()
    expect(last).to_have_count(0)
    expect(walk.dialog()).not_to_contain_text("Showing")
    walk.dialog().get_by_role("button", name=button).click()
    expect(last).to_be_visible()
