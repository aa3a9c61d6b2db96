"""What a client asks of a broker: the broker in memory and the real core answer alike.

The unit tests of the client run against `kourou_rigs.wire_broker.WireBroker`. Here each request
that it answers goes to it and to `kourou.engine.core.BrokerCore`, and has to have the same result.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from kourou.errors import Code
from kourou.model.message import Property, StoredMessage
from kourou.model.names import AUTO_CREATE_TOPIC
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.lists_body import (
    LockBatch,
    decode_consumer_ids,
    decode_locked_queues,
    encode_lock_batch,
)
from kourou.protocol.bodies.statistics_bodies import (
    decode_offset_table,
)
from kourou.protocol.messages import groups, pulls
from kourou.protocol.messages.broker_admin import (
    DeleteTopicInBroker,
    UpdateAndCreateTopic,
)
from kourou.protocol.messages.filter_server import PutFilter
from kourou.protocol.messages.groups import LockBatchMq, UnlockBatchMq
from kourou.protocol.messages.sends import (
    ConsumerSendMsgBack,
    PushReplyMessageToClient,
    SendMessage,
    SendRecords,
    SendReplyMessage,
    Target,
)
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.protocol.request import Request
from kourou_rigs.wire_broker import Answer, WireBroker
from kourou_rigs.wire_core import CoreBroker

HOLD_MS = 60_000
QUEUES = 4
RETRY_DELAY_MS = 200


class Caller:
    """One client's connection: its answers by number, and what it is told unasked."""

    def __init__(self, broker: WireBroker, client_id: str) -> None:
        self.broker = broker
        self.client_id = client_id
        self.closed = False
        self.answers: dict[int, Answer] = {}
        self.heard: list[tuple[Request, bytes]] = []
        self.changed = asyncio.Event()
        self.asked = 0

    def reply(self, correlation: int, answer: Answer) -> None:
        assert correlation not in self.answers, "one request has one answer"
        self.answers[correlation] = answer
        self.changed.set()

    def hear(self, request: Request, body: bytes = b"") -> None:
        self.heard.append((request, body))

    def start(self, request: Request, body: bytes = b"") -> int:
        """Ask; the answer may come later."""
        self.asked += 1
        answer = self.broker.answer(self, self.asked, request, body)
        if answer is not None:
            self.reply(self.asked, answer)
        return self.asked

    def ask(self, request: Request, body: bytes = b"") -> Answer:
        """Ask what has to be answered at once."""
        return self.answers[self.start(request, body)]

    async def later(self, number: int) -> Answer:
        """The answer to a request that waits."""
        while number not in self.answers:
            self.changed.clear()
            await self.changed.wait()
        return self.answers[number]

    def notices(self) -> list[type[Request]]:
        """What was heard since the last look."""
        heard, self.heard = self.heard, []
        return [type(request) for request, _ in heard]

    def beat(self, consumer: str = "", producer: str = "") -> None:
        """Join a group."""
        data = [ConsumerData(group=consumer)] if consumer else []
        producers = (producer,) if producer else ()
        body = encode_heartbeat(HeartbeatBody(self.client_id, producers, tuple(data)))
        assert self.ask(groups.HeartBeat(), body).code == 0

    def send(self, *bodies: bytes, queue_id: int = 0, **properties: str) -> SendRecords:
        """Send some messages to a queue of T; what is expected of all of them holds."""
        request, frame = sends([("T", queue_id)], [(0, body) for body in bodies], **properties)
        answer = self.ask(request, frame)
        assert answer.code == 0, answer.remark
        return answer.header  # type: ignore[return-value]  # as every answer to a send


def sends(
    targets: list[tuple[str, int]], messages: list[tuple[int, bytes]], **properties: str
) -> tuple[SendRecords, bytes]:
    """A frame with messages, each for the target of its number."""
    drafts = [
        encode_draft(
            topic=targets[target][0].encode(),
            queue_id=targets[target][1],
            body=body,
            properties=encode_properties(properties),
            born_timestamp=1,
            born_host=encode_host(("127.0.0.1", 1)),
        )
        for target, body in messages
    ]
    request = SendRecords(
        targets=[Target(*target) for target in targets],
        target_of=b"".join(target.to_bytes(2, "little") for target, _ in messages),
        sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
        producer_group="p",
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=3,
    )
    return request, b"".join(drafts)


