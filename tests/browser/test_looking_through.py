"""Lists of several pages: on and back, as the API has them, and anew for another question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

TOPIC = "ground-crew"
SENT = 120
REFRESH_MS = 10_000


@pytest.fixture(scope="module")
def crew(scene) -> Iterator[str]:
    """A topic with enough for three pages: one queue at each of two brokers."""
    scene.cluster.create_topic(TOPIC, queues=1)
    for number in range(SENT):
        tag = "odd" if number % 2 else "even"
        scene.producer.send(TOPIC, b"%d" % number, tag=tag, keys=f"crew-{number}")
    return TOPIC


def ids(answer: Any) -> Sequence[str]:
    return [one["id"] for one in answer["items"]]


def first_cells(page: Page, table: str) -> Locator:
    return page.get_by_role("table", name=table, exact=True).locator("tbody tr td:first-child")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_messages_by_time_on_and_back_and_of_another_question(walk, scene, crew) -> None:
    """The place in one list is not taken for one in the next."""
    page = walk.to(f"messages?by=time&topic={crew}")
    found = first_cells(page, "Found")

    def view(**more: Any) -> Any:
        query = {"topic": crew, "from_ms": 0, "count": 50, **more}
        return scene.console.get("/v1/messages", query=query).json

    first = view()
    second = view(cursor=first["cursor"])
    third = view(cursor=second["cursor"])
    assert [len(one["items"]) for one in (first, second, third)] == [50, 50, 20]
    press(page, "Search")
    expect(found).to_have_text(ids(first))
    expect(page.get_by_role("button", name="Earlier")).to_be_disabled()
    for button, expected in (("Later", second), ("Later", third), ("Earlier", second)):
        press(page, button)
        expect(found).to_have_text(ids(expected))
    press(page, "Later")
    expect(found).to_have_text(ids(third))
    expect(page.get_by_role("button", name="Later")).to_be_disabled()

    page.get_by_label("Tag", exact=True).fill("odd")
    press(page, "Search")
    expect(found).to_have_text(ids(view(tag="odd")))
    expect(walk.panel("Found")).to_contain_text("Page 1")
    press(page, "Later")
    expect(walk.panel("Found")).to_contain_text("Page 2")

    page.get_by_role("link", name="By key", exact=True).click()
    page.get_by_label("Key", exact=True).fill("crew-7")
    press(page, "Search")
    expect(found).to_have_count(1)


def test_dead_letters_on_and_back(walk, scene) -> None:
    """Two a page, where the console asks for many."""
    walk.page.route(
        "**/v1/dead-letters?*",
        lambda route: route.continue_(url=route.request.url.replace("count=200", "count=2")),
    )

    def view(**more: Any) -> Any:
        query = {"group": "billing", "count": 2, **more}
        return scene.console.get("/v1/dead-letters", query=query).json

    first = view()
    second = view(cursor=first["cursor"])
    page = walk.to("dead-letters/billing")
    letters = page.get_by_role("table", name="Dead letters", exact=True)
    links = letters.locator("tbody td:nth-child(2)")
    letters.get_by_role("checkbox").nth(1).check()
    for button, expected in (("Later", second), ("Earlier", first)):
        press(page, button)
        expect(links).to_have_text(ids(expected))
        expect(page.get_by_role("button", name="Redeliver selected (0)")).to_be_visible()


def test_a_queue_on_and_back(walk, scene, crew) -> None:
    page = walk.to(f"topics/{crew}/browse")
    found = first_cells(page, "Messages")
    broker, queue = page.get_by_label("Queue", exact=True).input_value().split("/")
    path = f"/v1/topics/{crew}/queues/{broker}/{queue}/messages"

    def view(offset: int) -> Sequence[str]:
        return ids(scene.console.get(path, query={"offset": offset, "count": 20}).json)

    end = scene.console.get(path, query={"offset": -20, "count": 20}).json["max_offset"]
    expect(found).to_have_text(view(end - 20))
    for button, begin in (
        ("Earlier", end - 40),
        ("Later", end - 20),
        ("Oldest", 0),
        ("Later", 20),
        ("Newest", end - 20),
    ):
        press(page, button)
        expect(found).to_have_text(view(begin))
    expect(page.get_by_role("button", name="Later", exact=True)).to_be_disabled()


def test_the_queue_that_is_looked_at_stays(walk, scene, crew) -> None:
    """Though another, that was empty when the page was opened, gets its first message."""
    path = f"/v1/topics/{crew}/status"
    status = scene.console.get(path).json
    filled = {**status, "items": [dict(one) for one in status["items"]]}
    status["items"][0]["messages"] = 0
    answers = [status]
    walk.page.route(
        f"**{path}", lambda route: route.fulfill(json=answers.pop() if answers else filled)
    )
    walk.page.clock.install()
    page = walk.to(f"topics/{crew}/browse")
    queue = page.get_by_label("Queue", exact=True)
    second = f"{status['items'][1]['broker']}/{status['items'][1]['queue']}"
    expect(queue).to_have_value(second)
    with page.expect_response("**/messages?*"):  # its messages are asked for after its status
        page.clock.run_for(REFRESH_MS + 1)
    walk.settled()
    expect(queue).to_have_value(second)
