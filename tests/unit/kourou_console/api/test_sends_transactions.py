"""A transaction in two calls: half now, its fate later, whoever is asked then."""

from __future__ import annotations

import pytest

from kourou.model.transaction import TransactionState
from kourou_console.messages.transactions import HalfMessages, half_of
from kourou_rigs.console import ConsoleHere

BEGIN = "/v1/topics/paid/transactions"


@pytest.fixture(scope="module", autouse=True)
def topic(cluster):
    cluster.create_topic("paid")


def begun(console: ConsoleHere, body: bytes = b"half", **options: object) -> str:
    answer = console.post(BEGIN, body=body, **options)
    assert answer.status == 201, answer.text
    return str(answer.json["transaction_id"])


def end(console: ConsoleHere, transaction: str, how: str):
    return console.post(f"/v1/transactions/{transaction}/{how}")


def test_committed_is_delivered_and_rolled_back_is_not(console, cluster):
    sent = cluster.sent()
    kept, dropped = begun(console, b"kept"), begun(console, b"dropped")
    sent.none("paid")
    assert end(console, kept, "commit").json["state"] == "committed"
    assert end(console, dropped, "rollback").json["state"] == "rolled_back"
    assert bytes(sent.one("paid").body) == b"kept"


def test_who_lists_what_waits_can_end_it(console, cluster):
    sent = cluster.sent()
    kept, dropped = begun(console, b"listed and kept"), begun(console, b"listed and dropped")
    listed = {one["message"]["body"]: one for one in console.get("/v1/transactions").json["items"]}
    assert listed["listed and kept"]["id"] == kept
    assert listed["listed and dropped"]["id"] == dropped
    cluster.clock.advance(minutes=2)  # the broker asks, and stores them anew
    again = {one["message"]["body"]: one for one in console.get("/v1/transactions").json["items"]}
    assert again["listed and kept"]["checks"] > 0
    assert end(console, again["listed and kept"]["id"], "commit").status == 200
    assert end(console, again["listed and dropped"]["id"], "rollback").status == 200
    assert bytes(sent.one("paid").body) == b"listed and kept"
    assert end(console, kept, "commit").status == 200
    with ConsoleHere(cluster, producer_group="OTHERS") as stranger:
        begun(console, b"not of others")
        theirs = {
            one["message"]["body"]: one for one in stranger.get("/v1/transactions").json["items"]
        }
    assert theirs["not of others"]["id"] is None


def test_saying_it_again_is_no_error_and_the_other_thing_is(console):
    transaction = begun(console)
    assert end(console, transaction, "commit").status == 200
    assert end(console, transaction, "commit").status == 200
    assert end(console, transaction, "rollback").status == 409


def test_another_gateway_can_end_it(console, cluster):
    transaction = begun(console)
    with ConsoleHere(cluster) as another:
        assert end(another, transaction, "commit").status == 200
        # Of another producer group it cannot.
        second = begun(console)
    with ConsoleHere(cluster, producer_group="OTHERS") as stranger:
        refused = end(stranger, second, "commit")
    assert refused.status == 409
    assert "group" in refused.json["detail"]


def test_an_id_that_is_none(console):
    for text in ("abc", "%00", "a" * 2_000):
        assert end(console, text, "commit").status == 400


def test_a_half_message_cannot_be_delayed(console):
    assert console.post(BEGIN, json={"body": "x", "delay_level": 1}).status == 400


def test_a_broker_that_asks_is_told_that_nothing_is_known_and_asks_again(console, cluster):
    transaction = begun(console, query={"check_immunity_s": 1})
    asked: list[object] = []
    halves = console.gateway.part(HalfMessages)
    answer = halves._answer

    async def watched(message):
        said = await answer(message)
        asked.append((message.message_id, said))
        return said

    check = console.gateway.client._producer_core().checks
    former = check._checks[""]
    check._checks[""] = type(former)("", watched, None)
    name = half_of(transaction).message_id
    try:
        for _ in range(40):
            cluster.clock.leap(seconds=60)
            if asked.count((name, None)) > 1:
                break
    finally:
        check._checks[""] = former
    assert asked.count((name, None)) > 1
    assert end(console, transaction, "commit").status == 200


def test_a_decision_that_no_broker_heard_is_told_when_it_asks(console, cluster):
    transaction = begun(console)
    half = half_of(transaction)
    broker = half.queue.broker_name
    halves = console.gateway.part(HalfMessages)
    cluster.chaos.kill(broker)
    try:
        refused = end(console, transaction, "commit")
        assert refused.status in (503, 504)
        assert halves._decided[half.message_id] is TransactionState.COMMIT
    finally:
        cluster.chaos.restart(broker)
    assert end(console, transaction, "commit").status == 200
    assert half.message_id not in halves._decided