def single(topic: str, **fields: Any) -> SendMessage:
    values: dict[str, Any] = {"queue_id": 0, "born_timestamp": 1, **fields}
    return SendMessage(producer_group="p", topic=topic, **values)


def pull(offset: int, *, hold_ms: int = 0, count: int = 32, topic: str = "T") -> Request:
    return pulls.PullMessage(
        consumer_group="g", topic=topic, queue_id=0, queue_offset=offset, max_msg_nums=count,
        sys_flag=int(pulls.PullFlag.SUBSCRIPTION | (pulls.PullFlag.SUSPEND * bool(hold_ms))),
        suspend_timeout_millis=hold_ms, subscription="*", max_msg_bytes=1 << 20,
    )  # fmt: skip


def bodies(answer: Answer) -> list[bytes]:
    """The bodies of the records in a pull's answer."""
    found, at = [], 0
    while at < len(answer.body):
        size = int.from_bytes(answer.body[at : at + 4], "big")
        found.append(decode_record(answer.body[at : at + size]).body)
        at += size
    return found


def place(answer: Answer) -> tuple[int, int, int, int]:
    header: Any = answer.header
    return answer.code, header.next_begin_offset, header.min_offset, header.max_offset


def stored(broker: WireBroker, topic: str) -> list[StoredMessage]:
    """The messages of a topic, after the delay of those that are tried again."""
    if isinstance(broker, CoreBroker):
        broker.pass_time(RETRY_DELAY_MS)
    return broker.stored(topic)


@pytest.fixture(params=[WireBroker, CoreBroker], ids=["fake", "core"])
async def broker(request: pytest.FixtureRequest) -> WireBroker:
    made: WireBroker = request.param("b", "b:20911", 1, {"T": (QUEUES, QUEUES)}, {})
    return made


@pytest.fixture
async def one(broker: WireBroker) -> Any:
    caller = Caller(broker, "client-1")
    yield caller
    caller.closed = True


@pytest.fixture
async def other(broker: WireBroker) -> Any:
    caller = Caller(broker, "client-2")
    yield caller
    caller.closed = True


# -- sending --------------------------------------------------------------------------------------


@pytest.mark.feature("F164")
async def test_a_frame_says_of_each_queue_where_its_messages_are(one):
    assert one.send(b"0", b"1", queue_id=2).target_offsets == [0]
    targets = [("T", 2), ("T", 0), ("New", 1)]
    request, frame = sends(targets, [(0, b"2"), (1, b"a"), (0, b"3"), (2, b"n")])
    answer = one.ask(request, frame)
    assert (answer.header.target_codes, answer.header.target_offsets) == ([0, 0, 0], [2, 0, 0])
    [(first, position)] = answer.header.runs
    assert (first, position) == (0, one.broker.stored("T", 2)[2].position)
    assert [message.body for message in one.broker.stored("T", 2)] == [b"0", b"1", b"2", b"3"]
    assert [message.offset for message in one.broker.stored("T", 2)] == [0, 1, 2, 3]
    assert one.broker.stored("New")[0].queue_id == 1
    assert one.broker.topics["New"] == (3, 3), "made as the producer asks"
    assert one.broker.stored("T")[0].store_timestamp > 0


async def test_a_single_send(one):
    first = one.ask(single("T", queue_id=3), b"a")
    second = one.ask(single("T", queue_id=3, flag=7, properties="TAGS\x01red\x02"), b"b")
    places = [(one.header.queue_id, one.header.queue_offset) for one in (first, second)]
    assert places == [(3, 0), (3, 1)]
    message = one.broker.stored("T", 3)[1]
    assert (message.body, message.flag, message.tag) == (b"b", 7, "red")


# -- pulling --------------------------------------------------------------------------------------


