"""Delayed messages are delivered once, when they are due, whatever happens meanwhile."""

import pytest

from kourou.engine.delays.delivery import LATENESS_BOUNDS_MS
from kourou.engine.effects import Wake
from kourou.engine.inputs import ClosedSegment, DiskMeasured
from kourou.engine.policy import BrokerPolicy
from kourou.model.limits import DELIVERIES_MAX
from kourou.model.message import DELAY_LEVELS_MS, SysFlag
from kourou.model.names import SCHEDULE_TOPIC
from kourou.protocol.messages.sends import SendMessage
from kourou.runtime import LogWarning, Tick
from kourou_rigs.engine import Engine
from kourou_rigs.records import delayed_draft as delayed

V6 = bytes(15) + b"\x01" + (40_001).to_bytes(4, "big")
S, H = 1_000, 3_600_000


def with_levels(levels: str, **more) -> Engine:
    policy = BrokerPolicy("DefaultCluster", "broker-a", message_delay_level=levels)
    return Engine(policy=policy, **more)


def bodies(engine: Engine, topic: str = "orders", queue_id: int = 0) -> list[str]:
    return [one.body.decode() for one in engine.stored(topic, queue_id)]


def warnings(engine: Engine) -> str:
    return "\n".join(str(effect) for effect in engine.effects if isinstance(effect, LogWarning))


@pytest.mark.feature("F247", "F353")
@pytest.mark.parametrize("level", range(1, 19))
def test_each_level_waits_its_time_and_no_longer(engine, records, level) -> None:
    engine.ask(*records([delayed(level)]))
    engine.advance(DELAY_LEVELS_MS[level - 1] - 1)
    assert bodies(engine) == []
    assert engine.core.parts.delays.waiting() == {level: 1}
    assert engine.core.parts.delays.bounds() == {level: (0, 1)}
    engine.advance(1)
    assert bodies(engine) == ["U"]
    assert engine.core.parts.delays.waiting() == {}
    assert engine.core.parts.delays.bounds() == {level: (1, 1)}


@pytest.mark.feature("F249", "F250")
def test_what_is_delivered_is_the_message_with_a_place_of_its_own(engine, records) -> None:
    properties = {"KEYS": "k", "TAGS": "t", "WAIT": "true", "mine": "1"}
    for kind in ({}, {"born_host": V6}, {"store_host_v6": True}):
        more = {"reconsume_times": 2, "flag": 7, **kind}
        engine.ask(
            *records([delayed(1, properties=properties, queue_id=3, **more)], [("orders", 3)])
        )
    engine.advance(1_000)
    waiting = engine.stored(SCHEDULE_TOPIC, 0)
    for offset, (found, was) in enumerate(zip(engine.stored("orders", 3), waiting, strict=True)):
        assert (found.topic, found.queue_id, found.offset) == ("orders", 3, offset)
        assert found.properties == was.properties  # REAL_TOPIC, REAL_QID, DELAY and WAIT, too
        assert found.properties["REAL_TOPIC"] == "orders"
        assert found.body == was.body
        assert (found.flag, found.sys_flag, found.reconsume_times) == (7, was.sys_flag, 2)
        assert (found.born_timestamp, found.born_host) == (5, was.born_host)
        assert found.store_timestamp == was.store_timestamp + 1_000
        assert found.store_host == ("127.0.0.1", 10911)
        assert found.position > was.position


def test_a_turn_is_bounded_and_the_next_comes_soon(engine, records) -> None:
    count = 2 * DELIVERIES_MAX + 7
    engine.ask(*records([delayed(1, f"{n}") for n in range(count)]))
    engine.now_ms += 1_000
    engine.wall_ms += 1_000
    engine.handle(Tick(engine.wall_ms))
    assert len(bodies(engine)) == DELIVERIES_MAX
    assert Wake(0) in engine.effects
    engine.advance(0)
    assert bodies(engine) == list(map(str, range(count)))


def test_bytes_bound_a_turn_too(records) -> None:
    engine = Engine(segment_size=32 << 20)
    for number in range(4):
        engine.ask(*records([delayed(1, f"{number}", body=bytes(3 << 20))]))
    engine.now_ms += 1_000
    engine.handle(Tick(engine.wall_ms + 1_000))
    assert len(bodies(engine)) == 1
    assert Wake(0) in engine.effects
    engine.advance(1_000)
    assert len(bodies(engine)) == 4


