"""Inputs in, effects out, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.engine.effects import Append, Flush
from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.inputs import Flushed, SpaceChanged, StoreFailed
from kourou.engine.policy import BrokerPolicy, parse_hours
from kourou.errors import Code, ConfigError
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.namesrv import RegisterBroker
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.protocol.messages.sends import SendRecords
from kourou.runtime import Disconnected, LogWarning, Reply, Tick
from kourou.settings.declaration import Setting, settings_of
from kourou_rigs.engine import Engine, pull

GROUP = (UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')


def commit(offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(
        consumer_group="g", topic="orders", queue_id=0, commit_offset=offset
    )


def test_what_nobody_here_answers_is_said_so(engine) -> None:
    request = RegisterBroker(
        broker_name="b", broker_addr="a", cluster_name="c", ha_server_addr="", broker_id=0
    )
    assert not engine.core.handles(RegisterBroker)
    assert engine.core.handles(SendRecords)
    assert engine.ask(request).code == Code.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize(("deadline_ms", "code"), [(-1, 0), (1, 0), (0, None)])
def test_a_deadline_is_a_time_and_not_after_it(engine, draft, records, deadline_ms, code) -> None:
    at = engine.now_ms + deadline_ms if deadline_ms >= 0 else 0
    name = engine.send(*records([draft()]), deadline_ms=at)
    expected = Code.DEADLINE_PASSED if code is None else code
    assert engine.replies[name].code == expected
    assert (("orders", 0) in engine.store.queues) is (code == 0)


@pytest.mark.feature("F095")
def test_one_flush_at_the_end_serves_a_whole_turn(draft, records) -> None:
    engine = Engine(sync_flush=True)
    turn = [engine.received(*records([draft()]))[1] for _ in range(5)]
    effects = engine.core.handle(engine.now_ms, turn)
    flushes = [number for number, effect in enumerate(effects) if isinstance(effect, Flush)]
    assert flushes == [len(effects) - 1]
    assert not any(isinstance(effect, Reply) for effect in effects)


@pytest.mark.feature("F094")
def test_readers_wake_when_what_they_wait_for_is_confirmed_and_not_before(draft, records) -> None:
    engine = Engine(sync_flush=True)
    engine.send(*GROUP)
    engine.send(*records([draft()]))
    engine.flush()
    held = engine.send(pull(1, wait_ms=10_000), peer=2)
    engine.send(*records([draft()]))
    first_end = engine.store.end
    engine.send(*records([draft()]))
    assert held not in engine.replies
    engine.handle(Flushed(first_end - 1))
    assert held not in engine.replies
    engine.handle(Flushed(first_end))
    assert engine.replies[held].header.next_begin_offset == 2
    late = engine.send(pull(2, wait_ms=10_000), peer=2)
    assert late not in engine.replies
    engine.flush()
    assert engine.replies[late].header.next_begin_offset == 3
    assert engine.core.role._uncommitted == []


def test_a_failed_store_still_answers_readers_of_what_is_safe(draft, records) -> None:
    engine = Engine(sync_flush=True)
    engine.send(*GROUP)
    engine.send(*records([draft(body=b"safe")]))
    engine.flush()
    engine.send(*records([draft(body=b"lost")]))
    engine.handle(StoreFailed("EIO"))
    reply = engine.ask(pull(0))
    assert reply.header.next_begin_offset == 1
    engine.handle(Flushed(engine.store.end))
    assert engine.ask(pull(0)).header.next_begin_offset == 1, "a late success is none"


def test_a_lost_connection_takes_its_holds_and_memberships(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.ask(*GROUP)
    engine.send(pull(1, wait_ms=10_000), peer=7)
    assert engine.core.parts.pulls.held == 1
    engine.handle(Disconnected(engine.peer(7)))
    assert engine.core.parts.pulls.held == 0


@pytest.mark.feature("F195")
def test_progress_that_finds_no_room_is_recorded_later(engine, draft, records) -> None:
    engine.ask(*records([draft() for _ in range(3)]))
    engine.ask(*GROUP)
    engine.ask(commit(2))
    engine.core.parts.appends._allocated_end = engine.store.end
    engine.handle(SpaceChanged(0, full=True))
    events = len(engine.events())
    engine.advance(1)
    engine.advance(5_000)
    assert any(isinstance(effect, LogWarning) for effect in engine.effects)
    assert engine.core.parts.commits.offset("g", "orders", 0) == 2, "in force all the same"
    engine.handle(SpaceChanged(1 << 40, full=False))
    engine.advance(5_000)
    assert [each.tag for each in engine.events()[events:]] == ["ProgressRecorded"]
    engine.advance(5_000)
    assert len(engine.events()) == events + 1, "once"


@pytest.mark.feature("F195")
def test_a_stop_records_progress_and_a_full_disk_does_not_stop_the_stop(
    engine, draft, records
) -> None:
    engine.ask(*records([draft()]))
    for name in ("g", "h"):
        engine.ask(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"%s"}' % name.encode())
        engine.core.parts.commits.commit(name, "orders", 0, 1)
    appends = engine.core.parts.appends
    appends._allocated_end = engine.store.end + 500
    engine.handle(SpaceChanged(0, full=True))
    first = engine.core.stop(engine.wall_ms)
    assert isinstance(first[0], Append)
    assert isinstance(first[-1], LogWarning)
    engine.handle(SpaceChanged(1 << 40, full=False))
    second = engine.core.stop(engine.wall_ms)
    assert sum(isinstance(effect, Append) for effect in first + second) == 2
    assert engine.core.stop(engine.wall_ms) == []
    assert engine.control.progress.offset("h", "orders", 0) == 1


def test_time_alone_does_nothing(engine) -> None:
    assert engine.core.handle(engine.now_ms + 10**9, [Tick(engine.wall_ms + 10**9)]) == []


def test_a_oneway_request_is_carried_out(engine, draft, records) -> None:

    _, received = engine.received(*records([draft()]))
    received.to = replace(received.to, oneway=True)
    engine.handle(received)
    assert len(engine.stored("orders")) == 1


@pytest.mark.parametrize("flags", [0, 1])
def test_appends_of_a_traced_request_say_whose_they_are(engine, draft, records, flags) -> None:
    _, received = engine.received(*records([draft()]))
    received.to = replace(received.to, trace=bytes(range(1, 25)) + bytes([flags]))
    effects = engine.core.handle(engine.now_ms, [received])
    appends = [effect for effect in effects if isinstance(effect, Append)]
    assert appends
    assert all(append.to == (received.to if flags else None) for append in appends)


# -- A dynamic setting goes where it has an effect -------------------------------------------------


@pytest.mark.parametrize("one", [one for one in settings_of(BrokerPolicy) if one.dynamic])
def test_the_policy_follows(engine, one) -> None:
    old = getattr(engine.policy, one.name)
    if one.kind is str:
        new = "refuse" if one.choices else "05"
    else:
        new = (not old) if one.kind is bool else old + 1
    engine.core.parts.apply(one.key, new)
    assert getattr(engine.policy, one.name) == new


def test_settings_kept_elsewhere_go_there(engine) -> None:
    parts = engine.core.parts
    parts.apply("syncFlushTimeout", 7)
    parts.apply("channelExpiredTimeout", 8)
    parts.apply("groupSubscriptionPolicy", "refuse")
    parts.apply("flushConsumerOffsetInterval", 9)
    parts.apply("deleteWhen", "3;15")
    assert parts.confirmations.flush_timeout_ms == 7
    assert parts.membership.expiry_ms == 8
    assert parts.membership.policy is SubscriptionPolicy.REFUSE
    assert parts.commits.interval_ms == 9
    assert engine.policy.delete_hours == (3, 15)


def test_keys_of_other_parts_are_left_to_them(engine) -> None:
    engine.core.parts.apply("someKeyOfTheStore", 1)


def test_what_was_changed_before_a_restart_is_in_force_from_the_start() -> None:
    specs = [Setting("defaultQueryMaxNum", 32, dynamic=True)]
    engine = Engine(specs=specs, policy=BrokerPolicy("c", "b", query_max=1))
    assert engine.policy.query_max == 32, "the registry has the word"


# -- policy ----------------------------------------------------------------------------------------


@pytest.mark.feature("F122", "F340")
@pytest.mark.parametrize(
    ("text", "hours"),
    [("04", (4,)), ("4", (4,)), ("04;16", (4, 16)), (" 0 ; 23 ", (0, 23)), ("1;1;02", (1, 1, 2))],
)
def test_hours(text: str, hours: tuple[int, ...]) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize("text", ["", "24", "-1", "4;", ";4", "4,5", "four", "٤", "004", "4 5"])
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        parse_hours(text)