@pytest.mark.feature("F186", "F314")
async def test_what_a_pull_finds(one):
    one.beat(consumer="g")
    one.send(b"0", b"1", b"2", b"3", b"4")
    found = one.ask(pull(1, count=3))
    assert (place(found), bodies(found)) == ((0, 4, 0, 5), [b"1", b"2", b"3"])
    assert place(one.ask(pull(5))) == (Code.PULL_NOT_FOUND, 5, 0, 5)
    assert place(one.ask(pull(6))) == (Code.PULL_OFFSET_MOVED, 5, 0, 5)


@pytest.mark.feature("F187", "F317")
async def test_a_held_pull_gets_the_next_message(one, other):
    one.beat(consumer="g")
    one.send(b"0")
    number = one.start(pull(1, hold_ms=HOLD_MS))
    other.send(b"elsewhere", queue_id=1)
    assert number not in one.answers
    other.send(b"1")
    answer = await one.later(number)
    assert (place(answer), bodies(answer)) == ((0, 2, 0, 2), [b"1"])


@pytest.mark.feature("F317")
async def test_a_hold_ends_when_its_time_is_up(one):
    one.beat(consumer="g")
    one.send(b"0")
    late, soon = one.start(pull(1, hold_ms=HOLD_MS)), one.start(pull(1, hold_ms=20))
    assert place(await one.later(soon)) == (Code.PULL_NOT_FOUND, 1, 0, 1)
    assert late not in one.answers


async def test_who_names_a_filter_in_python_is_refused(one):
    one.beat(consumer="g")
    asked = pulls.PullMessage(
        consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=1,
        sys_flag=int(pulls.PullFlag.CLASS_FILTER | pulls.PullFlag.SUBSCRIPTION),
        subscription="third",
    )  # fmt: skip
    assert one.ask(asked).code == Code.SYSTEM_ERROR


# -- members --------------------------------------------------------------------------------------


@pytest.mark.feature("F202", "F316", "F301")
async def test_members_come_and_go_and_the_others_hear_of_it(one, other):
    asked = groups.GetConsumerListByGroup(consumer_group="g")
    assert one.ask(asked).code == Code.SYSTEM_ERROR, "a group without members"
    one.beat(consumer="g")
    one.notices()
    other.beat(consumer="g")
    assert one.notices() == [groups.NotifyConsumerIdsChanged]
    assert sorted(decode_consumer_ids(one.ask(asked).body)) == ["client-1", "client-2"]
    one.beat(consumer="g")
    assert one.notices() == [], "the same member again is no news"
    left = groups.UnregisterClient(client_id="client-2", consumer_group="g")
    assert other.ask(left).code == 0
    assert one.notices() == [groups.NotifyConsumerIdsChanged]
    assert decode_consumer_ids(one.ask(asked).body) == ["client-1"]


async def test_a_group_has_a_retry_topic_from_its_first_beat_on(one):
    one.beat(consumer="g")
    assert one.broker.topics["%RETRY%g"] == (1, 1)


@pytest.mark.feature("F290")
async def test_producers_are_known_until_they_leave(one):
    one.beat(producer="p")
    assert one.broker.producers == {"p"}
    one.ask(groups.UnregisterClient(client_id="client-1", producer_group="p"))
    assert (one.broker.producers, one.broker.left) == (set(), [("client-1", "p")])


async def test_a_queue_has_one_owner_in_a_group(one, other):
    queues = [MessageQueue("T", "b", number) for number in range(2)]
    one.beat(consumer="g")
    other.beat(consumer="g")

    def lock(who: Caller, *wanted: MessageQueue) -> tuple[MessageQueue, ...]:
        body = encode_lock_batch(LockBatch("g", who.client_id, wanted))
        return decode_locked_queues(who.ask(LockBatchMq(), body).body)

    assert lock(one, queues[0]) == (queues[0],)
    assert lock(other, *queues) == (queues[1],)
    assert lock(one, *queues) == (queues[0],), "again, as whoever goes on consuming does"
    given = encode_lock_batch(LockBatch("g", "client-2", (queues[0],)))
    other.ask(UnlockBatchMq(), given)
    assert lock(other, queues[0]) == (), "only the owner gives a lock back"
    other.notices()
    given = encode_lock_batch(LockBatch("g", "client-1", (queues[0],)))
    assert one.ask(UnlockBatchMq(), given).code == 0
    assert other.notices() == [groups.NotifyConsumerIdsChanged], "it may have the queue now"
    assert lock(other, queues[0]) == (queues[0],)


