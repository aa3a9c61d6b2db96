"""Whose a query is: its batches are finished by the user who prepared the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kourou.engine.transactions import batches
from kourou.errors import Code
from kourou.model.names import OP_TOPIC
from kourou.model.transaction import BatchMark
from kourou.protocol.bodies.broker_bodies import encode_attempts, encode_decision
from kourou.protocol.messages.access import SetAccessMode
from kourou.protocol.messages.sends import (
    AbortBatch,
    DecideBatch,
    GetBatchState,
    PrepareBatch,
    ResolveBatch,
)
from kourou.runtime import Reply
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, secret_box
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.transacting import batch_send

QUERY = "q-1"
WINNERS = encode_decision({0: "a"}, {})
REFUSED = "no batch of query q-1 was prepared by user rival, and user rival has no right to "


def user(broker: SecuredBroker, root: Sender, name: str, *roles: str) -> Sender:
    """A user who is known by the key, as Kourou's clients are."""
    return replace(broker.create(root, name, *roles), secret="")


@pytest.fixture
def spark(broker: SecuredBroker, root: Sender) -> Sender:
    """A user who may send to `orders`."""
    made = user(broker, root, "spark")
    assert broker.allow(root, "spark", "Topic:orders", "Pub").code == Code.SUCCESS
    return made


@pytest.fixture
def rival(broker: SecuredBroker, root: Sender) -> Sender:
    """Another user with the same right."""
    made = user(broker, root, "rival")
    assert broker.allow(root, "rival", "Topic:orders", "Pub").code == Code.SUCCESS
    return made


def write(
    broker: SecuredBroker, sender: Sender, bodies: Sequence[str], *, batch: int = 0, more: str = ""
) -> None:
    """A task writes half messages; `more` are further properties, encoded."""
    mark, extra = BatchMark(QUERY, batch, 0, "a"), more.encode()
    frame = batch_send(bodies, mark, born_ms=broker.engine.wall_ms, first=extra, last=extra)
    header = header_of(broker.ask(sender, *frame))
    assert header.target_codes == [0], header.target_remarks


def prepare(broker: SecuredBroker, sender: Sender, count: int, *, batch: int = 0) -> Reply:
    request = PrepareBatch(query=QUERY, batch=batch, coordinator="broker-a")
    return broker.ask(sender, request, encode_attempts({0: ("a", count)} if count else {}))


def decide(broker: SecuredBroker, sender: Sender, *, batch: int = 0) -> Reply:
    return broker.ask(sender, DecideBatch(query=QUERY, batch=batch), WINNERS)


def resolve(broker: SecuredBroker, sender: Sender, *, batch: int = 0, last: bool = False) -> Reply:
    return broker.ask(sender, ResolveBatch(query=QUERY, batch=batch, last=last), WINNERS)


def abort(broker: SecuredBroker, sender: Sender) -> Reply:
    return broker.ask(sender, AbortBatch(query=QUERY, attempts="a"))


def state(broker: SecuredBroker, sender: Sender) -> Reply:
    return broker.ask(sender, GetBatchState(query=QUERY))


def stored(broker: SecuredBroker, topic: str = "orders") -> list[str]:
    return [bytes(one.body).decode() for one in broker.engine.stored(topic)]


def test_another_user_neither_reads_nor_ends_a_query(
    broker: SecuredBroker, spark: Sender, rival: Sender
) -> None:
    write(broker, spark, ["one", "two"])
    assert prepare(broker, spark, 2).code == Code.SUCCESS
    events = len(broker.engine.events())
    for ask, action in (
        (state, "Get"),
        (decide, "Update"),
        (resolve, "Update"),
        (abort, "Update"),
    ):
        reply = ask(broker, rival)
        text = f"{REFUSED}{action} on Cluster: (no policy allows it)"
        assert (reply.code, reply.remark) == (Code.NO_PERMISSION, text)
    assert prepare(broker, rival, 2, batch=1).code == Code.NO_PERMISSION
    assert (len(broker.engine.events()), broker.engine.stored(OP_TOPIC)) == (events, [])
    for ask in (state, decide, resolve):
        assert ask(broker, spark).code == Code.SUCCESS
    assert stored(broker) == ["one", "two"]


