"""Consumers whose filter runs at filter servers: what passes, who is asked, and failures."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kourou import Client, ConsumerSettings, Filter, PullConsumerSettings
from kourou.client.consumer.queue_consumption import FILTER_REASONS_SAID_MAX
from kourou.client.filters.pulls import UNSERVED
from kourou.client.filters.uploads import REFUSED
from kourou.errors import (
    Code,
    FilterFailed,
    NoPermission,
    Rejected,
    TimedOut,
    Unavailable,
    UnknownOutcome,
)
from kourou.model.filter import FilterAction, FilterFailure
from kourou.model.message import PullStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.filter_server import PutFilter
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.record.message_record import decode_record
from kourou_rigs.wire_faults import Answer, Cut, Silence, always

NAMESRV = "127.0.0.1:9876"
QUEUE = MessageQueue("T", "broker-a", 0)
PAUSE_MS = 20
STOPPING = Answer(Code.SERVICE_NOT_AVAILABLE, remark="stopping")


@Filter
def third(message, context):
    return int(message.body) % 3 == 0


def is_third(message) -> bool:
    """What the fake runs instead of the uploaded text."""
    return int(message.body) % 3 == 0


@pytest.fixture
def server(cluster, broker):
    server = cluster.filter_server(broker)
    server.passes = is_third
    return server


@pytest.fixture
async def pulls(cluster, broker, producing, tools):
    """A pull consumer of the group g, made late so that a test can prepare the cluster."""
    await tools.fill(producing, 20)
    async with Client(NAMESRV, dial=cluster.dial) as mq:

        async def make(**settings):
            settings.setdefault("consumer_group", "g")
            return await mq.pull_consumer(settings=PullConsumerSettings(**settings))

        yield make


# -- pull consumers -------------------------------------------------------------------------------


@pytest.mark.feature("F238", "F240", "F241", "F246")
async def test_a_pull_goes_to_the_filter_server_and_brings_what_passes(broker, server, pulls):
    consumer = await pulls()
    result = await consumer.pull(QUEUE, 0, expression=third)
    assert result.messages
    assert all(int(message.body) % 3 == 0 for message in result.messages)
    assert (result.status, result.next_offset) == (PullStatus.FOUND, 5), "over those that failed"
    assert broker.requests(PullMessage) == [], "never around the filter"
    asked = server.requests(PullMessage)[0]
    assert asked.sys_flag == PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION
    assert (asked.subscription, asked.expression_type, asked.consumer_group) == (
        "third",
        "TAG",
        "g",
    )
    assert not server.requests(HeartBeat)


@pytest.mark.feature("F240")
async def test_the_source_comes_once_before_the_first_pull(broker, server, pulls):
    consumer = await pulls()
    for _ in range(3):
        await consumer.pull(QUEUE, 0, expression=third)
    (put,) = broker.requests(PutFilter)
    assert (put.consumer_group, put.name, put.sha256) == ("g", "third", third.sha256)
    assert consumer._session.client_id in put.author
    assert [one.source for one in broker.filter("third").versions] == [third.source]


async def test_another_source_of_the_name_is_another_upload(broker, server, pulls):
    consumer = await pulls()
    await consumer.pull(QUEUE, 0, expression=third)
    other = Filter("def match(message, context):\n    return True\n", name="third", note="all")
    await consumer.pull(QUEUE, 0, expression=other)
    await consumer.pull(QUEUE, 0, expression=other)
    assert [put.note for put in broker.requests(PutFilter)] == ["", "all"]


async def test_one_that_is_stored_is_not_uploaded(broker, server, pulls):
    broker.put_filter(third)
    consumer = await pulls()
    assert (await consumer.pull(QUEUE, 0, expression=Filter.named("third"))).messages
    assert broker.requests(PutFilter) == []


async def test_without_a_filter_server_nothing_is_pulled(broker, pulls):
    consumer = await pulls()
    with pytest.raises(FilterFailed, match="broker-a has no filter server online") as failed:
        await consumer.pull(QUEUE, 0, expression=third)
    assert failed.value.kind == UNSERVED
    assert isinstance(failed.value, Unavailable)
    assert broker.requests(PullMessage) == []


@pytest.mark.feature("F243")
async def test_a_failing_filter_is_a_typed_error_and_the_offset_stays(broker, server, pulls):
    consumer = await pulls()
    await consumer.assign([QUEUE], expression=third)
    server.failure = FilterFailure.RAISED, "KeyError: 'delay' at line 3"
    for ask in (consumer.pull(QUEUE, 2, expression=third), consumer.poll(wait_ms=0)):
        with pytest.raises(FilterFailed, match="KeyError: 'delay' at line 3") as failed:
            await ask
        error = failed.value
        assert (error.kind, error.filter_version, error.wire_code) == (
            "raised",
            1,
            Code.FILTER_FAILED,
        )
        assert "consumption stops at offset" in error.hint
    assert await consumer.position(QUEUE) == 0
    server.failure = None
    assert [message.offset for message in await consumer.poll()] == [
        record.offset for record in map(decode_record, broker.queues["T", 0]) if is_third(record)
    ]


async def test_a_refused_upload_is_raised_with_the_brokers_words(broker, server, pulls):
    broker.faults[PutFilter] = always(Answer(Code.NO_PERMISSION, remark="uploads are off"))
    consumer = await pulls()
    with pytest.raises(NoPermission, match="uploads are off"):
        await consumer.assign([QUEUE], expression=third)
    with pytest.raises(FilterFailed, match="broker-a rejected filter third: uploads are off") as no:
        await consumer.pull(QUEUE, 0, expression=third)
    assert no.value.kind == REFUSED
    assert server.requests(PullMessage) == []


async def test_one_that_went_missing_is_uploaded_again(broker, server, pulls):
    consumer = await pulls()
    await consumer.pull(QUEUE, 0, expression=third)
    broker.change_filter("third", FilterAction.DELETE)
    assert (await consumer.pull(QUEUE, 0, expression=third)).messages
    assert len(broker.requests(PutFilter)) == 2
    with pytest.raises(FilterFailed, match="there is no filter other") as failed:
        await consumer.pull(QUEUE, 0, expression=Filter.named("other"))
    assert failed.value.kind == "missing"


# -- several filter servers -----------------------------------------------------------------------


@pytest.mark.feature("F239")
async def test_queues_are_spread_over_the_filter_servers(cluster, broker, server, pulls):
    second = cluster.filter_server(broker)
    second.passes = is_third
    consumer = await pulls()
    for _ in range(2):
        for number in range(4):
            await consumer.pull(MessageQueue("T", "broker-a", number), 0, expression=third)
    for one in (server, second):
        queues = [request.queue_id for request in one.requests(PullMessage)]
        assert (len(queues), len(set(queues))) == (4, 2), "a queue stays where it is"


@pytest.mark.parametrize("loss", [Cut, Silence, STOPPING, "down"])
async def test_another_one_takes_over(cluster, broker, server, pulls, loss):
    second = cluster.filter_server(broker)
    second.passes = is_third
    consumer = await pulls()
    await consumer.pull(QUEUE, 0, expression=third)
    first = server if server.requests(PullMessage) else second
    other = second if first is server else server
    if loss == "down":
        cluster.down.add(first.address)
    else:
        first.faults[PullMessage] = always(loss)
    if loss is Silence:
        with pytest.raises(TimedOut):
            await consumer.pull(QUEUE, 0, expression=third)
    result = await consumer.pull(QUEUE, 0, expression=third)
    assert [int(message.body) % 3 for message in result.messages] == [0] * len(result.messages)
    assert other.requests(PullMessage)
    asked = len(first.requests(PullMessage))
    await consumer.pull(QUEUE, 0, expression=third)
    assert len(first.requests(PullMessage)) == asked, "not asked again so soon"
    assert broker.requests(PullMessage) == []


async def test_if_all_are_lost_the_last_word_is_raised(cluster, broker, server, pulls):
    second = cluster.filter_server(broker)
    consumer = await pulls()
    for one in (server, second):
        one.faults[PullMessage] = always(STOPPING)
    with pytest.raises(Unavailable, match="stopping"):
        await consumer.pull(QUEUE, 0, expression=third)
    cluster.down |= {server.address, second.address}
    with pytest.raises(UnknownOutcome, match="is down"):
        await consumer.pull(QUEUE, 0, expression=third)
    assert broker.requests(PullMessage) == []


async def test_with_failover_fail_the_queue_waits_for_its_own(cluster, broker, server, pulls):
    second = cluster.filter_server(broker)
    consumer = await pulls(filter_failover="fail")
    await consumer.pull(QUEUE, 0, expression=third)
    first = server if server.requests(PullMessage) else second
    other = second if first is server else server
    cluster.down.add(first.address)
    for _ in range(2):
        with pytest.raises(UnknownOutcome, match="is down"):
            await consumer.pull(QUEUE, 0, expression=third)
    assert other.requests(PullMessage) == []
    cluster.down.clear()
    await consumer.pull(QUEUE, 0, expression=third)


async def test_the_suggested_member_is_kept_over_a_failure(broker, server, pulls):
    consumer = await pulls()
    place = PullResponse(suggest_which_broker_id=3, next_begin_offset=0, min_offset=0, max_offset=9)
    server.faults[PullMessage] = [Answer(Code.PULL_NOT_FOUND, place)]
    await consumer.pull(QUEUE, 0, expression=third)
    server.failure = (FilterFailure.DIED, "signal 11")
    with pytest.raises(FilterFailed):
        await consumer.pull(QUEUE, 0, expression=third)
    assert consumer._puller._suggested[QUEUE] == 3


# -- push consumers -------------------------------------------------------------------------------


@pytest.fixture
def listening(cluster):
    """Makes clients whose consumers of group g begin at the first message and try again soon."""

    def make(**settings) -> Client:
        settings.setdefault("pull_pause_ms_when_exception", PAUSE_MS)
        consumer = ConsumerSettings(
            consumer_group="g", consume_from_where="CONSUME_FROM_FIRST_OFFSET", **settings
        )
        return Client(NAMESRV, consumer=consumer, dial=cluster.dial)

    return make


async def test_a_filter_that_fails_holds_its_queues_and_says_why_once(
    broker, server, producing, listening, tools, caplog
):
    server.failure = FilterFailure.QUARANTINED, "three strikes"
    await tools.fill(producing, 20)
    inbox = tools.Inbox(7)
    with caplog.at_level(logging.INFO, "kourou.client.consume"):
        async with listening() as mq, mq.listen("T", inbox.handle, third) as listener:
            await tools.until(server, lambda: len(server.requests(PullMessage)) > 12)
            assert inbox.bodies == []
            assert {error.kind for error in listener.waiting.values()} == {"quarantined"}
            assert sorted(listener.waiting) == listener.assigned
            assert listener.counts.filter_failures >= 8
            properties = listener._started.running_info().properties
            assert properties["PROP_FILTER_WAITING_QUEUES"] == "4"
            assert "three strikes" in properties["PROP_FILTER_WAITS"]
            server.failure = None
            await asyncio.wait_for(inbox.full.wait(), 60)
            await tools.until(server, lambda: not listener.waiting)
    (said,) = [one.getMessage() for one in caplog.records if "stopped at" in one.getMessage()]
    assert "filter third failed (quarantined): three strikes" in said
    went_on = [m for m in map(logging.LogRecord.getMessage, caplog.records) if ": resumed at" in m]
    assert len(went_on) == 4
    assert not any("None" in message for message in went_on), "what has nothing to judge says none"
    assert sorted(map(int, inbox.bodies)) == list(range(0, 20, 3)), "nothing is lost"


async def test_reasons_that_are_remembered_have_a_limit(
    broker, server, producing, listening, tools
):
    numbers = iter(range(10_000))
    await tools.fill(producing, 4)

    def failing(_request):
        server.failure = FilterFailure.RAISED, f"reason {next(numbers)}"

    server.faults[PullMessage] = always(failing)
    handle = tools.Inbox(1).handle
    async with (
        listening(pull_pause_ms_when_exception=1) as mq,
        mq.listen("T", handle, third) as listener,
    ):
        await tools.until(broker, lambda: len(server.seen) > FILTER_REASONS_SAID_MAX + 40)
        assert 0 < len(listener._started._around.filters_said) <= FILTER_REASONS_SAID_MAX


async def test_a_broker_that_comes_later_gets_the_filter_first(
    cluster, broker, server, producing, listening, tools
):
    inbox = tools.Inbox(1)
    await tools.fill(producing, 1)
    async with listening() as mq, mq.listen("T", inbox.handle, third) as listener:
        await asyncio.wait_for(inbox.full.wait(), 60)
        other = cluster.broker("broker-b")
        beside = cluster.filter_server(other)
        await tools.refresh(mq)
        await tools.until(
            beside, lambda: beside.requests(PullMessage) and len(listener.assigned) == 8
        )
        assert [put.name for put in other.requests(PutFilter)] == ["third"]
        assert len(broker.requests(PutFilter)) == 1


@pytest.mark.parametrize(
    ("code", "kind"), [(Code.SYSTEM_ERROR, Rejected), (Code.NO_PERMISSION, NoPermission)]
)
async def test_a_refused_upload_ends_the_start(broker, server, listening, tools, code, kind):
    broker.faults[PutFilter] = always(Answer(code, remark="line 3: no"))
    async with listening() as mq:
        with pytest.raises(kind, match="line 3: no"):
            await mq.listen("T", tools.Inbox(1).handle, third).start()
        assert mq._client._consumers == []
        assert server.requests(PullMessage) == []
        broker.faults.clear()
        async with mq.listen("T", tools.Inbox(1).handle, third):
            pass


async def test_a_version_that_waits_for_an_operator_is_said(
    broker, server, producing, listening, tools, caplog
):
    broker.put_filter(third)
    broker.change_filter("third", FilterAction.DISABLE)
    await tools.fill(producing, 20)
    inbox = tools.Inbox(7)
    async with listening() as mq, mq.listen("T", inbox.handle, third) as listener:
        await tools.until(server, lambda: len(listener.waiting) == 4)
        assert {error.kind for error in listener.waiting.values()} == {"disabled"}
        (said,) = [one for one in caplog.records if "admin filter enable" in one.getMessage()]
        assert "as version 1, but no version is running, so consumption waits" in said.getMessage()
        broker.change_filter("third", FilterAction.ENABLE)
        await asyncio.wait_for(inbox.full.wait(), 60)


async def test_a_consumer_may_have_filters_of_several_kinds(cluster, server, listening, producing):
    cluster.topics["U"] = (1, 1)
    async with producing() as mq:
        await mq.send("T", b"6")
        await mq.send("U", b"3", tag="a")
    bodies = []
    done = asyncio.Event()

    async def handle(message):
        bodies.append((message.topic, message.body))
        if len(bodies) == 2:
            done.set()

    async with listening() as mq, mq.listen({"T": third, "U": "a"}, handle):
        await asyncio.wait_for(done.wait(), 60)
    assert sorted(bodies) == [("T", b"6"), ("U", b"3")]


async def test_what_failed_comes_again_without_the_filter(broker, server, producing, listening):
    """It has passed once; the retry topic is pulled from the broker itself."""
    async with producing() as mq:
        await mq.send("T", b"6", queue=QUEUE)
    attempts = asyncio.Queue()

    async def handle(message):
        await attempts.put(message.attempt)
        if message.attempt == 1:
            raise ValueError("not today")

    async with listening() as mq, mq.listen("T", handle, third):
        assert await asyncio.wait_for(attempts.get(), 60) == 1
        server.passes = lambda _message: False
        assert await asyncio.wait_for(attempts.get(), 60) == 2
    assert {request.topic for request in server.requests(PullMessage)} == {"T"}
