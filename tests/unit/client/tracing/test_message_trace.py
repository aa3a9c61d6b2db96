"""Message traces: written in the background, never in the way of what they tell of."""

from __future__ import annotations

import pytest

from kourou import Client, ClientSettings, ConsumerSettings, Message, ProducerSettings
from kourou.client.consumer.outcomes import ConsumeResult
from kourou.client.tracing.message_trace import TraceWriter, code_of, messages_of
from kourou.errors import Code, KourouError
from kourou.model.limits import TRACE_MESSAGE_BYTES_MAX
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    ContextCode,
    Published,
    TraceKind,
    decode_trace,
)
from kourou.sync import Client as BlockingClient
from kourou_rigs.wire_faults import Answer, always

TRACES = "RMQ_SYS_TRACE_TOPIC"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def traced(cluster, broker, tools):
    """Makes clients whose producers and consumers trace."""
    cluster.topics[TRACES] = (1, 1)

    def make(kind=Client, *, topic: str = TRACES, producing=True, **consumer):
        return kind(
            tools.NAMESRV,
            settings=ClientSettings(log_messages=False),
            producer=ProducerSettings(
                producer_group="p", message_trace=producing, message_trace_topic=topic
            ),
            consumer=ConsumerSettings(
                consumer_group="g",
                message_trace=True,
                message_trace_topic=topic,
                consume_from_where=FIRST,
                **consumer,
            ),
            dial=cluster.dial,
        )

    return make


def records(broker, topic=TRACES):
    """Everything that was written, in order."""
    return [record for message in broker.stored(topic) for record in decode_trace(message.body)]


async def test_a_send_leaves_its_trace(traced, broker) -> None:
    async with traced() as mq:
        sent = await mq.send("T", b"hello", tag="t", keys=["k1", "k2"])
    (message,) = broker.stored(TRACES)
    assert message.keys == (sent.message_id, "k1", "k2")
    (record,) = decode_trace(message.body)
    assert isinstance(record, Published)
    assert (record.group, record.topic, record.region) == ("p", "T", "DefaultRegion")
    assert (record.message_id, record.tag, record.keys) == (sent.message_id, "t", "k1 k2")
    assert record.offset_message_id == sent.offset_message_id
    assert (record.body_length, record.kind, record.success) == (5, TraceKind.NORMAL, True)
    assert record.store_host.startswith("broker-a:")
    stored = broker.stored("T")[0]
    assert record.timestamp_ms == stored.born_timestamp


async def test_each_message_of_a_batch_has_a_record(traced, broker) -> None:
    async with traced() as mq:
        sent = await mq.send_batch("T", [b"1", Message("T", b"22", keys=("k",))])
    found = {(one.message_id, one.keys, one.body_length, one.success) for one in records(broker)}
    assert found == {(sent[0].message_id, "", 1, True), (sent[1].message_id, "k", 2, True)}
    places = {one.offset_message_id for one in records(broker)}
    assert places == {result.offset_message_id for result in sent}


async def test_a_failed_send_is_traced_as_such(traced, broker) -> None:
    def refuse(request):
        named = [target.topic for target in request.targets]
        return Answer(Code.MESSAGE_ILLEGAL, remark="no") if named == ["T"] else None

    broker.faults[SendRecords] = always(refuse)
    async with traced() as mq:
        with pytest.raises(KourouError, match="no"):
            await mq.send("T", b"hello")
        await mq.send_oneway("T", b"unheard of")
    (record,) = records(broker)
    assert (record.success, record.offset_message_id) == (False, "")


async def test_a_handler_leaves_two_records_for_each_message(traced, broker, tools) -> None:
    async with traced(producing=False) as mq:
        inbox = tools.Inbox(1)
        async with mq.listen("T", inbox.handle):
            sent = await mq.send("T", b"hello", keys="k")
            await inbox.full.wait()
    before, after = records(broker)
    assert isinstance(before, ConsumeStarted)
    assert isinstance(after, Consumed)
    assert (before.group, before.message_id, before.keys) == ("g", sent.message_id, "k")
    assert before.request_id == after.request_id
    assert (after.group, after.message_id) == ("g", sent.message_id)
    assert (after.success, after.context_code) == (True, ContextCode.SUCCESS)


async def test_a_handler_that_raises(traced, broker, tools) -> None:
    async with traced(producing=False) as mq:
        inbox = tools.Inbox(1)

        async def handler(message):
            await inbox.handle(message)
            raise RuntimeError("not today")

        async with mq.listen("T", handler):
            await mq.send("T", b"hello")
            await inbox.full.wait()
    after = records(broker)[1]
    assert (after.success, after.context_code) == (False, ContextCode.EXCEPTION)


