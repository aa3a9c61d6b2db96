"""What a client's spans say, and what its messages take along."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from kourou import Client, ClientSettings, ConsumerSettings, Filter, Message
from kourou.client.tracing.spans import client_tracing
from kourou.errors import Code, ConfigError, FilterFailed, MessageIllegal
from kourou.model.filter import FilterAction
from kourou.model.message import PullStatus
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.sends import SendRecords
from kourou.sync import Client as BlockingClient
from kourou.telemetry.otlp_receiver import OtlpReceiver, SeenSpan
from kourou.telemetry.tracing import current_context
from kourou.telemetry.tracing_context import context_of, traceparent_of
from kourou_rigs.wire_faults import Answer, Cut

NAMESRV = "127.0.0.1:9876"
ABOVE = bytes(range(1, 25)) + b"\x01"
UNSAMPLED = ABOVE[:24] + b"\x00"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(autouse=True)
def no_standard_variables(monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def client(cluster, broker, collector):
    """Makes clients that trace to the collector; what they say is there once they are closed."""

    def make(kind=Client, ratio: float = 1.0, **consumer):
        return kind(
            NAMESRV,
            settings=ClientSettings(
                trace_otlp_endpoint=collector.endpoint, trace_sample_ratio=ratio
            ),
            consumer=ConsumerSettings(consumer_group="g", consume_from_where=FIRST, **consumer),
            dial=cluster.dial,
        )

    return make


def named(collector: OtlpReceiver, name: str) -> list[SeenSpan]:
    return [span for span in collector.spans if span.name == name]


async def test_a_send_is_a_span_and_its_message_takes_the_context_along(client, broker, collector):
    async with client() as mq:
        result = await mq.send("T", b"x", tag="paid", keys=["a", "b"], properties={"mine": "1"})
    (span,) = named(collector, "send T")
    (stored,) = broker.stored("T")
    text = f"00-{span.trace_id}-{span.span_id}-"
    assert stored.properties["traceparent"].startswith(text)
    assert stored.properties["TRACE_CONTEXT"] == stored.properties["traceparent"]
    assert stored.properties["mine"] == "1"
    assert (span.service, span.kind, span.parent_id, span.failed) == (
        "kourou-client",
        "PRODUCER",
        "",
        False,
    )
    assert span.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.rocketmq.namespace": "",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": str(result.queue.queue_id),
        "messaging.client.id": mq_id(span),
        "messaging.message.id": result.message_id,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": "a b",
        "server.address": broker.address.rpartition(":")[0],
        "server.port": int(broker.address.rpartition(":")[2]),
        "kourou.queue.offset": result.offset,
    }


def mq_id(span: SeenSpan) -> str:
    assert "@" in span.attributes["messaging.client.id"]
    return span.attributes["messaging.client.id"]


@pytest.mark.parametrize("send", ["send_many", "send_batch"])
async def test_the_frame_names_the_first_trace_and_links_the_others(
    client, broker, collector, send
):
    async with client() as mq:
        results = await getattr(mq, send)("T", [b"1", b"2", b"3"])
    (request,) = broker.requests(SendRecords)
    spans = {span.span_id for span in named(collector, "send T")}
    told = {
        (span.attributes["messaging.message.id"], span.attributes["kourou.queue.offset"])
        for span in named(collector, "send T")
    }
    assert told == {(result.message_id, result.offset) for result in results}
    contexts = {stored.properties["traceparent"][36:52] for stored in broker.stored("T")}
    assert contexts == spans
    others = [request.contexts[at : at + 25] for at in range(0, len(request.contexts), 25)]
    assert len(spans) == 3
    assert len(others) == 2
    assert {context[16:24].hex() for context in others} < spans


@pytest.mark.parametrize("name", ["traceparent", "TRACE_CONTEXT"])
async def test_a_context_of_the_application_is_not_overwritten(client, broker, collector, name):
    async with client() as mq:
        await mq.send("T", b"x", properties={name: traceparent_of(ABOVE)})
    (span,) = named(collector, "send T")
    (stored,) = broker.stored("T")
    assert stored.properties[name] == traceparent_of(ABOVE)
    assert not {"traceparent", "TRACE_CONTEXT"} - {name} & stored.properties.keys()
    assert (span.trace_id, span.parent_id) == (ABOVE[:16].hex(), ABOVE[16:24].hex())


async def test_a_send_below_a_span_of_the_application(client, broker, collector):
    async with client(ratio=0.0) as mq:
        with current_context(ABOVE):
            await mq.send("T", b"x")
        with current_context(UNSAMPLED):
            await mq.send("T", b"x")
        await mq.send("T", b"x")
    (span,) = named(collector, "send T")
    assert span.parent_id == ABOVE[16:24].hex()
    found = {stored.properties.get("traceparent") for stored in broker.stored("T")}
    # The decision not to trace is handed on; where nobody decided, nothing is said.
    assert found >= {traceparent_of(UNSAMPLED), None}
    assert len(found) == 3


def test_a_send_of_a_thread_below_a_span_of_the_application(client, broker, collector):
    with client(BlockingClient) as mq, current_context(ABOVE):
        mq.send("T", b"x")
        mq.send_many([Message("T", b"y")])
    assert [span.parent_id for span in named(collector, "send T")] == [ABOVE[16:24].hex()] * 2


async def test_what_is_refused_before_it_travels_was_no_send(client, broker, collector):
    async with client() as mq:
        await mq.send("T", b"x")
        with pytest.raises(MessageIllegal):
            await mq.send("T", b"x", properties={"a": ""})
        await mq.send_oneway("T", b"x")
    spans = named(collector, "send T")
    assert [span.failed for span in spans] == [False, False]


async def test_refused_by_the_broker(client, broker, collector):
    broker.faults[SendRecords] = [Answer(Code.MESSAGE_ILLEGAL, remark="no")]
    async with client() as mq:
        with pytest.raises(MessageIllegal):
            await mq.send("T", b"x")
    (span,) = named(collector, "send T")
    assert (span.failed, span.attributes["error.type"]) == (True, "MessageIllegal")


async def test_a_handler_runs_below_its_messages_span(client, broker, collector):
    done, inside = asyncio.Event(), []

    async def handle(message) -> None:
        inside.append(trace.get_current_span().get_span_context())
        done.set()

    async with client() as mq:
        await mq.send("T", b"x")
        async with mq.listen("T", handle):
            await done.wait()
    (send,), (process,) = named(collector, "send T"), named(collector, "process T")
    assert (process.kind, process.trace_id, process.parent_id, process.links) == (
        "CONSUMER",
        send.trace_id,
        send.span_id,
        (send.span_id,),
    )
    assert process.attributes["messaging.consumer.group.name"] == "g"
    assert process.attributes["messaging.message.id"] == send.attributes["messaging.message.id"]
    assert f"{inside[0].span_id:016x}" == process.span_id
    receive = next(span for span in named(collector, "receive T") if span.links)
    assert (receive.kind, receive.parent_id, receive.links) == ("CLIENT", "", (send.span_id,))
    assert receive.attributes["messaging.batch.message_count"] == 1


async def test_a_batch_handler_has_links_only(client, broker, collector):
    done = asyncio.Event()
    queue = MessageQueue("T", broker.name, 0)

    async def handle(messages) -> None:
        assert len(messages) == 2
        done.set()

    async with client() as mq:
        for _ in range(2):
            await mq.send("T", b"x", queue=queue)
        async with mq.listen("T", handle, batch=True):
            await done.wait()
    (process,) = named(collector, "process T")
    assert process.parent_id == ""
    assert set(process.links) == {span.span_id for span in named(collector, "send T")}
    assert process.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in process.attributes


def test_a_plain_handler_that_fails_and_is_called_again(client, broker, collector):
    done, calls = threading.Event(), []

    def handle(message) -> None:
        calls.append(message.attempt)
        if len(calls) == 1:
            raise ValueError("not yet")
        done.set()

    with client(BlockingClient, local_redelivery_delay_ms=10) as mq:
        mq.send("T", b"x")
        with mq.listen("T", handle):
            done.wait()
    failed, good = named(collector, "process T")
    assert (failed.failed, failed.attributes["error.type"]) == (True, "ValueError")
    assert (good.failed, good.attributes["kourou.delivery.attempt"]) == (False, 2)


async def test_an_iteration_is_processing_until_its_acknowledgement(client, broker, collector):
    async with client() as mq:
        await mq.send("T", b"x")
        await mq.send("T", b"y")
        async with mq.subscribe("T") as messages:
            stream = aiter(messages)
            (await anext(stream)).ack()
            (await anext(stream)).retry(KeyError("k"))
    good, bad = sorted(named(collector, "process T"), key=lambda span: span.failed)
    assert (good.failed, bad.failed, bad.attributes["error.type"]) == (False, True, "KeyError")
    sends = {span.span_id for span in named(collector, "send T")}
    assert {good.parent_id, bad.parent_id} == sends


def test_an_iteration_of_a_thread(client, broker, collector):
    with client(BlockingClient) as mq:
        mq.send("T", b"x")
        with mq.subscribe("T") as messages:
            next(iter(messages)).ack()
    assert len(named(collector, "process T")) == 1


async def test_messages_whose_producer_decided_against_it_are_not_traced(client, broker, collector):
    done, inside = asyncio.Event(), []

    async def handle(message) -> None:
        inside.append(trace.get_current_span().get_span_context())
        done.set()

    async with client(ratio=0.0) as mq:
        with current_context(UNSAMPLED):
            await mq.send("T", b"x")
        async with mq.listen("T", handle):
            await done.wait()
    assert not collector.spans
    # The application's own spans below it are not sampled either.
    assert (inside[0].trace_id, inside[0].trace_flags.sampled) == (
        int.from_bytes(UNSAMPLED[:16], "big"),
        False,
    )


async def test_what_was_current_at_the_start_of_a_consumer_is_not_above_its_pulls(
    client, broker, collector
):
    done = asyncio.Event()

    async def handle(message) -> None:
        done.set()

    async with client() as mq:
        with current_context(ABOVE):
            consumer = await mq.listen("T", handle).start()
        await mq.send("T", b"x")
        await done.wait()
        await consumer.close()
    assert named(collector, "receive T")
    assert not [span for span in named(collector, "receive T") if span.parent_id]


async def test_a_pull_of_the_application_is_below_its_span_and_may_fail(client, broker, collector):
    async with client(ratio=0.0) as mq:
        consumer = await mq.pull_consumer("p")
        queue = MessageQueue("T", broker.name, 0)
        with current_context(ABOVE):
            assert (await consumer.pull(queue, 0)).status is not PullStatus.FOUND
            broker.faults[PullMessage] = [Cut]
            with pytest.raises(Exception, match="connection"):
                await consumer.pull(queue, 0)
        await consumer.pull(queue, 0)
    good, bad = named(collector, "receive T")
    assert good.parent_id == bad.parent_id == ABOVE[16:24].hex()
    assert (good.failed, bad.failed) == (False, True)


async def test_a_pull_through_a_filter_says_which_and_in_which_version(
    cluster, client, broker, collector
):
    server = cluster.filter_server(broker)
    late = Filter("def match(message, context):\n    return True\n", name="late")
    async with client() as mq:
        consumer = await mq.pull_consumer("p")
        queue = MessageQueue("T", broker.name, 0)
        await consumer.pull(queue, 0, expression=late)
        broker.change_filter("late", FilterAction.DISABLE, group="p")
        with pytest.raises(FilterFailed):
            await consumer.pull(queue, 0, expression=late)
        await consumer.pull(queue, 0)
    judged, failed, plain = named(collector, "receive T")
    assert judged.attributes["kourou.filter.name"] == "late"
    assert int(judged.attributes["kourou.filter.version"]) == 1
    assert failed.attributes["kourou.filter.name"] == "late"
    assert "kourou.filter.version" not in failed.attributes
    assert "kourou.filter.name" not in plain.attributes
    assert len(server.seen) == 2


async def test_off_leaves_no_mark_on_messages(cluster, broker, producing):
    async with producing() as mq:
        await mq.send("T", b"x")
        assert mq._client.tracing is None
    (stored,) = broker.stored("T")
    assert stored.properties.keys() == {"UNIQ_KEY", "CLUSTER"}
    assert broker.frames[0].contexts == b""


def test_when_a_client_traces(monkeypatch, collector, caplog):
    assert client_tracing(ClientSettings(), {}) is None
    here = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    assert client_tracing(ClientSettings(tracing=False), here) is None
    found = client_tracing(ClientSettings(trace_otlp_endpoint=collector.endpoint), {})
    assert found is not None
    found.close()
    found.close()
    grpc = {**here, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert client_tracing(ClientSettings(), grpc) is None  # it may be meant for others
    assert "tracing is disabled for this client:" in caplog.text
    with pytest.raises(ConfigError, match="grpc"):
        client_tracing(ClientSettings(trace_otlp_endpoint=collector.endpoint), grpc)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(shutdown_on_exit=False))
    own = client_tracing(ClientSettings(), {})
    assert own is not None
    own.close()


async def test_a_message_tells_the_trace_it_belongs_to(client, broker, collector):
    async with client() as mq:
        result = await mq.send("T", b"x")
        consumer = await mq.pull_consumer("p")
        (message,) = (await consumer.pull(result.queue, 0)).messages
    (span,) = named(collector, "send T")
    context = context_of(message.traceparent or "")
    assert context is not None
    assert context[16:24].hex() == span.span_id
