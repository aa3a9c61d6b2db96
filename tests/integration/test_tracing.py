"""One trace over producer, broker and consumer: processes of their own, spans over OTLP."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import urllib.request
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, ConsumerSettings, Message, ReceivedMessage
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.telemetry.otlp_receiver import OtlpReceiver, SeenSpan
from kourou.testing.cluster import Cluster

PRODUCER = """
import sys
from kourou.sync import Client

with Client(sys.argv[1], group="shop") as client:
    client.send("orders", b"A-1", tag="paid", keys="A-1")
"""

CONSUMER = """
import sys, threading
from kourou import ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client

done = threading.Event()
settings = ConsumerSettings(
    consumer_group="billing", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)
with Client(sys.argv[1], consumer=settings) as client:
    with client.listen("orders", lambda message: done.set()):
        done.wait()
"""


@pytest.fixture
def collector(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield receiver


def read_metrics(cluster: LocalCluster) -> bytes:
    with urllib.request.urlopen(f"{cluster.brokers[0].ready['admin']}/metrics") as page:
        return page.read()


async def create_topic(address: str) -> None:
    async with Client(address, settings=ClientSettings(tracing=False)) as client:
        await client.admin.topics.create("orders", queues=1)


def run(cluster: LocalCluster, name: str, script: str) -> None:
    child = cluster.children.start(
        name,
        [sys.executable, "-c", script, cluster.address],
        environment={"OTEL_SERVICE_NAME": name},
        says_ready=False,
    )
    assert child.wait_for_exit(60) == 0, child.log_tail(50)


def by_name(spans: list[SeenSpan], trace_id: str) -> dict[str, SeenSpan]:
    return {span.name: span for span in spans if span.trace_id == trace_id}


PARTS = {"send orders", "store orders", "append", "dispatch", "wait", "flush", "process orders"}


def test_one_trace_over_three_processes(tmp_path: Path, collector: OtlpReceiver) -> None:
    settings = ClusterSettings(broker={"flushDiskType": "SYNC_FLUSH"})
    with LocalCluster(tmp_path, settings) as cluster:
        # A send that creates its topic waits until the name server knows it.
        asyncio.run(create_topic(cluster.address))
        run(cluster, "shop-web", PRODUCER)
        run(cluster, "billing-worker", CONSUMER)

        def whole(spans) -> bool:
            sent = [span.trace_id for span in spans if span.name == "send orders"]
            return bool(sent) and by_name(spans, sent[0]).keys() >= PARTS

        spans = collector.wait_for(whole)
        told = cluster.brokers[0].ready["admin"]
        with urllib.request.urlopen(f"{told}/metrics") as page:
            metrics = page.read().decode()
    (send,) = [span for span in spans if span.name == "send orders"]
    trace = by_name(spans, send.trace_id)
    store, process = trace["store orders"], trace["process orders"]
    assert (send.service, send.kind, send.parent_id) == ("shop-web", "PRODUCER", "")
    assert (store.service, store.kind, store.parent_id) == (
        "kourou-broker",
        "SERVER",
        send.span_id,
    )
    for part in ("append", "dispatch", "wait", "flush"):
        assert (trace[part].service, trace[part].parent_id) == ("kourou-broker", store.span_id)
    assert (process.service, process.kind, process.parent_id, process.links) == (
        "billing-worker",
        "CONSUMER",
        send.span_id,
        (send.span_id,),
    )
    assert send.start_ns <= store.start_ns <= trace["append"].start_ns <= process.start_ns
    assert process.attributes["messaging.message.id"] == send.attributes["messaging.message.id"]
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert send.attributes["messaging.destination.name"] == "orders"
    # The consumer's pull is a trace of its own, linked to the message's.
    receive = next(span for span in spans if send.span_id in span.links and span is not process)
    assert (receive.service, receive.name, receive.kind) == (
        "billing-worker",
        "receive orders",
        "CLIENT",
    )
    pull = by_name(spans, receive.trace_id)["pull orders"]
    assert (pull.service, pull.parent_id) == ("kourou-broker", receive.span_id)
    assert "kourou_trace_spans_dropped_total{" in metrics


async def test_without_a_collector_nothing_is_traced(tmp_path: Path, monkeypatch) -> None:
    """No property, no thread, and OpenTelemetry is not even imported."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    script = """
