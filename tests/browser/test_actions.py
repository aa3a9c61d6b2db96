"""What can be done in the console: each action says before what will happen, and then it has."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import expect

from kourou_rigs.console import ConsoleHere


@pytest.mark.feature("F057")
def test_the_topic_page(walk, scene) -> None:
    """Four check boxes, ADD/UPDATE and REFRESH; of a topic seven actions, the last deletes it."""
    page = walk.to("topics")
    boxes = {
        name: page.get_by_role("checkbox", name=re.compile(f"^{name}"))
        for name in ("NORMAL", "RETRY", "DLQ", "SYSTEM")
    }
    assert [name for name, box in boxes.items() if box.is_checked()] == ["NORMAL"]
    dead = page.get_by_role("link", name="%DLQ%billing", exact=True)
    boxes["NORMAL"].uncheck()
    boxes["DLQ"].check()
    expect(dead).to_be_visible()
    boxes["NORMAL"].check()
    boxes["DLQ"].uncheck()
    expect(dead).to_have_count(0)

    says = walk.change("ADD/UPDATE", {"Topic": "standby", "Write queues": 3}, verb="Write")
    assert any("standby" in line for line in says), says
    walk.close()
    page.get_by_role("button", name="REFRESH", exact=True).click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="standby", exact=True))
    for link, heading in (
        ("STATUS", "Queues"),
        ("ROUTER", "Route"),
        ("CONSUMER MANAGE", "Consumer groups"),
        ("TOPIC CONFIG", "Config by broker"),
    ):
        row.get_by_role("link", name=f"{link} of standby").click()
        expect(walk.panel(heading)).to_be_visible()
        walk.settled().go_back()

    walk.change(
        "SEND MESSAGE to standby",
        {"Tag": "seat", "Keys": "s-1 s-2", "Properties": "row=12", "Body": '{"seat": "12A"}'},
        verb="Send",
    )
    walk.dialog().get_by_role("link").click()
    walk.settled()
    expect(walk.panel("Body")).to_contain_text('"seat": "12A"')
    expect(walk.panel("Properties")).to_contain_text("row")

    walk.to("topics")
    says = walk.change("DELETE standby", name="standby", verb="DELETE")
    assert any("cannot be undone" in line for line in says), says
    walk.close()
    expect(page.get_by_role("link", name="standby", exact=True)).to_have_count(0)
    assert "standby" not in [one["topic"] for one in scene.console.get("/v1/topics").json["items"]]


@pytest.mark.feature("F057", "F269")
def test_reset_consumer_offset(walk, scene) -> None:
    """The preview has every queue; only then it moves."""
    page = walk.to("topics")
    page.get_by_role("button", name="RESET CONSUMER OFFSET of departures").click()
    dialog = walk.dialog()
    dialog.get_by_label("Group", exact=True).select_option("nightly")
    dialog.get_by_label("To", exact=True).select_option("end")
    dialog.get_by_role("button", name="Preview").click()
    moves = dialog.get_by_role("table", name="Moves")
    expect(moves.get_by_role("row")).to_have_count(9)
    before = scene.console.get("/v1/groups/nightly/lag").json["lag_messages"]
    assert before > 0, "a preview moves nothing"
    dialog.get_by_role("button", name="Reset", exact=True).click()
    walk.close()
    assert scene.console.get("/v1/groups/nightly/lag").json["lag_messages"] == 0
    walk.to("groups/nightly")
    walk.change("Reset offsets", {"To": "begin"}, verb="Reset")
    walk.close()
    assert scene.console.get("/v1/groups/nightly/lag").json["lag_messages"] >= before


def test_the_live_tail(walk, scene) -> None:
    page = walk.to("topics/baggage/tail")
    page.get_by_label("Tags").fill("odd")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("runs", exact=True)).to_be_visible()
    # The stream begins with what comes after it was opened, which only its first message shows.
    seen = page.get_by_text("seen")
    late = time.monotonic() + 20
    while seen.inner_text() == "0 seen" and time.monotonic() < late:
        scene.producer.send("baggage", b"even", tag="even")
        scene.producer.send("baggage", b"a trunk", tag="odd")
        page.wait_for_timeout(100)
    rows = page.get_by_role("table", name="Live messages").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("a trunk")
    assert "even" not in page.get_by_role("table").inner_text()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("stopped", exact=True)).to_be_visible()


def test_dead_letters_are_rehearsed_and_sent_again(walk) -> None:
    """A selection, with the outcome of each; a rehearsal sends nothing."""
    page = walk.to("dead-letters/billing")
    letters = page.get_by_role("table", name="Dead letters")
    letters.get_by_role("checkbox").nth(1).check()
    letters.get_by_role("checkbox").nth(2).check()
    page.get_by_role("button", name="Redeliver selected (2)").click()
    walk.dialog().get_by_role("button", name="Start").click()
    outcomes = walk.dialog().get_by_role("table", name="Results")
    expect(outcomes.get_by_text("would send")).to_have_count(2)
    walk.close()
    expect(walk.panel("Redeliveries")).to_contain_text("dry run")
    walk.change("Redeliver cause the card was declined", {"Dry run": False}, verb="Start")
    expect(outcomes.get_by_text("sent", exact=True)).to_have_count(3, timeout=20_000)
    walk.close()


def test_a_setting_is_changed_and_the_change_undone(walk, scene) -> None:
    page = walk.to("cluster/broker-b/settings")
    page.get_by_label("Filter settings").fill("maxTransferCountOnMessageInMemory")
    says = walk.change(
        "Change maxTransferCountOnMessageInMemory",
        {"maxTransferCountOnMessageInMemory": "40", "Reason": "an experiment"},
        verb="Change",
    )
    assert says
    walk.close()
    row = page.get_by_role("row").filter(has_text="maxTransferCountOnMessageInMemory")
    expect(row).to_contain_text("changed")
    walk.to("cluster/broker-b/history")
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("an experiment")
    undo = first.get_by_role("button", name="Undo").get_attribute("aria-label")
    walk.change(undo or "", {"Reason": "enough"}, verb="Undo")
    walk.close()
    expect(page.get_by_role("row").nth(1)).to_contain_text("undoes")
    value = {
        one["name"]: one["value"]
        for one in scene.console.get("/v1/brokers/broker-b/config").json["items"]
    }
    assert value["maxTransferCountOnMessageInMemory"] != "40"


def test_a_message_as_text_json_and_bytes(walk, scene) -> None:
    page = walk.to(f"messages/{scene.sent}?topic=departures")
    body = walk.panel("Body")
    expect(body.locator("pre")).to_contain_text('"flight": "AF400"')
    page.get_by_role("tab", name="Hex").click()
    expect(body.locator("pre")).to_contain_text("00000000  7b 22")
    page.get_by_role("tab", name="Text").click()
    assert json.loads(body.locator("pre").inner_text())["flight"] == "AF400"
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert json.loads(download.value.path().read_bytes())["flight"] == "AF400"


def test_a_message_that_is_not_there(walk) -> None:
    """The refusal stands where the answer would, with what to do."""
    unknown = "7F000001000027100000000000FFFFFF"
    walk.refusals = {404}
    page = walk.to(f"messages/{unknown}")
    expect(page.get_by_role("alert").first).to_be_visible()


def test_a_token_is_asked_for(walking, scene, tmp_path) -> None:
    """The login says what is wrong; the token lasts until one logs out."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[[token]]\nname = "ops"\nright = "read"\ntoken = "a token of some length"\n')
    tokens.chmod(0o600)
    with ConsoleHere(scene.cluster, token_file=tokens) as console:
        walk = walking(console.address)
        walk.refusals = {401, 403}
        page = walk.open("topics")
        token = page.get_by_role("textbox", name="Token")
        token.fill("a token of another length")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        assert walk.violations() == ""
        token.fill("a token of some length")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="departures", exact=True)).to_be_visible()
        expect(page.get_by_text("ops", exact=True)).to_be_visible()
        page.get_by_role("button", name="DELETE departures").click()
        expect(walk.dialog().get_by_role("alert")).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Log out").click()
        expect(token).to_be_visible()