def test_what_was_due_while_the_broker_was_down_comes_at_once(engine, records) -> None:
    engine.ask(*records([delayed(5)]))
    again = Engine(left=engine.store, wall_ms=engine.wall_ms + H)
    again.advance(1)
    assert bodies(again) == ["U"]
    assert again.core.parts.delays.figures.lateness_max_ms == H - 60_000 + 1


def test_every_cut_of_the_log_ends_with_each_message_once(records) -> None:
    first = Engine(segment_size=4_096)
    for number in range(14):
        first.ask(*records([delayed(1 + number % 3, f"{number}", queue_id=0)]))
    sent = first.store.end
    first.advance(5_000)
    first.advance(5_000)
    ends = [at + len(raw) for at, raw in first.store.records.items()]
    for cut in sorted(end for end in ends if end >= sent):
        again = Engine(left=first.store.cut(cut), segment_size=4_096, wall_ms=first.wall_ms)
        again.advance(10_000)
        assert sorted(bodies(again), key=int) == list(map(str, range(14))), cut


# -- clocks ---------------------------------------------------------------------------------------


def test_a_clock_set_forward_delivers_nothing_early(engine, records) -> None:
    engine.ask(*records([delayed(18, "old")]))
    engine.advance(1_000)
    engine.wall_ms += 10 * H
    engine.advance(100)
    engine.ask(*records([delayed(1, "new")]))
    assert bodies(engine) == []
    assert "the system clock was changed by +36000.000 s" in warnings(engine)
    engine.advance(1_000)
    assert bodies(engine) == ["new"]
    again = Engine(left=engine.store, now_ms=7, wall_ms=engine.wall_ms)
    again.advance(2 * H - 2_101)
    assert bodies(again) == ["new"]
    again.advance(1)
    assert bodies(again) == ["new", "old"]


def test_a_clock_set_back_delivers_nothing_early(engine, records) -> None:
    engine.ask(*records([delayed(5, "old")]))
    engine.advance(1_000)
    engine.wall_ms -= H
    engine.advance(60_000)
    assert bodies(engine) == []
    engine.advance(H)
    assert bodies(engine) == ["old"]


def test_steps_are_forgotten_when_nothing_waits(engine, records) -> None:
    engine.ask(*records([delayed(2)]))
    engine.advance(1)
    engine.wall_ms += H
    engine.advance(1)
    assert engine.core.parts.delays._clock.steps
    for _ in range(3):
        engine.advance(60_001)
    assert bodies(engine) == ["U"]
    assert not engine.core.parts.delays._clock.steps


# -- other levels ---------------------------------------------------------------------------------


@pytest.mark.feature("F353")
def test_the_levels_in_force_decide_for_what_waits_already(records) -> None:
    engine = with_levels("1h 2h 3h")
    engine.ask(*records([delayed(level, f"{level}") for level in (1, 2, 3)]))
    again = with_levels("2s 4h", left=engine.store, wall_ms=engine.wall_ms)
    again.advance(2 * S)
    assert bodies(again) == ["1"]
    again.advance(4 * H - 3 * S)
    assert bodies(again) == ["1"]
    again.advance(1 * S)
    assert bodies(again) == ["1", "2", "3"]  # level 3 is gone: as the highest that is left


# -- where it goes --------------------------------------------------------------------------------


def test_what_says_nothing_of_its_origin_is_reported_and_passed_over(engine, records) -> None:
    target = (SCHEDULE_TOPIC, 0)
    for properties in ({}, {"REAL_TOPIC": "orders", "REAL_QID": "-1"}, {"REAL_TOPIC": target[0]}):
        stray = delayed(1, "a", *target, {"REAL_QID": "0", **properties})
        _, position = engine.core.parts.appends.write_one(stray, target, engine.wall_ms)
    engine.ask(*records([delayed(1, "b")]))
    engine.advance(1_000)
    assert bodies(engine) == ["b"]
    assert f"the delayed message at position {position} cannot be delivered" in warnings(engine)
    assert engine.core.parts.delays.figures.undeliverable == 3
    assert engine.core.parts.delays.waiting() == {}