async def test_a_reply_reaches_the_client_that_waits(one, other):
    one.beat(producer="p")

    def reply(to: str) -> Answer:
        properties = encode_properties({Property.REPLY_TO_CLIENT: to, "CORRELATION_ID": "7"})
        request = SendReplyMessage(
            producer_group="p", topic="c1_REPLY_TOPIC", queue_id=0, born_timestamp=1,
            properties=properties.decode(),
        )  # fmt: skip
        return other.ask(request, b"yes")

    assert reply("client-1").code == 0
    [(pushed, body)] = one.heard
    assert isinstance(pushed, PushReplyMessageToClient)
    assert (body, "CORRELATION_ID\x017" in (pushed.properties or "")) == (b"yes", True)
    assert reply("nobody").code == Code.SYSTEM_ERROR


# -- offsets --------------------------------------------------------------------------------------


@pytest.mark.feature("F289", "F307")
async def test_progress(one):
    one.send(b"0", b"1")
    asked = pulls.QueryConsumerOffset(consumer_group="g", topic="T", queue_id=0)
    assert one.ask(asked).code == Code.QUERY_NOT_FOUND
    for offset in (2, 1):
        commit = pulls.UpdateConsumerOffset(
            consumer_group="g", topic="T", queue_id=0, commit_offset=offset
        )
        assert one.ask(commit).code == 0
        assert one.ask(asked).header.offset == offset
    assert one.broker.committed["g", "T", 0] == 1


@pytest.mark.feature("F303")
async def test_the_bounds_of_a_queue_and_where_a_time_is(one):
    one.send(b"0", b"1", b"2")
    queue: dict[str, Any] = {"topic": "T", "queue_id": 0}
    assert one.ask(pulls.GetMinOffset(**queue)).header.offset == 0
    assert one.ask(pulls.GetMaxOffset(**queue)).header.offset == 3
    first_ms = one.ask(pulls.GetEarliestMsgStoreTime(**queue)).header.timestamp
    assert first_ms == one.broker.stored("T")[0].store_timestamp
    empty = pulls.GetEarliestMsgStoreTime(topic="T", queue_id=1)
    assert one.ask(empty).header.timestamp == -1
    for timestamp, offset in ((0, 0), (first_ms, 0), (first_ms + 1_000_000, 3)):
        asked = pulls.SearchOffsetByTimestamp(timestamp=timestamp, **queue)
        assert one.ask(asked).header.offset == offset


async def test_a_group_is_moved_and_its_members_hear_of_it(one):
    one.beat(consumer="g")
    one.send(b"0", b"1")
    one.notices()
    commit = pulls.UpdateConsumerOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=2)
    one.ask(commit)
    moved = one.ask(pulls.InvokeBrokerToResetOffset(topic="T", group="g", timestamp=0))
    assert decode_offset_table(moved.body)[MessageQueue("T", "b", 0)] == 0
    [(notice, body)] = one.heard
    assert isinstance(notice, pulls.ResetConsumerClientOffset)
    assert decode_offset_table(body)[MessageQueue("T", "b", 0)] == 0


# -- what was not consumed ------------------------------------------------------------------------


def back(message: StoredMessage, level: int = 0, **fields: Any) -> ConsumerSendMsgBack:
    return ConsumerSendMsgBack(
        offset=message.position, group="g", delay_level=level, origin_topic="T", **fields
    )


