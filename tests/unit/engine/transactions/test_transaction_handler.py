"""Half messages: stored aside, resolved by their place, never visible before, never twice."""

import pytest

from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.follower import FollowerRole
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK
from kourou.errors import Code
from kourou.model.names import HALF_TOPIC, OP_TOPIC
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import stamp
from kourou_rigs.engine import Engine, MemoryStore
from kourou_rigs.transacting import (
    end,
    half,
    ops,
    resolved,
    started_again,
    transacting,
    visible,
)

FAILED = Code.SYSTEM_ERROR


def test_message_and_op_record_are_one_append() -> None:
    engine = transacting()
    place = half(engine)
    engine.effects.clear()
    resolved(engine, place, COMMIT)
    appends = [effect for effect in engine.effects if type(effect).__name__ == "Append"]
    assert [len(append.pieces) for append in appends] == [1]


def test_bytes_in_a_body_are_no_half_message() -> None:
    engine = transacting()
    half(engine)
    raw = engine.store.records[engine.store.queues[HALF_TOPIC, 0][0]]
    # A store that shows a record wherever bytes look like one.
    forged = bytearray(raw)
    at = 5_000_000
    forged[20:28] = (0).to_bytes(8, "big")
    stamp(
        forged,
        0,
        queue_offset=0,
        position=at,
        store_timestamp=1,
        store_host=encode_host(("127.0.0.1", 10911)),
    )
    engine.store.records[at] = bytes(forged)
    assert engine.ask(end((0, at), COMMIT)).code == FAILED
    assert visible(engine) == []


def test_a_follower_resolves_nothing() -> None:
    engine = Engine(policy=BrokerPolicy("c", "b", broker_id=1), role=FollowerRole())
    assert engine.ask(end((0, 0), COMMIT)).code == Code.SERVICE_NOT_AVAILABLE


def test_a_follower_that_was_promoted_resolves_as_any_leader() -> None:
    """Its brokerId stays what it was."""
    store = MemoryStore()
    engine = transacting(
        policy=BrokerPolicy("c", "b", broker_id=1), left=store, role=LeaderRole(store)
    )
    place = half(engine)
    assert resolved(engine, place, COMMIT) == Code.SUCCESS
    assert visible(engine) == [b"pay"]


# -- starting again ---------------------------------------------------------------------------


def test_what_was_open_is_open_after_a_restart() -> None:
    engine = transacting()
    places = [half(engine, b"%d" % n, key=f"U{n}") for n in range(5)]
    resolved(engine, places[0], COMMIT)
    resolved(engine, places[3], ROLLBACK)
    later = started_again(engine)
    assert [one.offset for one in later.core.parts.transactions.halves] == [1, 2, 4]
    assert resolved(later, places[4], COMMIT) == Code.SUCCESS
    assert resolved(later, places[0], COMMIT) == Code.SUCCESS  # asked again, found in the log
    assert resolved(later, places[3], COMMIT) == FAILED
    assert resolved(later, places[3], ROLLBACK) == Code.SUCCESS
    assert visible(later) == [b"0", b"4"]
    assert ops(later) == [b"0", b"3", b"4"]


def test_progress_is_that_of_rocketmqs_own_group() -> None:
    engine = transacting()
    places = [half(engine, key=f"U{n}") for n in range(4)]
    for n in (0, 3, 1):
        resolved(engine, places[n], COMMIT)
    engine.advance(1_000)
    commits = engine.core.parts.commits
    assert commits.offset("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 2
    # The second op record ends half 3, which is not below 2: it has to be read again.
    assert commits.offset("CID_RMQ_SYS_TRANS", OP_TOPIC, 0) == 1
    resolved(engine, places[2], ROLLBACK)
    engine.advance(6_000)
    engine.advance(6_000)
    assert commits.offset("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 4
    assert commits.offset("CID_RMQ_SYS_TRANS", OP_TOPIC, 0) == 4
    later = started_again(engine)
    assert later.control.progress.offset("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 4
    assert len(later.core.parts.transactions.halves) == 0


def test_a_broker_that_stops_records_how_far_it_is() -> None:
    engine = transacting()
    resolved(engine, half(engine), COMMIT)
    engine.perform(engine.core.stop(engine.wall_ms))
    assert started_again(engine).control.progress.offset("CID_RMQ_SYS_TRANS", OP_TOPIC, 0) == 1


@pytest.mark.parametrize("seen", [False, True], ids=["resolved by place", "known from the log"])
def test_power_is_lost_at_every_point_of_a_commit(seen: bool) -> None:
    """Neither a half message seen, nor a committed one lost, nor one stored twice."""
    engine = transacting()
    place = half(engine)
    begin = engine.store.end
    resolved(engine, place, COMMIT)
    counts = set()
    for cut in range(begin, engine.store.end + 1):
        later = started_again(engine, cut)
        found = visible(later)
        counts.add((len(found), len(ops(later))))
        if seen and not found:
            assert resolved(later, place, ROLLBACK) == Code.SUCCESS
            assert visible(later) == []
            continue
        # The producer, which got no answer, asks again; or another member is asked.
        assert resolved(later, place, COMMIT) == Code.SUCCESS
        assert visible(later) == [b"pay"]
        assert ops(later) == [b"0"]
        assert len(later.core.parts.transactions.halves) == 0
        assert visible(started_again(later)) == [b"pay"]
    assert counts == {(0, 0), (1, 0), (1, 1)}


def test_a_message_whose_op_record_was_lost_cannot_be_rolled_back() -> None:
    engine = transacting()
    place = half(engine)
    resolved(engine, place, COMMIT)
    op = engine.store.queues[OP_TOPIC, 0][0]
    later = started_again(engine, op)
    assert resolved(later, place, ROLLBACK) == FAILED
    assert (visible(later), ops(later)) == ([b"pay"], [b"0"])


# -- an operator ------------------------------------------------------------------------------


def test_a_message_is_counted_once_and_its_end_by_its_topic() -> None:
    engine = transacting()
    first, second, third = (half(engine, key=key) for key in ("U1", "U2", "U3"))
    assert resolved(engine, first, COMMIT) == Code.SUCCESS
    assert resolved(engine, second, ROLLBACK) == Code.SUCCESS
    assert resolved(engine, third, COMMIT) == resolved(engine, third, COMMIT) == Code.SUCCESS
    parts = engine.core.parts
    assert parts.traffic.messages_in["orders"] == 3, "at its first phase, whatever comes of it"
    assert parts.traffic.kinds_in["orders", "transaction"].messages == 3
    assert parts.transactions.resolved_by_topic == {
        ("orders", "commit"): 2,
        ("orders", "rollback"): 1,
    }


def test_of_ends_only_the_latest_are_remembered_and_the_log_knows_the_others(monkeypatch) -> None:
    monkeypatch.setattr("kourou.engine.transactions.transaction_handler.RESOLVED_REMEMBERED_MAX", 2)
    engine = transacting()
    places = [half(engine, key=f"U{number}") for number in range(4)]
    for place in places:
        assert resolved(engine, place, COMMIT) == Code.SUCCESS
    handler = engine.core.parts.transactions
    assert list(handler._ended) == [places[2][0], places[3][0]]
    assert resolved(engine, places[0], COMMIT) == Code.SUCCESS
    assert resolved(engine, places[0], ROLLBACK) == FAILED
    assert len(engine.stored("orders", 3)) == 4