def test_rights_on_the_cluster_include_queries_of_others(
    broker: SecuredBroker, root: Sender, spark: Sender
) -> None:
    reader, operator = user(broker, root, "r", "reader"), user(broker, root, "o", "operator")
    write(broker, spark, ["one"])
    assert prepare(broker, spark, 1).code == Code.SUCCESS
    assert state(broker, reader).code == Code.SUCCESS
    assert decide(broker, reader).code == Code.NO_PERMISSION
    for ask in (state, decide, resolve):
        assert ask(broker, operator).code == Code.SUCCESS
    assert stored(broker) == ["one"]
    write(broker, spark, ["two"], batch=1)
    assert prepare(broker, operator, 1, batch=1).code == Code.SUCCESS
    assert broker.engine.control.batches.table[QUERY].user == "spark"


def begin(broker: SecuredBroker, sender: Sender, query: str) -> Reply:
    """Prepare a batch of which this broker has no message."""
    request = PrepareBatch(query=query, batch=0, coordinator="broker-b")
    return broker.ask(sender, request, encode_attempts({}))


def test_only_who_may_send_its_messages_begins_a_query(
    broker: SecuredBroker, root: Sender, spark: Sender
) -> None:
    """Else its batches could be resolved without winners, which discards them."""
    reader, other = user(broker, root, "r", "viewer"), user(broker, root, "other")
    broker.allow(root, "other", "Topic:secret", "Pub")
    broker.allow(root, "anonymous", "Topic:orders", "Sub")
    write(broker, spark, ["one", "two"])
    events = len(broker.engine.events())
    for sender, query in (
        (reader, QUERY),
        (reader, "new"),
        (ANYBODY, QUERY),
        (ANYBODY, "new"),
        (other, QUERY),
    ):
        reply = begin(broker, sender, query)
        assert (reply.code, "no right to Pub on" in reply.remark) == (Code.NO_PERMISSION, True)
    assert len(broker.engine.events()) == events
    assert begin(broker, spark, "new").code == Code.SUCCESS, "the coordinator has no message"
    for ask in (decide, resolve):
        assert prepare(broker, spark, 2).code == ask(broker, spark).code == Code.SUCCESS
    assert stored(broker) == ["one", "two"]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_query_without_a_user_is_ended_by_who_may_send_its_messages(
    broker: SecuredBroker, root: Sender, spark: Sender, mode: str
) -> None:
    by_key, reader = replace(root, secret=""), user(broker, root, "r", "viewer")
    assert broker.ask(by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    write(broker, ANYBODY, ["one"])
    assert prepare(broker, ANYBODY, 1).code == Code.SUCCESS
    assert broker.ask(by_key, SetAccessMode(mode="enforce")).code == Code.SUCCESS
    for ask in (decide, resolve):
        assert ask(broker, reader).code == Code.NO_PERMISSION
        assert ask(broker, spark).code == Code.SUCCESS
    assert stored(broker) == ["one"]


def test_a_request_that_comes_with_the_first_prepare_is_decided_after_it(
    broker: SecuredBroker, spark: Sender, rival: Sender
) -> None:
    """The gate decides about both before it is known whose the query is."""
    write(broker, spark, ["one"])
    request = PrepareBatch(query=QUERY, batch=0, coordinator="broker-b")
    replies = broker.give(
        broker.received(spark, request, encode_attempts({0: ("a", 1)})),
        broker.received(rival, ResolveBatch(query=QUERY, batch=0), encode_decision({}, {})),
    )
    codes = [None if reply is None else reply.code for reply in replies]
    assert codes == [Code.SUCCESS, Code.NO_PERMISSION]
    assert broker.engine.stored(OP_TOPIC) == []


def test_no_user_makes_the_broker_forget_queries_of_others(
    broker: SecuredBroker, spark: Sender, rival: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_QUERIES_MAX", 4)
    monkeypatch.setattr(batches, "BATCH_QUERIES_USER_MAX", 3)
    write(broker, spark, ["one"])
    assert prepare(broker, spark, 1).code == decide(broker, spark).code == Code.SUCCESS
    assert resolve(broker, spark).code == Code.SUCCESS
    for number in range(5):
        assert begin(broker, rival, f"r-{number}").code == Code.SUCCESS
    table = broker.engine.control.batches.table
    assert list(table) == [QUERY, "r-2", "r-3", "r-4"]
    assert table[QUERY].resolved == 0


def test_a_query_keeps_its_user_after_a_restart(
    broker: SecuredBroker, spark: Sender, rival: Sender
) -> None:
    write(broker, spark, ["one"])
    assert prepare(broker, spark, 1).code == Code.SUCCESS
    left = broker.engine.store.cut(broker.engine.store.end)
    again = SecuredBroker(Engine(left=left, secrets=secret_box()))
    assert decide(again, rival).code == Code.NO_PERMISSION
    assert decide(again, spark).code == resolve(again, spark).code == Code.SUCCESS
    assert stored(again) == ["one"]


def test_what_is_not_prepared_yet_is_ended_only_with_a_right_on_the_cluster(
    broker: SecuredBroker, root: Sender, spark: Sender, rival: Sender
) -> None:
    operator = user(broker, root, "o", "operator")
    write(broker, spark, ["one"])
    for ask in (resolve, abort):
        assert ask(broker, rival).code == Code.NO_PERMISSION
    assert broker.engine.stored(OP_TOPIC) == []
    assert header_of(abort(broker, operator)).discarded == 1
    write(broker, spark, ["two"])
    assert header_of(resolve(broker, operator)).committed == 1


def test_a_user_aborts_attempts_of_its_own_query(broker: SecuredBroker, spark: Sender) -> None:
    write(broker, spark, ["one"])
    assert prepare(broker, spark, 1).code == decide(broker, spark).code == Code.SUCCESS
    assert resolve(broker, spark).code == Code.SUCCESS
    write(broker, spark, ["two"], batch=1)
    assert header_of(abort(broker, spark)).discarded == 1


def test_the_last_request_of_a_query_may_be_repeated(broker: SecuredBroker, spark: Sender) -> None:
    write(broker, spark, ["one"])
    assert prepare(broker, spark, 1).code == decide(broker, spark).code == Code.SUCCESS
    for _ in range(2):
        assert resolve(broker, spark, last=True).code == Code.SUCCESS
    assert stored(broker) == ["one"]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_query_belongs_to_a_user_from_the_first_batch_that_is_prepared_under_enforcement(
    broker: SecuredBroker, root: Sender, spark: Sender, rival: Sender, mode: str
) -> None:
    by_key = replace(root, secret="")
    assert broker.ask(by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    write(broker, ANYBODY, ["one"])
    assert prepare(broker, ANYBODY, 1).code == Code.SUCCESS
    assert broker.ask(by_key, SetAccessMode(mode="enforce")).code == Code.SUCCESS
    assert decide(broker, spark).code == resolve(broker, spark).code == Code.SUCCESS
    assert state(broker, rival).code == Code.SUCCESS
    assert prepare(broker, spark, 0, batch=1).code == Code.SUCCESS
    assert broker.engine.control.batches.table[QUERY].user == "spark"
    assert state(broker, rival).code == Code.NO_PERMISSION


@pytest.mark.parametrize("count", [3, 12])
def test_messages_of_a_batch_go_to_the_topic_that_was_decided_about(
    broker: SecuredBroker, root: Sender, count: int
) -> None:
    """A sender cannot name another one in the properties: `count` 12 takes the path of many."""
    till = user(broker, root, "till")
    broker.allow(root, "till", "Topic:orders", "Pub")
    write(broker, till, list(map(str, range(count))), more="REAL_TOPIC\x01secret\x02")
    assert prepare(broker, till, count).code == decide(broker, till).code == Code.SUCCESS
    assert header_of(resolve(broker, till)).committed == count
    assert (len(stored(broker)), stored(broker, "secret")) == (count, [])