import sys, threading
from kourou.sync import Client

with Client(sys.argv[1], group="g") as client:
    client.send("orders", b"1")
    with client.subscribe("orders") as orders:
        pass
    names = [thread.name for thread in threading.enumerate()]
assert not [name for name in names if "Otel" in name], names
assert "opentelemetry" not in sys.modules
"""
    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        run(cluster, "quiet", script)
        page = await asyncio.to_thread(read_metrics, cluster)
        assert b"kourou_trace_" not in page
        async with Client(cluster.address, settings=ClientSettings(tracing=False)) as client:
            (queue,) = {result.queue for result in await client.send_many("orders", [b"2"])}
            consumer = await client.pull_consumer("h")
            found = await consumer.pull(queue, 0)
        assert {name for one in found.messages for name in one.properties} <= {
            "UNIQ_KEY",
            "CLUSTER",
        }


def test_whatever_is_stored_again_stays_in_its_trace(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    """Delayed, failed and sent back, half and committed: copies of copies, and one trace each."""
    seen: queue.Queue[ReceivedMessage] = queue.Queue()

    def handler(message: ReceivedMessage) -> None:
        seen.put(message)
        if message.body == b"retried" and message.attempt == 1:
            raise ValueError("not yet")

    first = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with Cluster(tmp_path) as cluster, cluster.client("g", consumer=first) as mq:
        cluster.create_topic("orders", queues=1)
        mq.transaction_check("orders")(lambda half: True)
        mq.send_many([Message("orders", b"delayed", delay_level=1)])
        mq.send("orders", b"retried")
        mine = {"traceparent": "00-" + "1f" * 16 + "-" + "2e" * 8 + "-01"}
        mq.send("orders", b"mine", delay_level=1, properties=mine)
        with mq.transaction("orders", b"committed"):
            pass
        with mq.listen("orders", handler) as listener:
            came = [seen.get(timeout=60) for _ in range(2)]
            while not listener.counts.sent_back:
                cluster.clock.advance(0)
            cluster.clock.advance(11)
            came += [seen.get(timeout=60) for _ in range(3)]
    assert sorted(bytes(message.body) for message in came) == [
        b"committed",
        b"delayed",
        b"mine",
        b"retried",
        b"retried",
    ]
    sends = {span.attributes["messaging.message.id"]: span for span in named(collector, "send")}
    assert len(sends) == 4
    types = {
        bytes(m.body): sends[m.message_id].attributes["messaging.rocketmq.message.type"]
        for m in came
    }
    assert types == {
        b"committed": "transaction",
        b"delayed": "delay",
        b"mine": "delay",
        b"retried": "normal",
    }
    for message in came:
        sent = sends[message.message_id]
        if message.body == b"mine":
            assert sent.trace_id == "1f" * 16
            assert message.properties["traceparent"] == mine["traceparent"]
            assert "TRACE_CONTEXT" not in message.properties
        else:
            context = message.properties["traceparent"]
            assert context.startswith(f"00-{sent.trace_id}-{sent.span_id}-")
            assert message.properties["TRACE_CONTEXT"] == context
        processed = [
            span
            for span in named(collector, "process")
            if span.attributes["messaging.message.id"] == message.message_id
            and span.attributes.get("kourou.delivery.attempt", 1) == message.attempt
        ]
        assert [span.trace_id for span in processed] == [sent.trace_id]
        assert processed[0].failed is (message.body == b"retried" and message.attempt == 1)


def named(collector: OtlpReceiver, operation: str) -> list[SeenSpan]:
    return [span for span in collector.spans if span.name == f"{operation} orders"]
