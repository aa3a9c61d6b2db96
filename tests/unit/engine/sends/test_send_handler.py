"""May this message be stored, and what is its sender told?"""

import random

import pytest

from kourou.engine.inputs import SpaceChanged
from kourou.engine.policy import BrokerPolicy
from kourou.engine.sends import send_handler
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou_rigs.engine import Engine, header_of, one_by_one, replied, together
from kourou_rigs.records import delayed_draft


def bodies(engine: Engine, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in engine.stored(topic, queue_id)]


@pytest.mark.parametrize("damage", ["topic", "topics", "queue", "sizes", "lane"])
def test_a_batch_that_lies_is_refused_whole(engine, draft, records, damage) -> None:
    good, other = draft(), draft("other")
    engine.ask(*records([good]))
    before = dict(engine.store.records)
    match damage:
        case "topic":
            request, body = records([good, other])
        case "topics":
            targets = [("orders", 0), ("other", 0)]
            request, body = records([good, other], targets, target_of=[1, 0])
        case "queue":
            request, body = records([good, draft(queue_id=1)])
        case "sizes":
            request, body = records([good, good])
            body = body[:-1]
        case "lane":
            request, body = records([good, good], target_of=[0, 5])
    reply = engine.ask(request, body)
    assert reply.code in (Code.MESSAGE_ILLEGAL, Code.SYSTEM_ERROR)
    assert reply.remark
    assert engine.store.records == before


@pytest.mark.parametrize("count", [1, 3, 20])
def test_damaged_bodies_are_refused_and_nothing_is_stored(engine, draft, records, count) -> None:
    damaged = draft(body=b"whole").replace(b"whole", b"whale")
    reply = engine.ask(*records([draft()] * (count - 1) + [damaged]))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "BODYCRC" in reply.remark
    assert ("orders", 0) not in engine.store.queues


@pytest.mark.feature("F172", "F296")
@pytest.mark.parametrize("count", [1, 3])
def test_the_brokers_own_limit_holds_for_every_body(draft, records, count) -> None:
    """Alone, and as the last one of a batch."""
    policy = BrokerPolicy("DefaultCluster", "broker-a", body_size_max=131_072)
    engine = Engine(policy=policy)
    small = [draft()] * (count - 1)
    assert engine.ask(*records([*small, draft(body=bytes(131_072))])).code == Code.SUCCESS
    reply = engine.ask(*records([*small, draft(body=bytes(131_073))]))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "maxMessageSize is 131072" in reply.remark
    assert len(engine.stored("orders")) == count


@pytest.mark.feature("F065")
def test_a_batch_that_crosses_a_segment_is_cut_there(draft, records) -> None:
    engine = Engine(segment_size=16_384)
    drafts = [draft(body=bytes([n]) * 700) for n in range(50)]
    header = header_of(engine.ask(*records(drafts)))
    assert len(header.runs) > 1
    assert bodies(engine, "orders", 0) == [bytes([n]) * 700 for n in range(50)]
    for position, raw in engine.store.records.items():
        assert position // 16_384 == (position + len(raw) - 1) // 16_384
        assert position % 16_384 + len(raw) + 8 <= 16_384


def test_a_lane_named_twice_is_refused(engine, draft, records) -> None:
    """Each target is numbered by itself: two for one queue would give its offsets out twice."""
    drafts = [draft(), draft()]
    reply = engine.ask(*records(drafts, [("orders", 0), ("orders", 0)], [0, 1]))
    assert reply.code == Code.SYSTEM_ERROR
    reply = engine.ask(*records(drafts, [("orders", 0), ("a", 0), ("b", 0)], [0, 0]))
    assert reply.code == Code.SYSTEM_ERROR
    assert ("orders", 0) not in engine.store.queues
    assert "a" not in engine.control.topics


def test_a_deleted_topic_goes_on_counting_after_a_restart_too(engine, draft, records) -> None:
    """Also where its queues were written in the very turn that deletes it."""
    _, send = engine.received(*records([draft(), draft()]))
    _, delete = engine.received(DeleteTopicInBroker(topic="orders"))
    engine.handle(send, delete)
    assert engine.control.topics.retired == {"orders": {0: 2}}


