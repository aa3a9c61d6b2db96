"""Half messages: stored aside, resolved by their place, never visible before, never twice."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kourou.engine.effects import Effect
from kourou.engine.inputs import SpaceChanged, StoreFailed
from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK
from kourou.engine.transactions.transaction_handler import Alone
from kourou.errors import Code
from kourou.events.control_events import TopicDeleted
from kourou.model.names import HALF_TOPIC, OP_TOPIC
from kourou.protocol.messages.sends import EndTransaction
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import stamp
from kourou.runtime import Received
from kourou_rigs.engine import Engine, MemoryStore, header_of
from kourou_rigs.transacting import (
    end,
    half,
    half_send,
    ops,
    put_topic,
    record,
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


# -- ends of transactions that wait for one turn are stored as one, and nobody can tell ------------


SMALL_SEGMENT = 4_096


def told(engine: Engine, names: list[tuple[int, int]]) -> list[object]:
    found = (engine.replies[name] for name in names)
    return [(reply.code, reply.remark) for reply in found]


def together(engine: Engine, ends: list[EndTransaction], *, deadline: int = -1) -> list[object]:
    """The answers of one turn; `deadline` is the number of the request that comes too late."""
    turn = [engine.received(one, deadline_ms=number == deadline) for number, one in enumerate(ends)]
    engine.handle(*(received for _, received in turn))
    return told(engine, [name for name, _ in turn])


def each(engine: Engine, ends: list[EndTransaction], *, deadline: int) -> list[object]:
    """The answers of one turn in which nothing is joined."""

    def store(now_ms: int, ends: Sequence[Received], alone: Alone) -> list[Effect]:
        return [effect for received in ends for effect in alone(now_ms, received)]

    engine.core.parts.coalesced_ends.store = store  # type: ignore[method-assign]  # the reference
    return together(engine, ends, deadline=deadline)


def one_by_one(engine: Engine, ends: list[EndTransaction]) -> list[object]:
    return told(engine, [engine.send(one) for one in ends])


def halves(engine: Engine, count: int) -> list[tuple[int, int]]:
    return [half(engine, b"%d" % n, key=f"U{n}", queue_id=n % 4) for n in range(count)]


def state(engine: Engine) -> tuple[object, ...]:
    handler = engine.core.parts.transactions
    return (
        [(one.offset, one.position, one.checks) for one in handler.halves],
        handler.halves.done(),
        handler.resolved,
        handler.resolved_by_topic,
        list(handler._ended.items()),
    )


@pytest.mark.feature("F252", "F253")
@pytest.mark.parametrize("count", [2, 3, 4, 30])
def test_ends_of_a_turn_become_one_append(count: int) -> None:
    joint, alone = transacting(), transacting()
    ends = [
        end(place, ROLLBACK if number % 3 == 1 else COMMIT)
        for number, place in enumerate(halves(joint, count))
    ]
    halves(alone, count)
    before = len(joint.appends())
    answers = together(joint, ends)
    assert len(joint.appends()) == before + 1
    assert answers == one_by_one(alone, ends) == [(Code.SUCCESS, "")] * count
    assert joint.store.records == alone.store.records
    assert state(joint) == state(alone)
    kinds = [message.topic for message in joint.stored("orders", 0)[:1] + joint.stored(OP_TOPIC)]
    assert kinds == ["orders", *[OP_TOPIC] * count]


def test_ends_and_sends_that_alternate_become_one_append_each() -> None:
    """So a producer fills a turn whose threads are in both halves of their transactions."""
    engine = transacting()
    places = halves(engine, 4)
    before = len(engine.appends())
    turn = []
    for number, place in enumerate(places):
        send = half_send(engine, key=f"V{number}", queue_id=number)
        turn += [engine.received(send, b"next"), engine.received(end(place, COMMIT))]
    engine.handle(*(received for _, received in turn))
    assert len(engine.appends()) == before + 2
    assert {engine.replies[name].code for name, _ in turn} == {Code.SUCCESS}
    assert visible(engine) == [b"0", b"1", b"2", b"3"]
    offsets = [header_of(engine.replies[name]).queue_offset for name, _ in turn[::2]]
    assert offsets == [4, 5, 6, 7]


def test_half_messages_beyond_the_kept_ones_are_read_from_the_log(monkeypatch) -> None:
    kept, read = transacting(), transacting()
    ends = [end(place, COMMIT) for place in halves(kept, 5)]
    # Two of them.
    monkeypatch.setattr("kourou.engine.transactions.open_halves.HALF_DRAFTS_BYTES_MAX", 600)
    halves(read, 5)
    assert [one.draft is None for one in read.core.parts.transactions.halves].count(True) == 3
    assert together(read, ends) == together(kept, ends)
    assert read.store.records == kept.store.records
    assert state(read) == state(kept)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_can_tell_whether_it_was_alone(seed: int) -> None:
    """Repeated, contradicting, refused, late ones and earlier copies between: places, bytes and
    answers are the same."""
    chance = random.Random(seed)
    options = {"segment_size": chance.choice([1 << 20, 1 << 12])}
    joint, alone = (transacting(**options) for _ in range(2))
    count = chance.randrange(2, 12)
    places = halves(joint, count)
    assert places == halves(alone, count)
    if chance.random() < 0.5:  # put back: each has an earlier copy
        for engine in (joint, alone):
            engine.advance(60_000)
            assert len(engine.core.parts.transactions.halves) == count
        copies = joint.store.queues[HALF_TOPIC, 0]
        places += list(enumerate(copies))[count:]
    ends: list[EndTransaction] = []
    for _ in range(chance.randrange(2, 30)):
        place = chance.choice(places)
        match chance.randrange(9):
            case 0:
                ends.append(end(place, 0))
            case 1:
                ends.append(end(place, COMMIT, group="other"))
            case 2:
                ends.append(end((place[0], place[1] + 1), COMMIT))
            case 3 | 4:
                ends.append(end(place, ROLLBACK))
            case _:
                ends.append(end(place, COMMIT))
    late = chance.choice([-1, 0, 5])
    assert together(joint, ends, deadline=late) == each(alone, ends, deadline=late)
    assert joint.store.records == alone.store.records
    assert state(joint) == state(alone)
    assert joint.core.parts.traffic.refused == alone.core.parts.traffic.refused


def test_a_topic_that_was_deleted_keeps_its_own_half_messages_only() -> None:
    engine = transacting()
    places = halves(engine, 3)
    record(engine, TopicDeleted(engine.control.topics.get("orders"), {}))
    how = [ROLLBACK, COMMIT, ROLLBACK]
    answers = together(engine, [end(*one) for one in zip(places, how, strict=True)])
    codes = [code for code, _ in answers]  # type: ignore[misc]  # two each
    assert codes == [Code.SUCCESS, Code.TOPIC_NOT_EXIST, Code.SUCCESS]
    put_topic(engine)
    assert resolved(engine, places[1], COMMIT) == Code.SUCCESS
    assert visible(engine) == [b"1"]


@pytest.mark.parametrize("why", ["full", "failed"])
def test_when_nothing_can_be_stored_each_is_reported_so_and_stays_open(why: str) -> None:
    engine = transacting()
    places = halves(engine, 5)
    if why == "failed":
        engine.handle(StoreFailed("EIO"))
    else:
        engine.core.parts.appends._allocated_end = engine.store.end  # white box: no further space
        engine.handle(SpaceChanged(engine.store.end, full=True))
    before = state(engine), dict(engine.store.records)
    answers = together(engine, [end(place, ROLLBACK) for place in places])
    codes = {code for code, _ in answers}  # type: ignore[misc]  # two each
    assert len(answers) == 5
    assert Code.SUCCESS not in codes
    assert (state(engine), dict(engine.store.records)) == before


def test_where_there_is_room_for_some_those_are_resolved() -> None:
    engine = transacting()
    places = halves(engine, 6)
    engine.core.parts.appends._allocated_end = engine.store.end + 400  # white box: hardly any space
    answers = together(engine, [end(place, ROLLBACK) for place in places])
    codes = [code for code, _ in answers]  # type: ignore[misc]  # two each
    done = codes.count(Code.SUCCESS)
    assert 0 < done < 6
    assert len(ops(engine)) == done
    assert len(engine.core.parts.transactions.halves) == 6 - done


def test_with_sync_flush_all_wait_for_the_same_flush() -> None:
    engine = transacting()
    places = halves(engine, 4)
    engine = started_again(engine, sync_flush=True)
    assert resolved_after_flush(engine, places[:1]) == [(Code.SUCCESS, "")]  # and all are known
    later = [engine.received(end(place, COMMIT)) for place in places[1:]]
    before = engine.flushes_wanted
    engine.handle(*(received for _, received in later))
    assert all(name not in engine.replies for name, _ in later)
    assert engine.flushes_wanted == before + 1
    engine.flush()
    assert told(engine, [name for name, _ in later]) == [(Code.SUCCESS, "")] * 3


def resolved_after_flush(engine: Engine, places: list[tuple[int, int]]) -> list[object]:
    turn = [engine.received(end(place, COMMIT)) for place in places]
    engine.handle(*(received for _, received in turn))
    engine.flush()
    return told(engine, [name for name, _ in turn])


@pytest.mark.parametrize("segment", [1 << 20, SMALL_SEGMENT], ids=["one piece", "a segment ends"])
def test_power_is_lost_at_every_point_of_a_group(segment: int) -> None:
    """Neither a half message seen, nor a committed one lost, nor one stored twice."""
    engine = transacting(segment_size=segment)
    places = halves(engine, 3)
    how = [COMMIT, ROLLBACK, COMMIT]
    begin = engine.store.end
    ends = [end(*one) for one in zip(places, how, strict=True)]
    assert together(engine, ends) == [(Code.SUCCESS, "")] * 3
    assert (begin // segment != engine.store.end // segment) is (segment == SMALL_SEGMENT)
    seen = set()
    for cut in range(begin, engine.store.end + 1):
        later = started_again(engine, cut)
        seen.add((len(visible(later)), len(ops(later))))
        # The producer, which got no answers, asks again, all at once.
        assert together(later, ends) == [(Code.SUCCESS, "")] * 3
        assert sorted(visible(later)) == [b"0", b"2"]
        assert sorted(ops(later)) == [b"0", b"1", b"2"]
        assert len(later.core.parts.transactions.halves) == 0
        if cut % 16 == 0:
            assert sorted(visible(started_again(later))) == [b"0", b"2"]
    assert seen == {(0, 0), (1, 0), (1, 1), (1, 2), (2, 2), (2, 3)}
