"""The rest of what can be done in the console, once each."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


def names(answer: Any, key: str) -> list[str]:
    return [one[key] for one in answer.json["items"]]


def test_a_group_is_made_moved_and_deleted(walk, scene) -> None:
    api = scene.console
    page = walk.to("groups")
    walk.change("Add or update", {"Group": "morning", "Max retries": 3}, verb="Write")
    walk.close()
    page.get_by_role("link", name="morning", exact=True).click()
    walk.settled()
    walk.change("Clone offsets", {"From group": "nightly"}, verb="Clone")
    walk.close()
    lag = api.get("/v1/groups/morning/lag").json["lag_messages"]
    assert lag == api.get("/v1/groups/nightly/lag").json["lag_messages"]
    walk.to("groups/morning/config")
    walk.change("Change morning at broker-a", {"Consumption enabled": "false"}, verb="Change")
    walk.close()
    expect(walk.panel("Config by broker")).to_contain_text("no")
    walk.to("groups/morning")
    walk.change("Skip backlog", {"Reason": "too old"}, verb="Skip")
    walk.close()
    assert api.get("/v1/groups/morning/lag").json["lag_messages"] == 0
    walk.change("Delete", {"Delete its offsets as well": True}, name="morning", verb="Delete")
    walk.close()
    expect(page.locator("h1")).to_have_text("Groups")
    assert "morning" not in names(api.get("/v1/groups"), "group")


def test_a_member_is_asked_and_given_a_message(walk, scene) -> None:
    page = walk.to("groups/board/members")
    page.get_by_role("button", name="Status of").click()
    expect(page.get_by_role("heading", name="Assigned queues")).to_be_visible()
    walk.to(f"messages/{scene.sent}?topic=departures")
    walk.change("Consume directly", {"Group": "board"}, verb="Deliver")
    expect(walk.dialog()).to_contain_text("SUCCESS")
    walk.close()


def test_a_broker_is_probed_cleaned_and_taken_out(walk) -> None:
    page = walk.to("cluster")
    walk.change("Probe", {"Messages per broker": 2}, verb="Send")
    expect(walk.dialog().get_by_role("row")).to_have_count(5)
    walk.close()
    walk.to("cluster/broker-b")
    walk.change("Clean up", {"Operation": "expired_queues"}, verb="Clean up")
    walk.close()
    walk.change("Stop accepting writes", verb="Stop accepting writes")
    walk.close()
    walk.to("cluster/broker-b")
    walk.change("Accept writes", verb="Accept writes")
    walk.close()
    walk.to("cluster/broker-b")
    expect(page.get_by_role("button", name="Stop accepting writes")).to_be_visible()


def test_values_of_name_servers(walk) -> None:
    page = walk.to("name-servers")
    walk.change("Add a value", {"Key": "departures", "Value": "broker-a:4"}, verb="Write")
    walk.close()
    expect(walk.panel("Values")).to_contain_text("broker-a:4")
    walk.change("Delete departures", verb="Delete")
    walk.close()
    expect(page.get_by_text("No value in this namespace.")).to_be_visible()


def test_a_filter_s_life(walk, scene) -> None:
    if not scene.filters:
        pytest.skip("needs a kernel layer: filters run in a sandbox")
    page = walk.to("filters")
    source = "def match(message, context):\n    return message.tag == 'delayed'\n"
    given = {"Group": "nightly", "Name": "late", "Python source": source, "Note": "first"}
    walk.change("Upload", given, verb="Upload")
    walk.close()
    page.get_by_role("link", name="late", exact=True).first.click()
    walk.settled()
    expect(walk.panel("Source of version 1")).to_contain_text("delayed")
    walk.change("New version", {"Note": "second", "Python source": source + "\n"}, verb="Upload")
    walk.close()
    expect(walk.panel("Source of version 2")).to_be_visible()
    for button, verb in (("Roll back", "Roll back"), ("Disable", "Disable"), ("Enable", "Enable")):
        walk.change(button, {"Reason": "a rehearsal"}, verb=verb)
        walk.close()
    walk.change("Policy", {"Then": "skip"}, verb="Policy")
    walk.close()
    walk.change("Try", {"Topic": "departures", "Messages": 20}, verb="Try")
    expect(walk.dialog().get_by_text("passes").first).to_be_visible(timeout=20_000)
    walk.close()
    walk.change("Delete", name="late", verb="Delete")
    walk.close()
    assert "late" not in names(scene.console.get("/v1/filters"), "name")


def test_dead_letters_are_let_go(walk) -> None:
    page = walk.to("dead-letters/billing")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as JSON lines").click()
    lines = download.value.path().read_text().splitlines()
    letters = page.get_by_role("table", name="Dead letters")
    before = letters.get_by_role("row").count() - 1
    assert len(lines) == before + 1, "the last line says that all are there"
    letters.get_by_role("checkbox").nth(1).check()
    walk.change("Discard selected (1)", verb="Discard")
    walk.close()
    expect(letters.get_by_role("row")).to_have_count(before)
    expect(page.get_by_role("button", name="Redeliver selected (0)")).to_be_disabled()


def test_a_group_that_consumes_over_http_leaves(walk, scene) -> None:
    scene.console.post("/v1/groups/gates/topics/departures/leases", json={"max": 1})
    with walk.page.expect_response("**/v1/leases") as answer:
        page = walk.to("leases")
    (gates,) = answer.value.json()["items"]
    ready = sum(topic["ready"] for topic in gates["topics"])
    figures = (gates["queues"], ready, gates["leased"], gates["receiving"])
    row = page.get_by_role("row").filter(has_text="gates")
    expect(row.locator("td")).to_have_text(
        ["gates", "departures", *(str(one) for one in figures), "Leave"]
    )
    walk.change("Leave gates", verb="Leave")
    walk.close()
    expect(page.get_by_text("No group consumes over HTTP.")).to_be_visible()


def test_how_things_stood(walk) -> None:
    """As of any time: a topic before and after it was changed."""
    page = walk.to("history?kind=topic&name=bookings")
    rows = page.get_by_role("table", name="Changes, newest first").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("more bookings in summer")
    rows.nth(1).get_by_role("button", name="Show").click()
    expect(walk.dialog().get_by_label("State before")).to_contain_text('"write_queue_nums": 4')
    walk.close()
    asked = page.locator("form.ask").last
    asked.get_by_label("Name").fill("bookings")
    asked.get_by_role("button", name="Show").click()
    expect(page.get_by_label("State", exact=True)).to_contain_text('"write_queue_nums": 6')


def test_older_decisions_are_shown_page_by_page(walk, scene) -> None:
    for number in range(30):  # at two brokers each
        scene.producer.admin.topics.create("platforms", queues=4 + number % 2, reason="works")
    kept = scene.console.get(
        "/v1/history", query={"kind": "topic", "name": "platforms", "count": 200}
    ).json["items"]
    assert len(kept) > 50
    page = walk.to("history?kind=topic&name=platforms")
    rows = page.get_by_role("table", name="Changes, newest first").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Show older").click()
    expect(rows).to_have_count(len(kept))
    expect(page.get_by_role("button", name="Show older")).to_have_count(0)
