"""Delayed messages and open transactions are shown while they wait, and no longer."""

from __future__ import annotations

import pytest

from kourou import ProducerSettings, TransactionState


@pytest.mark.feature("F247", "F248")
def test_delayed_messages_until_they_are_due(cluster, console):
    topic, other = cluster.create_topic(), cluster.create_topic()
    with cluster.client() as mq:
        later = mq.send(topic, "later", delay_level=5)
        mq.send(topic, "soon", delay_level=3)
        mq.send(other, "elsewhere", delay_level=3)
    found = console.get("/v1/delayed").json
    assert [one["message"]["body"] for one in found["items"]] == ["soon", "elsewhere", "later"]
    last = found["items"][2]
    assert (last["topic"], last["level"]) == (topic, 5)
    assert last["message"]["id"] == later.message_id
    assert last["due_ms"] == last["message"]["stored_ms"] + 60_000
    assert sum(level["waiting"] for level in found["levels"]) == found["total"] == 3
    of_topic = console.get("/v1/delayed", query={"topic": other}).json
    assert [one["message"]["body"] for one in of_topic["items"]] == ["elsewhere"]
    assert (of_topic["total"], of_topic["truncated"]) == (1, False)
    few = console.get("/v1/delayed", query={"count": "1"}).json
    assert (len(few["items"]), few["truncated"]) == (1, True)
    cluster.clock.advance(seconds=11)
    found = console.get("/v1/delayed").json
    assert [one["message"]["body"] for one in found["items"]] == ["later"]
    cluster.clock.advance(seconds=60)
    found = console.get("/v1/delayed").json
    assert (found["items"], found["levels"], found["missing"]) == ([], [], [])


def test_transactions_until_they_end(cluster, console):
    assert console.get("/v1/transactions").json["items"] == []
    topic = cluster.create_topic()
    group = f"{topic}-sellers"
    states = {
        "a": TransactionState.UNKNOWN,
        "b": TransactionState.COMMIT,
        "c": TransactionState.ROLLBACK,
        "d": TransactionState.UNKNOWN,
    }
    known: dict[bytes, TransactionState] = {}
    with (
        cluster.client() as mq,
        mq.transaction_producer(
            ProducerSettings(producer_group=group),
            execute=lambda tx, name: states[name],
            check=lambda message: known.get(message.body, TransactionState.UNKNOWN),
        ) as producer,
    ):
        for name in states:
            producer.send_in_transaction(topic, name, name)
            if name == "a":  # the other broker has never seen a transaction: nothing is missing
                assert console.get("/v1/transactions").json["missing"] == []
        found = console.get("/v1/transactions", query={"group": group}).json
        assert [one["message"]["body"] for one in found["items"]] == ["a", "d"]
        first = found["items"][0]
        assert (first["topic"], first["producer_group"], first["checks"]) == (topic, group, 0)
        assert first["transaction_id"] == first["message"]["id"]
        assert (found["total"], found["truncated"]) == (2, False)
        assert console.get("/v1/transactions", query={"group": "others"}).json["items"] == []
        known[b"d"] = TransactionState.COMMIT
        cluster.clock.advance(minutes=2)
        found = console.get("/v1/transactions").json
        assert [one["message"]["body"] for one in found["items"]] == ["a"]
        assert found["items"][0]["checks"] > 0
        assert found["items"][0]["age_ms"] >= 120_000
