"""What is a pull answered, and when?"""

import random

import pytest

from kourou.engine.pulls import pull_handler as pulls
from kourou.engine.pulls.pull_handler import ParkedPull, ParkedPulls
from kourou.errors import Code
from kourou.model.limits import REPAIR_MS
from kourou.model.subscription import SQL92
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.runtime import Peer, Received, ReplyTo
from kourou_rigs import engine as testing_engine
from kourou_rigs.engine import Engine, MemoryStore, header_of, hold, pull
from kourou_rigs.records import decode_many


@pytest.fixture
def group(engine: Engine) -> str:
    make_group(engine)
    return "g"


def make_group(engine: Engine, name: str = "g", more: bytes = b"") -> None:
    body = b'{"groupName":"%s"%s}' % (name.encode(), more)
    assert engine.ask(UpdateAndCreateSubscriptionGroup(), body).code == Code.SUCCESS


def bodies(reply) -> list[bytes]:
    return [message.body for part in reply.body for message in decode_many(part)]


@pytest.mark.feature("F276", "F342", "F343", "F344", "F345")
def test_both_pairs_of_transfer_limits_hold(engine, draft, records, group) -> None:
    engine.ask(*records([draft(body=bytes(100)) for _ in range(100)]))
    engine.ask(
        *records([draft(queue_id=1, body=bytes(100_000)) for _ in range(5)], [("orders", 1)])
    )
    assert len(bodies(engine.ask(pull(max_msg_nums=1_000)))) == 32
    assert len(bodies(engine.ask(pull(queue_id=1)))) == 2, "262,144 bytes"
    engine.store.recent = False
    assert len(bodies(engine.ask(pull(max_msg_nums=1_000)))) == 8
    assert len(bodies(engine.ask(pull(queue_id=1)))) == 1, "the first one whatever its size"
    own = pull(max_msg_nums=1_000, max_msg_bytes=1 << 20)
    assert len(bodies(engine.ask(own))) == 100, "our client states its own budget"


def test_a_pull_gets_no_more_messages_than_it_asks_for(engine, draft, records, group) -> None:
    engine.ask(*records([draft() for _ in range(40)]))
    for recent in (True, False):
        engine.store.recent = recent
        assert len(bodies(engine.ask(pull(max_msg_nums=3)))) == 3
        assert len(bodies(engine.ask(pull(max_msg_nums=3, max_msg_bytes=1 << 20)))) == 3


