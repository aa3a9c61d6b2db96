"""What a reader must see to judge rightly: what is cut, estimated, filtered, or final."""

from __future__ import annotations

import itertools
import re
from threading import Event
from typing import Any

from playwright.sync_api import expect

from kourou.client.filters.expressions import Sql
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou_rigs.console_scene import AIRPORTS, DEPARTURES

NARROW = {"width": 390, "height": 844}
ALARMS: dict[str, Any] = {
    "as_of_ms": 1_795_324_000_000,
    "items": [
        {
            "severity": "critical",
            "of_kind": "group",
            "of": "billing",
            "title": "Dead letters grow",
            "meaning": "billing gave up 6 messages in ten minutes.",
            "what_to_do": "Look at its dead letters, mend the handler, and redrive them.",
            "since_ms": 1_795_223_000_000,
        }
    ],
    "total": 1,
    "truncated": False,
    "missing": [],
}


def test_since_when_an_alarm_holds_is_not_cut_off(walking, scene) -> None:
    walk = walking(scene.console.address, viewport={"width": 1280, "height": 900})
    walk.page.route("**/v1/alarms*", lambda route: route.fulfill(json=ALARMS))
    page = walk.to("")
    table = page.get_by_role("group", name="Alarms")
    expect(table).to_contain_text("Since")
    assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    assert walk.violations() == ""


def test_a_table_that_goes_on_beyond_its_edge_shows_it(walking, scene) -> None:
    """By a mark at that edge; it is reached and moved by keyboard."""
    walk = walking(scene.console.address, viewport=NARROW)
    page = walk.to("groups")
    box = page.get_by_role("group", name="Consumer groups")
    edges = box.locator("..")
    expect(edges).to_have_class(re.compile(r"\bmore-right\b"))
    expect(edges).not_to_have_class(re.compile(r"\bmore-left\b"))
    mark = "getComputedStyle(edges, '::after').content"
    assert "›" in edges.evaluate(f"edges => {mark}")
    box.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    expect(edges).to_have_class(re.compile(r"\bmore-left\b"))
    box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    expect(edges).not_to_have_class(re.compile(r"\bmore-right\b"))
    assert walk.violations() == ""


def test_the_overview_counts_what_somebody_made(walk, scene) -> None:
    page = walk.to("")
    found = scene.console.get("/v1/overview").json
    figures = {
        name: page.locator(".figure").filter(has=page.get_by_text(name, exact=True))
        for name in ("Topics", "Groups")
    }
    expect(figures["Topics"].locator("dd").first).to_have_text(str(found["topics"]))
    expect(figures["Topics"]).to_contain_text(f"+ {found['system_topics']} system")
    expect(figures["Groups"]).to_contain_text(f"+ {found['system_groups']} system")
    latency = page.locator(".figure", has_text="Send latency p99")
    expect(latency).to_contain_text("estimated")
    expect(latency).to_have_attribute("title", re.compile("as Prometheus does"))


def test_the_latest_of_a_topic(walk, scene) -> None:
    """One form, no key and no time: the newest of all queues, the newest first."""
    page = walk.to("messages")
    page.get_by_label("Topic", exact=True).fill("departures")
    page.get_by_label("Messages", exact=True).select_option("20")
    page.get_by_role("button", name="Search").click()
    rows = page.get_by_role("table", name="Latest").get_by_role("row")
    expect(rows).to_have_count(21)
    query = {"topic": "departures", "latest": "true", "count": 20}
    newest = scene.console.get("/v1/messages", query=query).json["items"][0]
    expect(rows.nth(1)).to_contain_text(newest["id"])
    expect(walk.panel("Latest of departures")).to_contain_text("Latest 20 of all queues")
    assert walk.violations() == ""


def test_topics_are_offered_where_none_was_named(walk, scene) -> None:
    page = walk.to("messages")
    offered = walk.panel("Choose a topic").get_by_role("link").all_text_contents()
    kinds = {one["topic"]: one["kind"] for one in scene.console.get("/v1/topics").json["items"]}
    order = ["normal", "dlq", "retry", "system"]
    ranks = [order.index(kinds[topic]) for topic in offered]
    assert ranks == sorted(ranks)
    walk.panel("Choose a topic").get_by_role("link", name="departures", exact=True).click()
    expect(page.get_by_role("table", name="Latest")).to_be_visible()
    expect(page.get_by_label("Topic", exact=True)).to_have_value("departures")
    expect(walk.panel("Choose a topic")).to_have_count(0)
    walk.to("messages?topic=bookings")  # asked at once
    expect(walk.panel("Latest of bookings")).to_be_visible()
    expect(page.get_by_label("Topic", exact=True)).to_have_value("bookings")


def test_an_unknown_address_leads_onward(walk) -> None:
    walk.to("topics")
    page = walk.to("nowhere/at/all")
    expect(page).to_have_title("Page not found · Kourou")
    assert walk.violations() == ""
    page.locator("main").get_by_role("link", name="Overview").click()
    expect(page).to_have_title("Overview · Kourou")
    walk.to("nowhere")
    walk.to("alarms")  # they stand there
    expect(page).to_have_title("Overview · Kourou")
    expect(walk.panel("Alarms")).to_be_visible()


def test_a_group_tells_one_lag_and_what_it_gets(walk, scene) -> None:
    page = walk.to("groups/nightly")
    lag = scene.console.get("/v1/groups/nightly/lag").json
    figure = page.locator(".figure").filter(has=page.get_by_text("Lag", exact=True))
    expect(figure.locator("dd").first).to_have_text(f"{lag['lag_messages']:,}")
    row = page.get_by_role("table", name="Lag by topic").get_by_role("row").nth(1)
    expect(row).to_contain_text("/s")
    walk.to("groups/nightly/config")
    expect(page.get_by_role("columnheader", name="Max retries")).to_be_visible()


