"""Sending, from `await` to the broker and back."""

from __future__ import annotations

import asyncio
import logging

import pytest
from kourou import Client, Message, ProducerSettings, SendStatus
from kourou.client.batches import SomeNotSent
from kourou.client.io_thread import ClientClosed
from kourou.errors import (
    BadRequest,
    Code,
    DiskFull,
    MessageIllegal,
    NoPermission,
    Rejected,
    TimedOut,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from kourou.model.queue import MessageQueue
from kourou.protocol.frames import Kind
from kourou.protocol.messages.sending import SendRecords


@pytest.fixture
def client(cluster, fakes):
    def make(**settings):
        producer = ProducerSettings(producer_group="p", **settings)
        return Client(fakes.NAMESRV, producer=producer, dial=cluster.dial)

    return make


def on_send(answer):
    """An intercept that answers sends and nothing else; `answer` may be a function or an error."""

    def intercept(request):
        if not isinstance(request, SendRecords):
            return None
        if isinstance(answer, type) and issubclass(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    return intercept


@pytest.mark.feature("F164", "F173", "F001")
async def test_one_message(cluster, client):
    broker = cluster.broker()
    cluster.topics["T"] = (4, 4)
    async with client() as mq:
        result = await mq.send("T", "hello", tag="A", keys=["k"], properties={"own": "1"}, flag=2)
    [stored] = broker.stored("T")
    assert (stored.body, stored.tag, stored.keys, stored.flag) == (b"hello", "A", ("k",), 2)
    assert stored.properties["CLUSTER"] == "c1"
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue("T", "broker-a", stored.queue_id)
    assert (result.offset, result.message_id) == (stored.offset, stored.message_id)
    assert broker.frames[0].producer_group == "p"


@pytest.mark.feature("F162", "F010")
async def test_messages_take_turns_over_queues_and_brokers(cluster, client):
    brokers = [cluster.broker("broker-a"), cluster.broker("broker-b")]
    cluster.topics["T"] = (3, 3)
    async with client() as mq:
        results = [await mq.send("T", b"x") for _ in range(12)]
    assert all(len(broker.stored("T")) == 6 for broker in brokers)
    assert len({result.queue for result in results}) == 6


async def test_what_is_sent_in_one_turn_travels_in_one_frame(cluster, client):
    broker = cluster.broker()
    cluster.topics.update(T=(2, 2), U=(2, 2))
    async with client() as mq:
        await mq.send("T", b"")
        await mq.send("U", b"")
        before = len(broker.frames)
        results = await asyncio.gather(
            *(mq.send("TU"[number % 2], b"%d" % number) for number in range(40))
        )
    # The first one crosses at once since nothing is under way, the others together.
    carried = [len(frame.sizes) // 4 for frame in broker.frames[before:]]
    assert carried in ([1, 39], [40])
    assert len({(one.queue, one.offset) for one in results}) == 40


@pytest.mark.feature("F291", "F292")
async def test_an_unknown_topic_is_created_by_its_first_send(cluster, client):
    broker = cluster.broker()
    async with client(default_topic_queue_nums=2) as mq:
        results = [await mq.send("New", b"x") for _ in range(4)]
    assert {result.queue.queue_id for result in results} == {0, 1}
    assert broker.frames[0].default_topic == "TBW102"
    assert broker.frames[0].default_topic_queue_nums == 2


async def test_without_a_default_topic_an_unknown_topic_is_an_error(cluster, client):
    cluster.broker()
    del cluster.topics["TBW102"]
    async with client() as mq:
        with pytest.raises(TopicNotFound):
            await mq.send("New", b"x")


@pytest.mark.feature("F163", "F179")
async def test_three_ways_to_choose_the_queue(cluster, client):
    cluster.broker()
    cluster.topics["T"] = (8, 8)
    async with client() as mq:
        queue = MessageQueue("T", "broker-a", 5)
        assert (await mq.send("T", b"", queue=queue)).queue == queue
        keyed = {(await mq.send("T", b"", order_key="order-1")).queue for _ in range(5)}
        assert len(keyed) == 1
        result = await mq.send(
            "T", b"x", keys="k", selector=lambda qs, m, arg: qs[arg + len(m.keys)], argument=2
        )
        assert result.queue.queue_id == 3
        with pytest.raises(BadRequest, match="no writable queue"):
            await mq.send("T", b"", queue=MessageQueue("T", "broker-a", 8))


@pytest.mark.feature("F178", "F179")
async def test_messages_of_one_key_stay_in_order(cluster, client):
    broker = cluster.broker()
    cluster.topics["T"] = (4, 4)
    async with client() as mq:
        await asyncio.gather(*(mq.send("T", b"%d" % n, order_key="same") for n in range(100)))
    assert [stored.body for stored in broker.stored("T")] == [b"%d" % n for n in range(100)]


@pytest.mark.feature("F166")
async def test_oneway_does_not_wait_for_an_answer(cluster, client):
    broker = cluster.broker()
    cluster.topics["T"] = (1, 1)
    async with client() as mq:
        await mq.send("T", b"first")
        assert await mq.send_oneway("T", b"x") is None
        await mq.send("T", b"last")
    assert [stored.body for stored in broker.stored("T")] == [b"first", b"x", b"last"]
    wire = next(wire for wire in cluster.wires if wire.address == broker.address)
    assert wire.sent.count(Kind.ONEWAY) == 1


@pytest.mark.feature("F165")
async def test_async_send_gives_a_future(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        futures = [await mq.send_async("T", b"%d" % n) for n in range(10)]
        results = await asyncio.gather(*futures)
    assert len(broker.stored("T")) == len(results) == 10


# -- several --------------------------------------------------------------------------------------


async def test_many_messages_of_many_topics(cluster, client):
    broker = cluster.broker()
    messages = [Message("TU"[n % 2], b"%d" % n, keys=(f"k{n}",)) for n in range(30)]
    async with client() as mq:
        results = await mq.send_many(messages)
        more = await mq.send_many("T", ["a", "b"], tag="x")
        assert await mq.send_many([]) == []
    assert [result.queue.topic for result in results] == [message.topic for message in messages]
    stored = {one.message_id: one for one in broker.stored("T") + broker.stored("U")}
    assert [stored[result.message_id].body for result in results] == [
        message.body for message in messages
    ]
    assert [stored[result.message_id].body for result in more] == [b"a", b"b"]


async def test_more_than_one_frame_of_messages(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        results = await mq.send_many("T", [b"x"] * 5_000)
    assert len(results) == len(broker.stored("T")) == 5_000
    assert max(len(frame.sizes) // 4 for frame in broker.frames) <= 4_096


async def test_some_fail(cluster, client):
    broker = cluster.broker()
    cluster.topics.update(T=(1, 1), Bad=(1, 1))

    def refuse(request):
        answer = broker.on_SendRecords(None, 0, request, _body(broker, request))
        codes = [13 if lane.topic == "Bad" else 0 for lane in request.lanes]
        header = answer.header
        answer.header = type(header)(
            lane_codes=codes,
            lane_remarks=["no" if code else "" for code in codes],
            lane_offsets=header.lane_offsets,
            runs=header.runs,
        )
        return answer

    broker.intercept = on_send(refuse)
    async with client() as mq:
        with pytest.raises(SomeNotSent) as failure:
            await mq.send_many([Message("T", b"1"), Message("Bad", b"2"), Message("T", b"3")])
    first, second, third = failure.value.outcomes
    assert isinstance(second, MessageIllegal)
    assert (first.offset, third.offset) == (0, 1)


def _body(broker, request):
    """The body of the frame being answered; the fake keeps no copy, so drafts are made anew."""
    import struct

    from kourou.protocol.record import encode_draft, encode_host

    sizes = struct.unpack(f"<{len(request.sizes) // 4}I", request.sizes)
    lanes = struct.unpack(f"<{len(sizes)}H", request.lane_of)
    parts = []
    for size, number in zip(sizes, lanes, strict=True):
        lane = request.lanes[number]
        empty = encode_draft(
            topic=lane.topic.encode(),
            queue_id=lane.queue_id,
            body=b"",
            properties=b"",
            born_timestamp=1,
            born_host=encode_host(broker.host),
        )
        parts.append(
            encode_draft(
                topic=lane.topic.encode(),
                queue_id=lane.queue_id,
                body=bytes(size - len(empty)),
                properties=b"",
                born_timestamp=1,
                born_host=encode_host(broker.host),
            )
        )
    return b"".join(parts)


@pytest.mark.feature("F175")
async def test_a_batch_is_one_request_to_one_queue(cluster, client):
    broker = cluster.broker()
    cluster.topics["T"] = (4, 4)
    async with client() as mq:
        await mq.send("T", b"")
        before = len(broker.frames)
        results = await mq.send_batch("T", [b"1", Message("T", b"2", tag="x"), "3"], keys="k")
    assert len(broker.frames) == before + 1
    assert len({result.queue for result in results}) == 1
    first = results[0].offset
    assert [result.offset for result in results] == [first, first + 1, first + 2]


@pytest.mark.feature("F175")
async def test_limits_of_a_batch(cluster, client):
    cluster.broker()
    async with client() as mq:
        with pytest.raises(MessageIllegal, match="4097 messages"):
            await mq.send_batch("T", [b""] * 4097)
        incompressible = __import__("random").Random(1).randbytes(1_500_000)
        with pytest.raises(MessageIllegal, match="bytes"):
            await mq.send_batch("T", [incompressible] * 3)
        with pytest.raises(BadRequest, match="topic U"):
            await mq.send_batch("T", [Message("U", b"")])
        assert await mq.send_batch("T", []) == []


# -- failures and retries -------------------------------------------------------------------------


@pytest.mark.feature("F168", "F176")
@pytest.mark.parametrize(
    "code", [1, 14, 16, 17, 204, 205, Code.SYSTEM_BUSY, Code.DISK_FULL, Code.STORE_FAULTED]
)
async def test_a_broker_that_does_not_take_it_is_left_for_another(cluster, client, fakes, code):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (2, 2)
    bad.intercept = on_send(fakes.Answer(code, remark="not now"))
    async with client() as mq:
        results = [await mq.send("T", b"x") for _ in range(4)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert len(good.stored("T")) == 4
    assert 2 in {frame.attempt for frame in good.frames}


@pytest.mark.feature("F168")
async def test_three_attempts_and_no_more(cluster, client, fakes):
    broker = cluster.broker()
    cluster.topics["T"] = (2, 2)
    seen = []
    broker.intercept = on_send(
        lambda request: seen.append(request.attempt) or fakes.Answer(Code.DISK_FULL, remark="full")
    )
    async with client() as mq:
        with pytest.raises(DiskFull):
            await mq.send("T", b"x")
    assert seen == [1, 2, 3]


@pytest.mark.feature("F168")
@pytest.mark.parametrize("code", [13, 3, 23])
async def test_what_the_sender_must_change_is_not_tried_again(cluster, client, fakes, code):
    broker = cluster.broker()
    broker.intercept = on_send(fakes.Answer(code, remark="no"))
    async with client() as mq:
        with pytest.raises(Rejected):
            await mq.send("T", b"x")
    assert len([one for one in broker.seen if isinstance(one, SendRecords)]) == 1


@pytest.mark.feature("F168", "F230")
async def test_a_timeout_is_not_tried_again(cluster, client, fakes):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (1, 1)
    bad.intercept = on_send(fakes.Silence)
    async with client() as mq:
        outcomes = await asyncio.gather(
            *(mq.send("T", b"x") for _ in range(2)), return_exceptions=True
        )
    assert sorted(type(one).__name__ for one in outcomes) == ["SendResult", "TimedOut"]
    assert len(good.stored("T")) == 1


@pytest.mark.feature("F176", "F230")
async def test_after_a_lost_connection_the_same_message_is_sent_again(cluster, client, fakes):
    broker = cluster.broker()
    cluster.topics["T"] = (1, 1)
    frames = []

    def lose_the_first(request):
        frames.append(request)
        if len(frames) == 1:
            raise fakes.Cut
        return None

    broker.intercept = on_send(lose_the_first)
    async with client() as mq:
        result = await mq.send("T", b"x")
    assert [frame.attempt for frame in frames] == [1, 2]
    assert [stored.message_id for stored in broker.stored("T")] == [result.message_id]


async def test_a_message_that_moves_carries_its_new_queue(cluster, client, fakes):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (1, 3)
    bad.intercept = on_send(fakes.Answer(14))
    async with client() as mq:
        results = [await mq.send("T", b"x") for _ in range(9)]
    assert {one.queue_id for one in good.stored("T")} == {one.queue.queue_id for one in results}
    for number in range(3):
        assert all(one.queue_id == number for one in good.stored("T", number))


async def test_a_pinned_message_has_one_attempt(cluster, client, fakes):
    broker = cluster.broker()
    broker.intercept = on_send(fakes.Answer(14, remark="later"))
    async with client() as mq:
        with pytest.raises(Unavailable):
            await mq.send("T", b"x", order_key="k")
    assert len([one for one in broker.seen if isinstance(one, SendRecords)]) == 1


async def test_a_batch_moves_as_a_whole(cluster, client, fakes):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (2, 2)
    bad.intercept = on_send(fakes.Answer(14))
    async with client() as mq:
        for _ in range(4):
            results = await mq.send_batch("T", [b"1", b"2", b"3"])
            assert len({result.queue for result in results}) == 1
    assert not bad.stored("T")
    assert {len(frame.sizes) // 4 for frame in good.frames} == {3}


@pytest.mark.feature("F169", "F295", "F167", "F184")
@pytest.mark.parametrize("resend", [False, True])
async def test_stored_but_not_yet_safe(cluster, client, fakes, resend):
    unsafe, safe = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (1, 1)

    def warn(request):
        answer = fakes.Answer(Code.FLUSH_DISK_TIMEOUT)
        answer.header = SendRecordsAnswer
        return answer

    from kourou.protocol.messages.sending import SendRecordsResponse

    SendRecordsAnswer = SendRecordsResponse(
        lane_codes=[0], lane_remarks=[""], lane_offsets=[7], runs=[(0, 70)]
    )
    unsafe.intercept = on_send(warn)
    async with client(retry_another_broker_when_not_store_ok=resend) as mq:
        results = [await mq.send("T", b"x") for _ in range(2)]
    statuses = {result.status for result in results}
    if resend:
        assert statuses == {SendStatus.SEND_OK}
        assert len(safe.stored("T")) == 2
    else:
        assert statuses == {SendStatus.SEND_OK, SendStatus.FLUSH_DISK_TIMEOUT}
        assert len(safe.stored("T")) == 1


async def test_slow_or_failing_brokers_are_avoided_for_a_while(cluster, client, fakes):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (2, 2)
    bad.intercept = on_send(fakes.Answer(14))
    async with client(send_latency_fault_enable=True) as mq:
        for _ in range(20):
            await mq.send("T", b"x")
    assert len([one for one in bad.seen if isinstance(one, SendRecords)]) == 1
    assert len(good.stored("T")) == 20


async def test_a_broker_that_is_gone(cluster, client):
    cluster.broker("broker-a")
    good = cluster.broker("broker-b")
    cluster.topics["T"] = (2, 2)
    cluster.down.add("broker-a:20911")
    async with client() as mq:
        for _ in range(4):
            await mq.send("T", b"x")
    assert len(good.stored("T")) == 4


async def test_no_queue_takes_writes(cluster, client):
    cluster.broker()
    cluster.topics["T"] = (2, 2)
    cluster.perms["T"] = 4
    async with client() as mq:
        with pytest.raises(Unavailable, match="no broker takes writes"):
            await mq.send("T", b"x")


# -- checks before anything travels ---------------------------------------------------------------


async def test_topics_of_the_brokers_own(cluster, client):
    cluster.broker()
    async with client() as mq:
        with pytest.raises(NoPermission):
            await mq.send("SCHEDULE_TOPIC_XXXX", b"")
        with pytest.raises(BadRequest):
            await mq.send("no such/topic", b"")


async def test_delays_are_refused(cluster, client):
    cluster.broker()
    async with client() as mq:
        with pytest.raises(BadRequest, match="delay"):
            await mq.send("T", b"", delay_level=3)
        with pytest.raises(BadRequest, match="delay"):
            await mq.send_many([Message("T", b"", delay_level=1)])


@pytest.mark.feature("F173")
async def test_wait_false_asks_for_an_early_answer(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        await mq.send("T", b"", wait_store_ok=False)
        await mq.send("T", b"")
    assert [frame.wait for frame in broker.frames] == [False, True]
    assert "WAIT" not in broker.stored("T")[0].properties


async def test_a_timeout_of_its_own(cluster, client):
    cluster.broker()
    async with client() as mq:
        await mq.send("T", b"", timeout_ms=50)
        with pytest.raises(BadRequest):
            await mq.send("T", b"", timeout_ms=0)


# -- life -----------------------------------------------------------------------------------------


async def test_a_closed_client_says_so(cluster, client):
    mq = client()
    with pytest.raises(ClientClosed):
        await mq.send("T", b"")
    async with mq:
        pass
    with pytest.raises(ClientClosed):
        await mq.send("T", b"")


async def test_closing_waits_for_outcomes(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        await mq.send("T", b"first")
        futures = [await mq.send_async("T", b"x") for _ in range(5)]
    assert len(broker.stored("T")) == 6
    assert all(future.result().status is SendStatus.SEND_OK for future in futures)


@pytest.mark.feature("F005", "F006")
async def test_a_producer_joins_its_group_and_leaves_it(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        await mq.send("T", b"")
        await mq._client.io.run(mq._client.session.heartbeats.beat())
        assert broker.producers == {"p"}
        identity = mq.client_id
    assert (identity, "p") in broker.left


@pytest.mark.feature("F177")
async def test_another_producer_beside_the_clients_own(cluster, client):
    broker = cluster.broker()
    async with client() as mq, mq.producer(ProducerSettings(producer_group="other")) as other:
        await other.send("T", b"")
        await mq.send("T", b"")
    assert [frame.producer_group for frame in broker.frames] == ["other", "p"]


async def test_a_full_window_makes_senders_wait(cluster, client, fakes):
    broker = cluster.broker()
    cluster.topics["T"] = (1, 1)
    async with client(unsent_count_max=3) as mq:
        await mq.send("T", b"")
        results = await asyncio.gather(*(mq.send("T", b"%d" % n) for n in range(20)))
    assert len(results) == 20
    assert max(len(frame.sizes) // 4 for frame in broker.frames) <= 3


async def test_a_cancelled_send_does_not_disturb_the_others(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        await mq.send("T", b"")
        tasks = [asyncio.ensure_future(mq.send("T", b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert len(broker.stored("T")) == 4


@pytest.mark.feature("F368")
async def test_every_outcome_is_logged_with_its_keys(cluster, client, fakes, caplog):
    broker = cluster.broker()
    caplog.set_level(logging.DEBUG, "kourou.client.send")
    async with client() as mq:
        await mq.send("T", b"", keys="order-1")
        broker.intercept = on_send(fakes.Answer(13, remark="too long"))
        with pytest.raises(MessageIllegal):
            await mq.send("T", b"", keys="order-2")
    text = caplog.text
    assert "keys 'order-1': SEND_OK" in text
    assert "keys 'order-2'" in text
    assert "too long" in text


def test_unknown_outcomes_are_called_so():
    assert issubclass(TimedOut, UnknownOutcome)