@pytest.mark.feature("F215", "F220", "F315")
async def test_a_message_that_is_given_back_comes_again_until_it_is_dead(one):
    one.beat(consumer="g")
    one.send(b"x", KEYS="k")
    [message] = one.broker.stored("T")
    first = message
    for attempt in (1, 2):
        assert one.ask(back(message, max_reconsume_times=2)).code == 0
        message = stored(one.broker, "%RETRY%g")[-1]
        assert (message.body, message.reconsume_times, message.keys) == (b"x", attempt, ("k",))
        assert message.properties[Property.RETRY_TOPIC] == "T"
    assert one.ask(back(message, max_reconsume_times=2, reason="no")).code == 0
    [dead] = stored(one.broker, "%DLQ%g")
    assert (dead.body, dead.queue_id, dead.properties[Property.DLQ_REASON]) == (b"x", 0, "no")
    origin = dead.properties[Property.ORIGIN_MESSAGE_ID]
    assert origin == encode_offset_id(first.store_host, first.position)
    assert len(one.broker.stored("%RETRY%g")) == 2


@pytest.mark.feature("F219")
async def test_a_group_has_sixteen_retries_and_a_level_below_zero_none(one):
    one.beat(consumer="g")
    one.send(b"x", b"y")
    message, at_once = one.broker.stored("T")
    one.ask(back(at_once, -1))
    assert [dead.body for dead in stored(one.broker, "%DLQ%g")] == [b"y"]
    for _ in range(16):
        one.ask(back(message))
        message = stored(one.broker, "%RETRY%g")[-1]
    one.ask(back(message))
    assert [dead.body for dead in stored(one.broker, "%DLQ%g")] == [b"y", b"x"]


async def test_nothing_is_taken_back_from_where_no_message_is(one):
    one.beat(consumer="g")
    lost = ConsumerSendMsgBack(offset=7, group="g", delay_level=0)
    assert one.ask(lost).code == Code.SYSTEM_ERROR


async def test_who_sends_a_retry_itself_cannot_exceed_the_number(one):
    one.beat(consumer="g")
    for times in (2, 3):
        sent = single("%RETRY%g", reconsume_times=times, max_reconsume_times=3)
        assert one.ask(sent, b"%d" % times).code == 0
    assert [retry.body for retry in stored(one.broker, "%RETRY%g")] == [b"2"]
    assert [dead.body for dead in stored(one.broker, "%DLQ%g")] == [b"3"]


# -- questions and administration -----------------------------------------------------------------


async def test_messages_are_found_by_place_and_by_key(one):
    one.send(b"0", b"1", KEYS="k1 k2")
    second = one.broker.stored("T")[1]
    seen = one.ask(pulls.ViewMessageById(offset=second.position))
    assert decode_record(seen.body).body == b"1"
    assert one.ask(pulls.ViewMessageById(offset=7)).code == Code.SYSTEM_ERROR

    def by_key(key: str) -> Answer:
        return one.ask(
            pulls.QueryMessage(
                topic="T", key=key, max_num=10, begin_timestamp=0, end_timestamp=2**62
            )
        )

    assert sorted(bodies(by_key("k2"))) == [b"0", b"1"]
    assert by_key("k3").code == Code.QUERY_NOT_FOUND


async def test_topics_are_made_and_deleted(one):
    made = UpdateAndCreateTopic(topic="U", read_queue_nums=2, write_queue_nums=2, perm=6)
    assert one.ask(made).code == 0
    assert one.broker.topics["U"] == (2, 2)
    one.send(b"0", b"1")
    assert one.ask(DeleteTopicInBroker(topic="T")).code == 0
    assert one.broker.stored("T") == []


async def test_filters_have_versions(one):
    one.beat(consumer="g")

    def put(source: bytes) -> tuple[int, bool]:
        digest = hashlib.sha256(source).hexdigest()
        answer = one.ask(PutFilter(consumer_group="g", name="third", sha256=digest), source)
        assert answer.code == 0, answer.remark
        header: Any = answer.header
        assert header.active == header.version or not header.created
        return header.version, header.created

    first = b"def match(message, context):\n    return True\n"
    second = b"def match(message, context):\n    return False\n"
    assert [put(first), put(second), put(first)] == [(1, True), (2, True), (1, False)]
