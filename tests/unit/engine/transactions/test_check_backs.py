"""Producers are asked about half messages that nobody resolves."""

import pytest

from kourou.engine.policy import BrokerPolicy
from kourou.engine.transactions.check_backs import HALVES_PER_TICK
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK
from kourou.errors import Code
from kourou.model.names import CHECK_GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from kourou.protocol.messages.sends import CheckTransactionState
from kourou_rigs.engine import Engine
from kourou_rigs.transacting import half, join, ops, resolved, started_again, transacting, visible

INTERVAL_MS = 60_000


def policy(**fields: object) -> BrokerPolicy:
    return BrokerPolicy("DefaultCluster", "broker-a", **fields)


def checks(engine: Engine, *members: int, rounds: int = 1) -> None:
    """So many rounds pass, with these members there."""
    for _ in range(rounds):
        for peer in members:
            join(engine, peer)
        engine.advance(INTERVAL_MS)


def questions(engine: Engine) -> list[tuple[int, tuple[int, int]]]:
    """(connection, place that the question names), and forget them."""
    asked = []
    for notice in engine.notices:
        assert isinstance(notice.request, CheckTransactionState)
        request = notice.request
        asked.append((notice.peer.id, (request.tran_state_table_offset, request.commit_log_offset)))
    engine.notices.clear()
    return asked


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
def test_a_producer_that_is_late_still_resolves_it_and_only_once(how: int, restarted: bool) -> None:
    """It names the place it was told at first; the half message lies elsewhere by then."""
    engine = transacting()
    first = half(engine)
    checks(engine, 5, rounds=2)
    [(_, second), (_, third)] = questions(engine)
    if restarted:
        engine = started_again(engine)
    assert len({first, second, third}) == 3
    assert resolved(engine, first, how) == Code.SUCCESS
    assert resolved(engine, second, how) == Code.SUCCESS
    assert resolved(engine, third, how) == Code.SUCCESS
    assert visible(engine) == ([b"pay"] if how == COMMIT else [])
    assert ops(engine) == [b"2"]
    checks(engine, 5)
    assert questions(engine) == []


def test_members_are_asked_in_turn_and_only_those_of_the_group() -> None:
    engine = transacting()
    for n in range(6):
        half(engine, key=f"U{n}")
    join(engine, 8, group="others")
    checks(engine, 5, 6, 7)
    assert sorted(peer for peer, _ in questions(engine)) == [5, 5, 6, 6, 7, 7]


def test_the_clock_of_a_producer_does_not_matter() -> None:
    engine = transacting()
    join(engine, 5)
    engine.advance(INTERVAL_MS - 1_000)
    for born_ms in (engine.wall_ms - 3_600_000, engine.wall_ms + 3_600_000):
        half(engine, key=f"{born_ms}", born_ms=born_ms)
    engine.advance(1_000)
    assert questions(engine) == []
    checks(engine, 5)
    assert len(questions(engine)) == 2


def test_an_immune_one_is_put_back_with_the_place_it_had_at_first() -> None:
    engine = transacting()
    place = half(engine, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1000"})
    checks(engine, 5, rounds=2)
    assert questions(engine) == []
    again = engine.stored(HALF_TOPIC)[1:]
    assert [one.properties["TRAN_PREPARED_QUEUE_OFFSET"] for one in again] == ["0", "0"]
    assert all("TRANSACTION_CHECK_TIMES" not in one.properties for one in again)
    later = started_again(engine)
    assert len(later.core.parts.transactions.halves) == 1
    assert resolved(later, place, COMMIT) == Code.SUCCESS
    assert visible(later) == [b"pay"]


@pytest.mark.parametrize("seconds", ["-1", "soon", "", "99999999999999999999"])
def test_an_immunity_that_is_no_number_is_none(seconds: str) -> None:
    engine = transacting()
    half(engine, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds} if seconds else {})
    checks(engine, 5)
    assert len(questions(engine)) == 1


def test_one_older_than_what_the_log_keeps_is_given_up_without_a_question() -> None:
    engine = transacting(policy=policy(reserved_hours=1))
    half(engine, born_ms=engine.wall_ms - 3_600_001)
    checks(engine, 5)
    assert questions(engine) == []
    assert len(engine.stored(CHECK_GIVEN_UP_TOPIC)) == 1


def test_a_round_takes_several_ticks_and_writes_each_step_at_once() -> None:
    engine = transacting()
    join(engine, 5)
    count = 2 * HALVES_PER_TICK + 10
    for n in range(count):
        half(engine, key=f"U{n}")
    engine.effects.clear()
    checks(engine)
    assert len(questions(engine)) == HALVES_PER_TICK
    assert len([one for one in engine.effects if type(one).__name__ == "Append"]) <= 2
    engine.advance(10)
    assert len(questions(engine)) == HALVES_PER_TICK
    engine.advance(10)
    assert len(questions(engine)) == 10
    engine.advance(10)
    assert questions(engine) == []  # those that were put back belong to the next round
    halves = engine.core.parts.transactions.halves
    assert [one.offset for one in halves] == list(range(count, 2 * count))


def test_one_whose_op_record_was_lost_is_found_out_instead_of_asked_about() -> None:
    engine = transacting()
    resolved(engine, half(engine), COMMIT)
    later = started_again(engine, engine.store.queues[OP_TOPIC, 0][0])
    checks(later, 5)
    assert questions(later) == []
    assert (visible(later), ops(later)) == ([b"pay"], [b"0"])


def test_a_crash_right_behind_putting_back_leaves_one_transaction_and_not_two() -> None:
    """Progress is recorded later than that, so both copies are found."""
    engine = transacting()
    place = half(engine)
    checks(engine)
    position = engine.stored(HALF_TOPIC)[1].position
    later = started_again(engine, position + len(engine.store.records[position]))
    assert later.control.progress.offset("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) is None
    assert [one.offset for one in later.core.parts.transactions.halves] == [1]
    checks(later, 5)
    [(_, asked)] = questions(later)
    assert resolved(later, asked, COMMIT) == Code.SUCCESS
    assert resolved(later, place, COMMIT) == Code.SUCCESS
    assert visible(later) == [b"pay"]


def test_settings_change_while_the_broker_runs() -> None:
    engine = transacting()
    join(engine, 5)
    half(engine)
    for name, value in (("transactionCheckInterval", 1_000), ("transactionTimeOut", 100)):
        engine.core.parts.apply(name, value)
    engine.core.parts.apply("transactionCheckMax", 1)
    checks(engine, 5)  # the interval that was begun ends as it was
    assert len(questions(engine)) == 1
    engine.advance(1_000)
    assert len(engine.stored(CHECK_GIVEN_UP_TOPIC)) == 1