def test_threads_and_iterations_of_the_blocking_client(traced, broker) -> None:
    with traced(BlockingClient) as mq:
        sent = mq.send("T", b"hello")
        with mq.subscribe("T") as messages:
            for message in messages:
                message.ack()
                break
    kinds = [type(record) for record in records(broker)]
    assert sorted(kinds, key=lambda kind: kind.__name__) == [ConsumeStarted, Consumed, Published]
    assert {record.message_id for record in records(broker)} == {sent.message_id}


def test_plain_handlers(traced, broker, tools) -> None:
    gate = tools.Gate(1)
    with (
        traced(BlockingClient, producing=False) as mq,
        mq.listen("T", lambda _message: gate.count()),
    ):
        mq.send("T", b"hello")
        assert gate._passed.wait(60)
    assert [type(record) for record in records(broker)] == [ConsumeStarted, Consumed]


async def test_a_topic_of_ones_own_which_is_not_traced_itself(traced, cluster, broker) -> None:
    cluster.topics["OwnTraces"] = (1, 1)
    async with traced(topic="OwnTraces") as mq:
        await mq.send("T", b"hello")
        await mq.send("OwnTraces", b"a message of the application")
    assert [record.topic for record in records(broker, "OwnTraces")] == ["T"]
    assert records(broker) == []


async def test_without_the_setting_nothing_is_written(broker, producing) -> None:
    async with producing() as mq:
        await mq.send("T", b"hello")
        assert mq._core.sender.message_trace is None
        assert mq._client._trace_writers == {}
    assert TRACES not in {topic for topic, _ in broker.queues}


async def test_traces_that_cannot_be_written_fail_nothing(traced, broker, caplog) -> None:
    def refuse(request):
        named = [target.topic for target in request.targets]
        return Answer(Code.MESSAGE_ILLEGAL, remark="no traces") if named == [TRACES] else None

    broker.faults[SendRecords] = always(refuse)
    async with traced() as mq:
        sent = await mq.send("T", b"hello")
        assert sent.offset == 0
        (writer,) = mq._client._trace_writers.values()
    assert writer.dropped == 1
    assert "no traces" in caplog.text


async def test_what_waits_is_bounded(traced, broker, monkeypatch) -> None:
    monkeypatch.setattr("kourou.client.tracing.message_trace.TRACE_RECORDS_MAX", 3)
    async with traced() as mq:
        await mq.send_many("T", [b"%d" % n for n in range(10)])
        (writer,) = mq._client._trace_writers.values()
    assert len(records(broker)) == 3
    assert writer.dropped == 7


async def test_a_hundred_do_not_wait_for_the_clock(traced, broker, tools, monkeypatch) -> None:
    monkeypatch.setattr("kourou.client.tracing.message_trace.SOON_MS", 3_600_000)
    async with traced() as mq:
        await mq.send_many("T", [b"%d" % n for n in range(100)])
        await tools.until(broker, lambda: len(records(broker)) == 100)
        assert isinstance(next(iter(mq._client._trace_writers.values())), TraceWriter)


def published(number: int, keys: str = "") -> Published:
    return Published(
        1, "r", "g", "T", f"ID{number}", "", keys, "h:1", 1, 1, TraceKind.NORMAL, "", True
    )


def test_messages_stay_small_and_their_keys_too() -> None:
    wide = [published(number, "k" * 10_000) for number in range(30)]
    messages = messages_of(wide, TRACES)
    assert all(len(message.body) <= TRACE_MESSAGE_BYTES_MAX for message in messages)
    assert sum(len(decode_trace(message.body)) for message in messages) == 30
    many = [published(number, f"{number}-" + "x" * 500) for number in range(100)]
    messages = messages_of(many, TRACES)
    assert len(messages) > 1
    assert all(sum(map(len, message.keys)) <= 16_384 for message in messages)
    for message in messages:
        for record in decode_trace(message.body):
            assert record.message_id in message.keys
            assert record.keys in message.keys
    assert messages_of([], TRACES) == []


def test_what_results_mean() -> None:
    assert code_of(None) is ContextCode.SUCCESS
    assert code_of(ConsumeResult.CONSUME_SUCCESS) is ContextCode.SUCCESS
    assert code_of(ConsumeResult.RECONSUME_LATER) is ContextCode.FAILED