def test_a_committed_message_keeps_its_flag(engine, records) -> None:
    """It failed and waits for another attempt; what it once was part of is over."""
    committed = delayed(
        1,
        properties={"TRAN_MSG": "true"},
        reconsume_times=1,
        sys_flag=int(SysFlag.TRANSACTION_COMMIT),
    )
    parts = engine.core.parts
    parts.appends.write_one(*parts.redirects.moved(committed, ("orders", 0), 0), engine.wall_ms)
    parts.confirmations.append(parts.appends.end)
    engine.perform(parts.appends.take_done())
    engine.advance(1_000)
    [found] = engine.stored("orders")
    assert found.sys_flag == SysFlag.TRANSACTION_COMMIT


# -- figures and files ----------------------------------------------------------------------------


def test_lateness_is_counted(engine, records) -> None:
    engine.ask(*records([delayed(1, "a"), delayed(2, "b")]))
    engine.advance(1_007)
    engine.advance(4_000)
    figures = engine.core.parts.delays.figures
    assert figures.delivered == 2
    assert figures.lateness[LATENESS_BOUNDS_MS.index(10)] == 2
    assert (figures.lateness_sum_ms, figures.lateness_max_ms) == (14, 7)


def test_another_broker_s_progress_is_taken_over(engine, records) -> None:
    engine.ask(*records([delayed(1, f"{n}") for n in range(5)]))
    again = Engine(left=engine.store, wall_ms=engine.wall_ms, delays={1: 3, 2: 9})
    assert again.core.parts.delays.safe_offsets() == {1: 3, 2: 9}, "the file has them already"
    again.advance(1_000)
    assert bodies(again) == ["3", "4"]
    third = Engine(left=again.store, wall_ms=again.wall_ms, delays={1: 2})
    third.advance(1_000)
    assert bodies(third) == ["3", "4"]


def test_the_newest_announcement_is_not_deleted_with_old_segments(engine, records) -> None:
    engine.ask(*records([delayed(1)]))
    engine.advance(1_000)
    end = engine.store.end
    before = engine.core.parts.delays._position
    look = DiskMeasured(100, 50, engine.wall_ms, 3, [ClosedSegment(0, before, 0)])
    engine.handle(look)
    assert engine.core.parts.delays._position == before
    engine.handle(DiskMeasured(100, 50, engine.wall_ms, 3, [ClosedSegment(0, end, 0)]))
    assert engine.core.parts.delays._position == end
    again = Engine(left=engine.store, wall_ms=engine.wall_ms)
    again.advance(H)
    assert bodies(again) == ["U"]


def test_messages_deleted_before_they_were_due_are_reported(engine, records) -> None:
    engine.ask(*records([delayed(1, "gone"), delayed(1, "there"), delayed(2)]))
    engine.core.parts.delays._announce(engine.wall_ms)
    del engine.store.queues[SCHEDULE_TOPIC, 0][0]
    engine.store.firsts[SCHEDULE_TOPIC, 0] = 1
    engine.advance(1_000)
    assert bodies(engine) == ["there"]
    assert "1 messages of delay level 1 were deleted" in warnings(engine)
    assert engine.core.parts.delays.figures.lost == 1


def test_delayed_messages_are_counted_as_such_however_they_come(engine, records) -> None:
    def single(key: str, attempt: int = 1) -> None:
        engine.ask(*records([delayed(3, key)], attempt=attempt))

    single("alone")
    plain = delayed(0, "plain")
    engine.ask(*records([plain, delayed(3, "a"), plain, delayed(4, "b")]))
    single("again", attempt=2)
    single("again", attempt=2)
    sent = SendMessage(
        producer_group="p",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        born_timestamp=1,
        properties="DELAY\x013",
    )
    engine.ask(sent, b"x")
    traffic = engine.core.parts.traffic
    assert traffic.messages_in["orders"] == 7
    tally = traffic.kinds_in["orders", "delay"]
    assert (tally.messages, sum(tally.sizes)) == (5, 5)
    engine.advance(DELAY_LEVELS_MS[3])
    assert traffic.messages_in["orders"] == 7, "delivered is not sent"
    assert list(traffic.kinds_in) == [("orders", "delay")]
