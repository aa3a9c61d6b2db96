"""Texts that are markup or scripts: the console shows them as text, wherever they come from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from kourou.client.consumer.outcomes import DeadLetter
from kourou.client.settings.client_settings import ClientSettings, ProducerSettings
from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere

MARKUP = '"><img src=x onerror="window.hurt=1"><script>window.hurt=1</script><svg onload=hurt=1>'
"""Ends an attribute, and then runs by any of three ways."""

TAG = "'-alert(1)-'<b>"
WAIT_S = 60.0


class HostileScene:
    """A cluster in which one producer and one consumer wrote markup into everything they may."""

    def __init__(self, stack: ExitStack, folder: Any) -> None:
        self.cluster = stack.enter_context(Cluster(folder, brokers=1, filter_servers=0))
        self.cluster.create_topic("hostile")
        settings = ClientSettings(
            instance_name=MARKUP[:60],
            persist_consumer_offset_interval_ms=100,
            local_offsets_dir=str(folder / "offsets"),
        )
        producer = ProducerSettings(producer_group="intruders", message_trace=True)
        self.client = stack.enter_context(
            self.cluster.client("intruders", settings=settings, producer=producer)
        )
        died = threading.Event()

        def fail(_message: Any) -> None:
            died.set()
            raise DeadLetter(MARKUP)

        stack.enter_context(self.client.listen("hostile", fail))
        result = self.client.send(
            "hostile",
            f"<!doctype html><title>x</title>{MARKUP}".encode(),
            tag=TAG,
            keys=("<script>hurt=1</script>",),
            properties={f"name{MARKUP}": MARKUP, "Content-Type": "text/html"},
        )
        self.sent = result.message_id
        self.client.admin.topics.create("hostile-2", queues=1, reason=MARKUP)
        assert died.wait(WAIT_S)
        while not self.client.admin.dead_letters.of("intruders"):
            pass
        self.console = stack.enter_context(ConsoleHere(self.cluster))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileScene]:
    with ExitStack() as stack:
        yield HostileScene(stack, tmp_path_factory.mktemp("hostile"))


PAGES = (
    "",
    "topics",
    "topics/hostile",
    "topics/hostile/browse",
    "topics/hostile/tail",
    "groups",
    "groups/intruders",
    "groups/intruders/members",
    "groups/intruders/subscriptions",
    "producers",
    "messages?topic=hostile&key={key}",
    "messages?by=time&topic=hostile",
    "messages/{sent}?topic=hostile",
    "messages/{sent}/why?topic=hostile",
    "messages/{sent}/trace?topic=hostile",
    "trace?id={sent}&topic=hostile",
    "dead-letters",
    "dead-letters/intruders",
    "history",
    "history?kind=topic&name=hostile-2",
    "audit",
)
REFLECTED = (
    "nowhere/{markup}",
    "topics/{markup}",
    "groups/{markup}",
    "messages/{markup}?topic={markup}",
    "messages?topic={markup}&key={markup}",
    "trace?id={markup}&topic={markup}",
    "dead-letters/{markup}",
    "history?kind={markup}&name={markup}",
    "audit?user={markup}&request={markup}&broker={markup}&decision={markup}",
)
"""Addresses that an operator may be sent; the page shows what is in them."""


AUDITED = {
    "items": [
        {
            **dict.fromkeys(("user", "source", "request", "need", "by", "console", "door"), MARKUP),
            "broker": MARKUP,
            "at_ms": 0,
            "decision": decision,
            "count": 1,
            "handled": True,
        }
        for decision in ("refused", "allowed")
    ],
    "total": None,
    "truncated": False,
    "as_of_ms": 0,
    "missing": [],
    "cursor": None,
}
"""Anyone may sign in as a user of any name; what else is in the audit is not better here."""


@pytest.mark.fault
def test_no_text_becomes_a_part_of_a_page(walking, hostile) -> None:
    """A policy that the page violates is written to the console, which is a fault of the walk."""
    walk = walking(hostile.console.address)
    walk.refusals = {400, 404}
    walk.page.route("**/v1/audit?count=50", lambda route: route.fulfill(json=AUDITED))
    walk.page.on("dialog", lambda dialog: walk.faults.append(f"dialog: {dialog.message}"))
    words = {"sent": hostile.sent, "key": quote("<script>hurt=1</script>"), "markup": quote(MARKUP)}
    page = walk.to("")
    scripts = page.locator("script").count()
    for path in (*PAGES, *REFLECTED):
        page = walk.to(path.format(**words))
        assert page.evaluate("window.hurt === undefined"), path
        assert page.locator("img[src=x]").count() == 0, path
        assert page.locator("[onerror], [onload], main script").count() == 0, path
        assert page.locator("script").count() == scripts, path
    page = walk.to(f"messages/{hostile.sent}?topic=hostile")
    expect(walk.panel("Body").locator("pre")).to_contain_text("<script>window.hurt=1</script>")
    expect(page.locator("main")).to_contain_text(TAG)
    walk.to("dead-letters/intruders")
    expect(page.locator("main")).to_contain_text("<img src=x onerror=")
    walk.to("audit")
    expect(page.get_by_role("cell", name=MARKUP, exact=True)).to_have_count(2 * 8)


@pytest.mark.fault
def test_a_body_that_is_a_page_is_downloaded_and_not_opened(walking, hostile) -> None:
    walk = walking(hostile.console.address)
    page = walk.to("")
    path = f"/v1/messages/{hostile.sent}/body?topic=hostile"
    answer = page.request.get(f"http://{hostile.console.address}{path}")
    headers = answer.headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment;")
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    with page.expect_download() as download:
        page.evaluate(f"location.assign({path!r})")
    assert b"<script>" in download.value.path().read_bytes()
    assert page.evaluate("window.hurt === undefined")
    assert page.locator("main h1").count() == 1, "the console is still there"