def test_a_filter_in_python_is_called_one(walk, scene) -> None:
    path = "/v1/groups/carousel/subscriptions"
    answer = scene.console.get(path).json
    subscription = {"topic": "baggage", "expression": "late", "kind": "FILTER"}
    answer["items"][0]["subscriptions"] = [subscription]
    walk.page.route(f"**{path}", lambda route: route.fulfill(json=answer))
    page = walk.to("groups/carousel/subscriptions")
    row = page.get_by_role("row").filter(has_text="Python filter")
    link = row.get_by_role("link", name="late", exact=True)
    expect(link).to_have_attribute("href", "#/filters/carousel/late")


def test_a_cause_is_shown_with_one_of_its_reasons(walk, scene) -> None:
    """Numbers and ids are left out of a cause: `#` in the answer, `…` on the page."""
    answer = scene.console.get("/v1/dead-letters", query={"group": "billing"}).json
    answer["causes"][0] |= {"cause": "# of # is cancelled", "reason": "KR7 of 3 is cancelled"}
    walk.page.route("**/v1/dead-letters?*", lambda route: route.fulfill(json=answer))
    page = walk.to("dead-letters/billing")
    row = page.get_by_role("table", name="Causes").get_by_role("row").nth(1)
    expect(row).to_contain_text("… of … is cancelled")
    expect(row).to_contain_text("KR7 of 3 is cancelled")


def test_no_undo_is_offered_of_what_belongs_to_the_broker(walk) -> None:
    page = walk.to("history?kind=topic&name=TBW102&broker=broker-a")
    row = page.get_by_role("table", name="Changes, newest first").get_by_role("row").nth(1)
    expect(row.locator(".no-undo")).to_have_attribute("title", re.compile("is a system"))
    expect(row.get_by_role("button", name="Undo")).to_have_count(0)
    walk.to("history?kind=topic&name=departures&broker=broker-a")
    expect(
        page.get_by_role("button", name="Undo TopicPut of topic departures").first
    ).to_be_visible()


def test_transactions_of_this_console_are_ended_and_others_are_their_producers(walk, scene) -> None:
    api = scene.console
    for body in (b"to be paid", b"to be dropped"):
        assert api.post("/v1/topics/payments/transactions", body=body).status == 201
    waiting = {one["message"]["body"]: one for one in api.get("/v1/transactions").json["items"]}
    page = walk.to("transactions")
    theirs = page.get_by_role("row").filter(has_text="departures-desk")
    expect(theirs).to_contain_text("its producer decides")
    expect(theirs.get_by_role("button")).to_have_count(0)
    assert walk.violations() == ""
    for body, label, says in (
        ("to be paid", "Commit", "is delivered to the groups that consume payments"),
        ("to be dropped", "Roll back", "never delivered to a group of payments"),
    ):
        transaction = waiting[body]["transaction_id"]
        view = walk.change(f"{label} {transaction}", verb=label, name="payments")
        assert any(says in one for one in view), view
        walk.close()
        expect(page.get_by_role("row").filter(has_text=transaction)).to_have_count(0)
    query = {"topic": "payments", "latest": "true"}
    stored = [one["body"] for one in api.get("/v1/messages", query=query).json["items"]]
    assert "to be paid" in stored
    assert "to be dropped" not in stored


def test_a_trace_tells_who_filtered_a_message(walk, scene) -> None:
    """A group that does not want it by SQL92 has not consumed it, though it is beyond it."""
    seen, all_seen = itertools.count(1), Event()
    northern = sum(
        AIRPORTS[number % len(AIRPORTS)] in ("ARN", "OSL") for number in range(DEPARTURES)
    )

    def show(_message: Any) -> None:
        if next(seen) == northern:
            all_seen.set()

    consumer = ConsumerSettings(
        consumer_group="north", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with (
        scene.cluster.client("north", consumer=consumer) as mq,
        mq.listen("departures", show, Sql("region = 'north'")) as listener,
    ):
        assert all_seen.wait(60)
        listener.commit()
        page = walk.to(f"messages/{scene.sent}/trace?topic=departures")
        row = page.get_by_role("row").filter(has=page.get_by_text("north", exact=True))
        expect(row).to_contain_text("CONSUMED_BUT_FILTERED")
        expect(row).to_contain_text("region = 'north'")
        walk.to(f"messages/{scene.sent}/why?topic=departures&group=north")
        expect(page.locator("main")).to_contain_text("does not match the SQL filter")


def test_a_message_that_waits_for_its_time_can_be_looked_at(walk) -> None:
    """By its place in the log: under its topic it is not found before."""
    page = walk.to("delayed")
    row = walk.panel("Messages").get_by_role("row").filter(has_text="boarding call").first
    row.get_by_role("link").last.click()
    expect(walk.panel("Body")).to_contain_text("boarding call")
    walk.settled()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_of_a_delayed_send_it_is_told_where_it_waits(walk) -> None:
    page = walk.to("topics")
    answer = {"status": "SEND_OK", "message_id": "7F0000010000", "offset_message_id": None}
    place = {"topic": "departures", "broker": "broker-a", "queue_id": 1, "offset": None}
    page.route(
        re.compile(r"/v1/topics/departures/messages$"),
        lambda route: route.fulfill(json={**answer, **place, "replayed": False, "as_of_ms": 1}),
    )
    walk.change("SEND MESSAGE to departures", {"Delay level": 5}, verb="Send")
    expect(walk.dialog()).to_contain_text(answer["message_id"])
    walk.dialog().get_by_role("link").click()
    walk.settled()
    expect(page.get_by_role("heading", name="Delayed")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