def test_the_budget_of_our_own_client_has_limits_too(
    draft, records, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(segment_size=32 << 20)
    make_group(engine)
    engine.ask(*records([draft(body=bytes(1_000_000)) for _ in range(6)]))
    greedy = pull(max_msg_nums=1 << 30, max_msg_bytes=1 << 30)
    engine.core.parts.apply("maxPullBytes", 1 << 30)
    assert len(bodies(engine.ask(greedy))) == 4, "4 MiB whatever the settings say"
    engine.core.parts.apply("maxPullBytes", 2_500_000)
    assert len(bodies(engine.ask(greedy))) == 2
    assert len(bodies(engine.ask(pull(max_msg_bytes=0)))) == 1, "the first one whatever its size"
    engine.core.parts.apply("maxPullBytes", 1 << 30)
    monkeypatch.setattr(pulls, "PULL_MESSAGES_MAX", 3)
    assert len(bodies(engine.ask(greedy))) == 3


class Damaged(MemoryStore):
    """The message at offset 1 of every queue cannot be read."""

    def read_queue(self, topic, queue_id, offset, **limits):
        read = super().read_queue(topic, queue_id, offset, **limits)
        if offset <= 1 < read.next_offset:
            records = read.records
            del records[1 - offset]
            hold(read, records)
            read.corrupt_offsets.append(1)
        return read


def test_only_our_own_client_is_reported_of_a_hole(engine, draft, records, group) -> None:
    """A RocketMQ client knows no such answer: it can only be led past the hole."""
    engine.ask(*records([draft(body=bytes([n])) for n in range(3)]))
    engine.store.__class__ = Damaged
    one = {"offset": 1, "max_msg_nums": 1}
    theirs = engine.ask(pull(**one))
    assert (theirs.code, theirs.body) == (Code.PULL_RETRY_IMMEDIATELY, ())
    ours = engine.ask(pull(max_msg_bytes=1_000, **one))
    assert (ours.code, ours.remark) == (Code.MESSAGE_CORRUPT, "unreadable offsets: 1")
    assert theirs.header.next_begin_offset == ours.header.next_begin_offset == 2
    for fields in ({}, {"max_msg_bytes": 1_000}):
        assert bodies(engine.ask(pull(**fields))) == [b"\0", b"\2"], "what can be read is given"


def test_what_other_members_can_mend_is_waited_for_but_not_for_ever(
    engine, draft, records, group
) -> None:
    engine.ask(*records([draft(body=bytes([n])) for n in range(3)]))
    engine.core.parts.pulls.repairs = True
    engine.store.__class__ = Damaged
    before = engine.ask(pull())
    assert (bodies(before), header_of(before).next_begin_offset) == ([b"\0"], 1)
    there = engine.ask(pull(offset=1))
    assert (there.code, there.header.next_begin_offset) == (Code.PULL_NOT_FOUND, 1)
    engine.store.__class__ = MemoryStore
    assert bodies(engine.ask(pull(offset=1))) == [b"\1", b"\2"]
    engine.store.__class__ = Damaged
    engine.advance(REPAIR_MS)
    assert bodies(engine.ask(pull())) == [b"\0", b"\2"], "nobody has it"


def test_beyond_the_limit_of_waiting_pulls_they_are_answered_at_once(
    engine, draft, records, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.ask(*records([draft()]))
    monkeypatch.setattr(pulls, "HOLDS_MAX", 1)
    engine.send(pull(wait_ms=10_000, offset=1))
    assert engine.ask(pull(wait_ms=10_000, offset=1)).code == Code.PULL_NOT_FOUND
    for budget in (0, 1_000):
        own = pull(wait_ms=10_000, offset=1, max_msg_bytes=budget)
        assert engine.ask(own).code == Code.POLLING_FULL
    assert engine.ask(pull(wait_ms=10_000)).code == Code.SUCCESS, (
        "who finds something need not wait"
    )
    engine.ask(*records([draft()]))
    name = engine.send(pull(wait_ms=10_000, offset=2))
    assert name not in engine.replies, "there is room again"


def test_one_pull_looks_at_so_many_records_and_goes_on_at_once(
    engine, draft, records, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would sleep in front of messages that are there already."""
    monkeypatch.setattr(testing_engine, "FILTER_RECORDS_MAX", 2)
    wanted = {"subscription": "TAGS = 'B'", "expression_type": SQL92}
    engine.ask(*records([draft(tag="A")]))
    parked = engine.send(pull(1, wait_ms=10_000, **wanted))
    assert parked not in engine.replies
    engine.ask(*records([draft(tag="A") for _ in range(4)]))
    at_once = engine.send(pull(0, wait_ms=10_000, **wanted))
    for name, reached in ((parked, 3), (at_once, 2)):
        assert engine.replies[name].code == Code.PULL_RETRY_IMMEDIATELY
        assert engine.replies[name].header.next_begin_offset == reached


def test_filters_that_failed_are_forgotten_in_the_end(
    engine, draft, records, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls, "FILTERS_REMEMBERED_MAX", 2)
    engine.ask(*records([draft(tag="x")]))
    for number in range(5):
        engine.ask(pull(subscription=f"TAGS > {number}", expression_type=SQL92))
    assert 0 < len(engine.core.parts.pulls._reported) <= 2


# -- parked pulls are woken by growth and by time, and never leak ----------------------------------


def peer(number: int) -> Peer:
    return Peer(number, "local", ("127.0.0.1", number))


def parked(number: int, *, queue_id: int = 0, offset: int = 5, at_ms: int = 100) -> ParkedPull:
    request = pull(offset, queue_id)
    return ParkedPull(Received(ReplyTo(peer(number), 1), request, (), 0), request, at_ms)


def test_random_use_never_leaks() -> None:
    rng = random.Random(7)
    pulls = ParkedPulls()
    expected: set[ParkedPull] = set()
    now_ms = 0
    for _ in range(5_000):
        now_ms += rng.randrange(3)
        action = rng.random()
        if action < 0.6:
            one = parked(
                rng.randrange(20),
                queue_id=rng.randrange(4),
                offset=rng.randrange(10),
                at_ms=now_ms + rng.randrange(50),
            )
            pulls.add(one)
            expected.add(one)
        elif action < 0.8:
            queue_id, high = rng.randrange(4), rng.randrange(12)
            woken = {
                one
                for one in expected
                if one.target == ("orders", queue_id) and one.request.queue_offset < high
            }
            assert set(pulls.take_advanced([("orders", queue_id, high)])) == woken
            expected -= woken
        elif action < 0.9:
            gone = peer(rng.randrange(20))
            pulls.drop_peer(gone)
            expected = {one for one in expected if one.received.to.peer != gone}
        else:
            late = {one for one in expected if one.deadline_ms <= now_ms}
            assert set(pulls.take_expired(now_ms)) == late
            expected -= late
        assert len(pulls) == len(expected)
