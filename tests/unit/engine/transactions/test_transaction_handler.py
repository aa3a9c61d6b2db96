"""Half messages: stored aside, resolved by their place, never visible before, never twice."""

import pytest

from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.follower import FollowerRole
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK
from kourou.errors import Code
from kourou.events.control_events import TopicDeleted
from kourou.model.message import SysFlag
from kourou.model.names import CHECK_GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from kourou.protocol.messages.sends import ResumeCheckHalfMessage, SendMessage, SendRecords, Target
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import decode_offset_id, encode_offset_id
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine, MemoryStore, header_of
from kourou_rigs.transacting import (
    GROUP,
    end,
    half,
    ops,
    put_topic,
    record,
    resolved,
    started_again,
    transacting,
    visible,
)

FAILED = Code.SYSTEM_ERROR


@pytest.mark.feature("F252")
def test_a_half_message_lies_in_its_own_topic_and_nobody_sees_it() -> None:
    engine = transacting()
    place = half(engine, properties={"TAGS": "paid", "KEYS": "k1"})
    assert visible(engine) == []
    [stored] = engine.stored(HALF_TOPIC)
    assert (stored.offset, stored.position) == place
    assert (stored.queue_id, stored.sys_flag, stored.prepared_transaction_offset) == (0, 0, 0)
    assert stored.flag == 7
    assert stored.properties == {
        "TRAN_MSG": "true",
        "PGROUP": GROUP,
        "UNIQ_KEY": "U1",
        "WAIT": "true",
        "TAGS": "paid",
        "KEYS": "k1",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@pytest.mark.feature("F252", "F253", "F256")
def test_a_commit_goes_to_the_offset_and_stores_the_message_where_it_belongs() -> None:
    engine = transacting()
    offset, position = place = half(engine, properties={"TAGS": "paid"})
    before = dict(engine.store.records)
    assert resolved(engine, place, COMMIT) == Code.SUCCESS
    [message] = engine.stored("orders", 3)
    assert message.body == b"pay"
    assert message.sys_flag == SysFlag.TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == position
    assert message.flag == 7
    assert message.properties == engine.stored(HALF_TOPIC)[0].properties
    [op] = engine.stored(OP_TOPIC)
    assert (op.body, op.queue_id, op.sys_flag) == (b"%d" % offset, 0, 0)
    assert op.properties == {"TAGS": "d", "WAIT": "true"}
    assert op.born_host == op.store_host
    # Unlike the seeds' RocketMQ 3, no byte of the half message was changed.
    assert {at: engine.store.records[at] for at in before} == before


def test_message_and_op_record_are_one_append() -> None:
    engine = transacting()
    place = half(engine)
    engine.effects.clear()
    resolved(engine, place, COMMIT)
    appends = [effect for effect in engine.effects if type(effect).__name__ == "Append"]
    assert [len(append.pieces) for append in appends] == [1]


def test_a_rollback_leaves_an_op_record_only() -> None:
    engine = transacting()
    place = half(engine)
    assert resolved(engine, place, ROLLBACK) == Code.SUCCESS
    assert (visible(engine), ops(engine)) == ([], [b"0"])
    assert len(engine.core.parts.transactions.halves) == 0


def test_not_known_yet_changes_nothing() -> None:
    engine = transacting()
    place = half(engine)
    assert resolved(engine, place, 0) == Code.SUCCESS
    assert (visible(engine), ops(engine)) == ([], [])
    assert len(engine.core.parts.transactions.halves) == 1


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_asking_again_is_answered_and_stores_nothing_more(how: int) -> None:
    engine = transacting()
    place = half(engine)
    resolved(engine, place, how)
    stored = len(engine.store.records)
    assert resolved(engine, place, how) == Code.SUCCESS
    assert resolved(engine, place, COMMIT + ROLLBACK - how) == FAILED
    assert len(engine.store.records) == stored


def test_the_group_and_both_places_must_be_those_of_the_half_message() -> None:
    engine = transacting()
    offset, position = place = half(engine)
    engine.ask(
        SendMessage(producer_group="p", topic="orders", queue_id=0, born_timestamp=1), b"plain"
    )
    plain = engine.store.queues["orders", 0][0]
    for wrong, fields in (
        (place, {"group": "other"}),
        ((offset + 1, position), {}),
        ((offset, position + 1), {}),
        ((offset, plain), {}),
        ((offset, 1 << 40), {}),
    ):
        reply = engine.ask(end(wrong, COMMIT, **fields))
        assert reply.code == FAILED, wrong
    assert visible(engine) == [b"plain"]
    assert ops(engine) == []


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


def test_a_delay_level_is_dropped_in_a_transaction() -> None:
    engine = transacting()
    place = half(engine, properties={"DELAY": "3"})
    assert "DELAY" not in engine.stored(HALF_TOPIC)[0].properties
    resolved(engine, place, COMMIT)
    assert visible(engine) == [b"pay"]


@pytest.mark.feature("F257", "F333")
def test_a_broker_can_refuse_transactions() -> None:
    engine = transacting(policy=BrokerPolicy("c", "b", reject_transactions=True))
    reply = engine.ask(
        SendMessage(
            producer_group=GROUP,
            topic="orders",
            queue_id=0,
            born_timestamp=1,
            properties="TRAN_MSG\x01true\x02PGROUP\x01PGT",
        ),
        b"x",
    )
    assert reply.code == Code.NO_PERMISSION
    assert engine.stored(HALF_TOPIC) == []
    engine.core.parts.apply("rejectTransactionMessage", value=False)
    half(engine)
    assert len(engine.stored(HALF_TOPIC)) == 1


def test_our_own_client_sends_half_messages_with_others_in_one_frame() -> None:
    engine = transacting()
    host = encode_host(("127.0.0.1", 1))
    drafts = [
        encode_draft(
            topic=b"orders",
            queue_id=queue_id,
            body=body,
            properties=encode_properties(properties),
            born_timestamp=5,
            born_host=host,
        )
        for body, queue_id, properties in (
            (b"half 1", 1, {"UNIQ_KEY": "A", "TRAN_MSG": "true", "PGROUP": GROUP}),
            (b"plain", 1, {"UNIQ_KEY": "B"}),
            (b"half 2", 2, {"UNIQ_KEY": "C", "TRAN_MSG": "true", "PGROUP": GROUP}),
        )
    ]
    sizes = b"".join(len(draft).to_bytes(4, "little") for draft in drafts)
    request = SendRecords(
        targets=[Target("orders", 1), Target("orders", 2)],
        target_of=bytes([0, 0, 0, 0, 1, 0]),
        sizes=sizes,
        producer_group=GROUP,
    )
    header = header_of(engine.ask(request, b"".join(drafts)))
    assert visible(engine) == [b"plain"]
    for index, body in ((0, b"half 1"), (2, b"half 2")):
        place = header.offsets[index], header.positions[index]
        assert engine.stored(HALF_TOPIC)[place[0]].body == body
        assert resolved(engine, place, COMMIT) == Code.SUCCESS
    assert visible(engine) == [b"plain", b"half 1", b"half 2"]


def test_a_topic_deleted_meanwhile_keeps_its_half_messages_open() -> None:
    engine = transacting()
    place = half(engine)
    config = engine.control.topics.get("orders")
    record(engine, TopicDeleted(config, {}))
    assert resolved(engine, place, COMMIT) == Code.TOPIC_NOT_EXIST
    put_topic(engine)
    assert resolved(engine, place, COMMIT) == Code.SUCCESS
    assert visible(engine) == [b"pay"]


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


def test_with_sync_flush_a_commit_is_answered_when_it_is_on_disk() -> None:
    engine = transacting(sync_flush=True)
    name = engine.send(
        SendMessage(
            producer_group=GROUP,
            topic="orders",
            queue_id=0,
            born_timestamp=1,
            properties="TRAN_MSG\x01true\x02PGROUP\x01PGT\x02UNIQ_KEY\x01U1",
        ),
        b"x",
    )
    engine.flush()
    header = header_of(engine.replies[name])
    place = header.queue_offset, decode_offset_id(header.msg_id)[1]
    name = engine.send(end(place, COMMIT))
    assert name not in engine.replies
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS


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


def test_what_was_given_up_can_be_resumed_or_committed_late() -> None:
    engine = transacting(policy=BrokerPolicy("c", "broker-a", transaction_check_max=0))
    places = [half(engine, b"%d" % n, key=f"U{n}") for n in range(3)]
    for _ in range(3):
        engine.advance(60_000)
    given_up = engine.stored(CHECK_GIVEN_UP_TOPIC)
    assert [message.body for message in given_up] == [b"0", b"1", b"2"]
    assert len(engine.core.parts.transactions.halves) == 0

    assert resolved(engine, places[0], COMMIT) == Code.SUCCESS
    ids = [encode_offset_id(("127.0.0.1", 10911), message.position) for message in given_up]
    assert engine.ask(ResumeCheckHalfMessage(msg_id=ids[0])).code == FAILED  # it was committed
    assert engine.ask(ResumeCheckHalfMessage(msg_id=ids[1])).code == Code.SUCCESS
    assert engine.ask(ResumeCheckHalfMessage(msg_id=ids[1])).code == FAILED  # it is open
    other = encode_offset_id(("127.0.0.1", 10911), places[2][1])
    assert engine.ask(ResumeCheckHalfMessage(msg_id=other)).code == FAILED  # no given-up one
    [resumed] = engine.stored(HALF_TOPIC)[3:]
    assert resumed.properties["TRANSACTION_CHECK_TIMES"] == "0"

    later = started_again(engine)
    assert [one.offset for one in later.core.parts.transactions.halves] == [3]
    assert resolved(later, places[1], COMMIT) == Code.SUCCESS  # by the place it had at first
    assert resolved(later, places[2], COMMIT) == Code.SUCCESS  # given up, found in the log
    assert visible(later) == [b"0", b"1", b"2"]


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