def test_many_at_once_fail_as_a_whole_when_there_is_no_room(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.core.parts.appends._allocated_end = engine.store.end + 1_000
    full = SpaceChanged(0, full=True)
    engine.handle(full)
    reply = engine.ask(*records([draft(body=bytes(300)) for _ in range(4)]))
    assert reply.code == Code.DISK_FULL
    assert header_of(engine.ask(*records([draft(body=b"small")]))).target_offsets == [1]


def test_a_refused_queue_has_no_offset(engine, draft, records) -> None:
    """Also at a broker where the queue would have one."""
    drafts = [draft(), draft(queue_id=99)]
    header = header_of(engine.ask(*records(drafts, [("orders", 0), ("orders", 99)], [0, 1])))
    assert [bool(code) for code in header.target_codes] == [False, True]
    assert header.target_offsets == [0, -1]


# -- sends of one turn are stored as one, and nobody can tell but by the clock ---------------------


def sends(draft, records, count: int, each: int, targets=((("orders", 0)),)):
    made = []
    for number in range(count):
        blobs, target_of = [], []
        for target, (topic, queue_id) in enumerate(targets):
            for n in range(each):
                key = f"K{number}-{target}-{n}"
                blobs.append(draft(topic=topic, queue_id=queue_id, body=key.encode() * 9, key=key))
                target_of.append(target)
        made.append(
            records(blobs, targets=targets, target_of=target_of if len(targets) > 1 else ())
        )
    return made


def both(made, **options) -> tuple[Engine, Engine]:
    """Two brokers that got the same sends, one in a turn, one after the other."""
    joint, alone = Engine(**options), Engine(**options)
    assert together(joint, made) == one_by_one(alone, made)
    assert joint.store.records == alone.store.records
    return joint, alone


@pytest.mark.feature("F175")
def test_sends_of_a_turn_become_one_append_and_each_learns_its_own_places(draft, records) -> None:
    targets = (("orders", 1), ("orders", 0), ("bills", 3))
    made = [
        *sends(draft, records, 3, 8),
        *sends(draft, records, 2, 5, targets),
        *sends(draft, records, 2, 1),
    ]
    joint, _ = both([*sends(draft, records, 1, 1), *sends(draft, records, 1, 1, (("bills", 0),))])
    before = len(joint.appends())
    answers = together(joint, made)
    assert len(joint.appends()) == before + 1
    assert all(code == Code.SUCCESS for code, _, _ in answers)
    assert [header.target_offsets for _, _, header in answers] == [
        [1],
        [9],
        [17],
        [0, 25, 0],
        [5, 30, 5],
        [35],
        [36],
    ]
    both(made)


@pytest.mark.parametrize("seed", range(25))
def test_nobody_can_tell_whether_it_was_alone(draft, records, seed) -> None:
    chance = random.Random(seed)
    topics = ["orders", "bills"]
    made = [one for name in topics for one in sends(draft, records, 1, 1, ((name, 0),))]
    if chance.random() < 0.4:
        topics += ["rmq_sys_kourou_control", "bad topic"]
    queues = [0, 1, 9] if chance.random() < 0.4 else [0, 1]
    for _ in range(chance.randint(2, 14)):
        count = chance.randint(1, 3)
        targets = [(topic, chance.choice(queues)) for topic in chance.sample(topics, min(count, 2))]
        ((request, blob),) = sends(draft, records, 1, chance.randint(1, 12), tuple(targets))
        if chance.random() < 0.15:
            blob = blob[: chance.randint(0, len(blob))]
        if chance.random() < 0.1:
            spoilt = bytearray(blob)
            for _ in range(3):
                if spoilt:
                    spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
            blob = bytes(spoilt)
        made.append((request, blob))
    options = {"segment_size": chance.choice([1 << 20, 1 << 14])}
    joint, alone = Engine(**options), Engine(**options)
    assert one_by_one(joint, made[:2]) == one_by_one(alone, made[:2])
    assert together(joint, made[2:]) == one_by_one(alone, made[2:])
    assert joint.store.records == alone.store.records


def test_a_batch_over_a_segments_end_gives_each_its_runs(draft, records) -> None:
    made = sends(draft, records, 6, 20)
    joint, _ = both(made, segment_size=1 << 14)
    assert len(joint.appends()[-1].pieces) > 1


def test_answers_wait_for_one_flush_and_all_leave_then(draft, records) -> None:
    engine = Engine(sync_flush=True)
    turn = [engine.received(*one) for one in sends(draft, records, 4, 10)]
    engine.handle(*(received for _, received in turn))
    assert engine.flushes_wanted == 1
    assert not engine.replies
    engine.flush()
    assert len(engine.replies) == 4


def test_who_does_not_wait_for_the_disk_is_answered_at_once(draft, records) -> None:
    engine = Engine(sync_flush=True)
    waits, hurries = (sends(draft, records, 1, 20)[0] for _ in range(2))
    request, blob = hurries
    request = type(request)(
        **{name: getattr(request, name) for name in request.__struct_fields__ if name != "wait"},
        wait=False,
    )
    names = [engine.received(*waits), engine.received(request, blob)]
    engine.handle(*(received for _, received in names))
    assert names[0][0] not in engine.replies
    assert header_of(engine.replies[names[1][0]]).target_offsets == [20]


@pytest.mark.parametrize("why", ["traced", "late"])
def test_some_go_alone_and_keep_their_turn(draft, records, why) -> None:
    engine = Engine()
    engine.ask(*records([draft()]))
    turn = [engine.received(*one) for one in sends(draft, records, 5, 12)]
    received = turn[2][1]
    if why == "traced":
        trace = bytes(24) + b"\x01"
        received.to = type(received.to)(received.to.peer, received.to.correlation, trace=trace)
    else:
        received.deadline_ms = engine.now_ms
    before = len(engine.appends())
    engine.handle(*(received for _, received in turn))
    assert len(engine.appends()) == before + (3 if why == "traced" else 2)
    answers = replied(engine, [name for name, _ in turn])
    offsets = [header.target_offsets[0] for code, _, header in answers if code == Code.SUCCESS]
    assert offsets == ([1, 13, 25, 37, 49] if why == "traced" else [1, 13, 25, 37])


def test_a_retried_send_makes_those_behind_it_be_compared_with_it(draft, records) -> None:
    """Its first attempt may be among them, late."""
    engine = Engine()
    engine.ask(*records([draft()]))
    first, second, third = sends(draft, records, 3, 12)
    retried = records([draft(body=b"K1-0-3" * 9, key="K1-0-3")], attempt=2)
    answers = together(engine, [first, retried, second, third])
    assert [answer.offsets for _, _, answer in answers[:2]] == [None, [13]]
    assert answers[2][2].offsets == [14, 15, 16, 13, *range(17, 25)]
    assert answers[3][2].target_offsets == [25]


def test_without_room_for_all_those_are_stored_that_fit(draft, records) -> None:
    engine = Engine()
    small, large, last = sends(draft, records, 1, 10), sends(draft, records, 1, 90), None
    engine.ask(*records([draft()]))
    last = sends(draft, records, 1, 10)
    room = engine.store.end + 2 * len(small[0][1])
    engine.core.parts.appends._allocated_end = room
    engine.handle(SpaceChanged(0, full=True))
    answers = together(engine, [*small, *large, *last])
    assert [code for code, _, _ in answers] == [Code.SUCCESS, Code.DISK_FULL, Code.SUCCESS]


def test_groups_stay_below_the_limits(draft, records, monkeypatch) -> None:

    made = sends(draft, records, 6, 10)
    monkeypatch.setattr(send_handler, "BATCH_MESSAGES_MAX", 25)
    joint = Engine()
    together(joint, sends(draft, records, 1, 1))
    before = len(joint.appends())
    together(joint, made)
    assert len(joint.appends()) == before + 3
    monkeypatch.setattr(send_handler, "BATCH_MESSAGES_MAX", 30)
    before = len(joint.appends())
    together(joint, made)
    assert len(joint.appends()) == before + 2
    monkeypatch.setattr(send_handler, "BATCH_MESSAGES_MAX", 1_000)
    monkeypatch.setattr(send_handler, "FRAME_RECORD_BYTES_MAX", len(made[0][1]) * 3)
    before = len(joint.appends())
    together(joint, made)
    assert len(joint.appends()) == before + 2


def test_sends_that_are_stored_elsewhere_share_the_append(draft, records) -> None:
    """Each place of theirs is replied by itself; the others of the turn are replied as ever."""
    made = [
        records([draft(key="A"), draft(key="B")]),
        records([delayed_draft("3"), draft(key="C")]),
        records([draft(key="D", queue_id=1)], targets=[("orders", 1)]),
        records([delayed_draft("3")] * 3),
    ]
    joint, _ = both(made)
    before = len(joint.appends())
    together(joint, made)
    assert len(joint.appends()) == before + 1


def test_a_draft_that_cannot_be_delayed_is_refused_alone(draft, records) -> None:
    both([records([draft()]), records([delayed_draft("soon"), draft()]), records([draft()])])
