"""Which spans a broker makes for a traced request, and when they end."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.broker.telemetry import spans as module
from kourou.broker.telemetry.spans import BrokerSpans
from kourou.engine.effects import Append
from kourou.errors import Code
from kourou.protocol.messages.pulls import GetMaxOffset, PullMessage, PullResponse
from kourou.protocol.messages.replication import ChunkAck, LogChunk
from kourou.protocol.messages.sends import SendMessage, SendRecords, SendRecordsResponse, Target
from kourou.protocol.wire.frames import NO_TRACE
from kourou.runtime import Peer, Received, Reply, ReplyTo
from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing import Tracing, pack
from kourou.telemetry.tracing_setup import SpanCounts

PEER = Peer(1, "local", ("127.0.0.1", 4))
TRACE = bytes(range(1, 25)) + b"\x01"
OTHER = bytes(range(2, 26)) + b"\x01"
UNSAMPLED = TRACE[:24] + b"\x00"
SEND = SendRecords(targets=[Target("T", 0)], sizes=b"\x01\0\0\0" * 3, producer_group="p")
PULL = PullMessage(
    consumer_group="g",
    topic="T",
    queue_id=2,
    queue_offset=7,
    max_msg_nums=1,
    sys_flag=0,
    suspend_timeout_millis=0,
    sub_version=0,
)


class Site:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.now_ns = 1_000
        tracing = Tracing(self.provider.get_tracer("t"), ratio=0.0, now_ns=self.tick)
        self.closed = 0
        self.spans = BrokerSpans(
            SimpleNamespace(tracing=tracing, counts=SpanCounts(9, 5, 3, 1), close=self.close)
        )

    def tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def close(self) -> None:
        self.closed += 1

    def arrive(self, request, *, trace=TRACE, number=1, peer=PEER, then=lambda _: None) -> ReplyTo:
        to = ReplyTo(peer, number, False, trace)
        self.spans.handle([Received(to, request, [], 0, 0, trace)], then)
        return to

    def append(self, to: ReplyTo, end: int = 100) -> None:
        effect = Append([(end - 10, b"0123456789")], [], end, to=to)
        self.spans.appended(effect, self.spans.context(to), self.tick())

    @property
    def done(self):
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.provider.shutdown()


def test_a_send_that_is_answered_at_once(site: Site) -> None:
    send = SendRecords(
        targets=[Target("T", 0)],
        sizes=b"\x01\0\0\0" * 3,
        producer_group="p",
        attempt=2,
        contexts=OTHER + UNSAMPLED,
    )

    def stored(received) -> None:
        to = received[0].to
        site.append(to)
        site.spans.answered(Reply(to))

    site.arrive(send, then=stored)
    assert site.done.keys() == {"store T", "append"}
    store, append = site.done["store T"], site.done["append"]
    assert pack(store.parent) == TRACE
    assert [pack(link.context) for link in store.links] == [OTHER]
    assert dict(store.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "store",
        "messaging.destination.name": "T",
        "messaging.batch.message_count": 3,
        "kourou.delivery.attempt": 2,
        "kourou.response.code": 0,
    }
    assert dict(append.attributes) == {"kourou.log.position": 90, "kourou.size_bytes": 10}
    assert append.parent.span_id == store.context.span_id
    assert store.start_time > 0
    assert append.start_time < append.end_time


def test_a_send_that_waits_for_the_disk(site: Site) -> None:
    to = site.arrive(SEND, then=lambda received: site.append(received[0].to))
    site.spans.dispatched(site.tick(), 0)
    site.spans.flushed(site.tick(), 100)
    site.spans.answered(Reply(to))
    assert site.done.keys() == {"store T", "append", "dispatch", "flush", "wait"}
    store = site.done["store T"].context.span_id
    assert {site.done[part].parent.span_id for part in site.done.keys() - {"store T"}} == {store}
    assert site.done["wait"].start_time < site.done["flush"].start_time


def test_dispatch_and_flush_may_come_after_the_answer_and_only_what_they_cover(site: Site) -> None:
    for number, end in ((1, 100), (2, 200)):
        site.spans.answered(
            Reply(
                site.arrive(
                    SEND, number=number, then=lambda all_, e=end: site.append(all_[0].to, e)
                )
            )
        )
    site.spans.dispatched(site.tick(), 10)
    assert "dispatch" not in site.done
    site.spans.flushed(site.tick(), 199)
    site.spans.dispatched(site.tick(), 0)
    names = [span.name for span in site.exporter.get_finished_spans()]
    assert (names.count("flush"), names.count("dispatch")) == (1, 2)
    site.spans.flushed(site.tick(), 200)
    site.spans.flushed(site.tick(), 200)
    assert [span.name for span in site.exporter.get_finished_spans()].count("flush") == 2


def test_a_pull_that_is_held(site: Site) -> None:
    to = site.arrive(PULL)
    header = PullResponse(
        suggest_which_broker_id=0, next_begin_offset=8, min_offset=0, max_offset=8
    )
    site.spans.answered(Reply(to, 0, "FOUND", header, (b"12345",)))
    assert site.done.keys() == {"pull T", "hold"}
    assert dict(site.done["pull T"].attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "pull",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "2",
        "messaging.consumer.group.name": "g",
        "kourou.queue.offset": 7,
        "kourou.size_bytes": 5,
        "kourou.response.code": 0,
    }


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        (Code.PULL_NOT_FOUND, ""),
        (Code.FLUSH_DISK_TIMEOUT, ""),
        (Code.NO_PERMISSION, "NO_PERMISSION"),
        (4711, "4711"),
    ],
)
def test_which_answers_are_errors(site: Site, code: int, failed: str) -> None:
    site.arrive(PULL, then=lambda received: site.spans.answered(Reply(received[0].to, code, "why")))
    span = site.done["pull T"]
    assert span.attributes.get("error.type", "") == failed
    assert (span.status.description or "") == ("why" if failed else "")


def test_a_refused_lane_is_an_error(site: Site) -> None:
    header = SendRecordsResponse(
        target_codes=[0, int(Code.NO_PERMISSION)],
        target_remarks=["", "no"],
        target_offsets=[1, -1],
        runs=[],
    )
    site.spans.answered(Reply(site.arrive(SEND), 0, "", header))
    assert site.done["store T"].attributes["error.type"] == "NO_PERMISSION"


def test_other_requests_have_their_names(site: Site) -> None:
    site.spans.answered(Reply(site.arrive(GetMaxOffset(topic="T", queue_id=0))))
    single = SendMessage(producer_group="p", topic="T", queue_id=0, born_timestamp=0)
    site.spans.answered(Reply(site.arrive(single)))
    assert site.done.keys() >= {"GetMaxOffset", "store T"}


@pytest.mark.parametrize("trace", [NO_TRACE, UNSAMPLED, b""])
def test_what_is_not_sampled_is_not_looked_at(site: Site, trace: bytes) -> None:
    to = site.arrive(SEND, trace=trace)
    assert site.spans.context(to) == b""
    site.spans.answered(Reply(to))
    site.spans.refused(to, Code.SYSTEM_BUSY, "busy")
    assert not site.done


def test_contexts_that_do_not_tile_count_as_none(site: Site) -> None:
    send = SendRecords(targets=[Target("T", 0)], sizes=b"", producer_group="p", contexts=OTHER[:-1])
    site.spans.answered(Reply(site.arrive(send)))
    assert not site.done["store T"].links


def test_a_request_that_is_not_admitted_and_a_connection_that_ends(site: Site) -> None:
    site.spans.refused(site.arrive(SEND), Code.SYSTEM_BUSY, "busy")
    assert site.done["store T"].attributes["error.type"] == "SYSTEM_BUSY"
    other = site.arrive(PULL, number=3, peer=Peer(2, "local", ("127.0.0.1", 5)))
    mine = site.arrive(PULL, number=4)
    site.spans.disconnected(PEER)
    assert site.done["pull T"].attributes["error.type"] == "disconnected"
    assert (site.spans.context(mine), bool(site.spans.context(other))) == (b"", True)


def test_everything_is_bounded_and_counted(site: Site, monkeypatch) -> None:
    monkeypatch.setattr(module, "OPEN_SPANS_MAX", 2)
    monkeypatch.setattr(module, "PARTS_MAX", 1)
    for number in range(3):
        site.arrive(SEND, number=number)
    first = ReplyTo(PEER, 0, False, TRACE)
    for _ in range(2):
        site.append(first)
    page = expose(site.spans.families({"node_id": "a"})).decode()
    counts = {
        line.split()[0]: float(line.split()[1]) for line in page.splitlines() if line[0] != "#"
    }
    total = 'kourou_trace_spans_dropped_total{node_id="a",reason="%s"}'
    assert counts['kourou_trace_spans_total{node_id="a"}'] == 5
    assert (counts[total % "queue_full"], counts[total % "export_failed"]) == (3, 1)
    assert counts[total % "too_many_open"] == 3
    site.spans.close()
    assert site.closed == 1


def test_a_reply_states_how_many_replicas_had_it(site: Site) -> None:
    """A follower's word comes in as a request, and is no request of a trace."""
    chunk = LogChunk(
        group="b", epoch=1, leader="b/0", position=0, end=0, previous_epoch=1, data_epoch=1,
        confirmed=0, leader_end=0, first_position=0,
    )  # fmt: skip
    follower = Peer(2, "zmq", ("127.0.0.1", 5), "members")
    site.spans.copies.shipped(follower, chunk)
    to = site.arrive(SEND, then=lambda received: site.append(received[0].to, 100))
    site.spans.copies.shipped(follower, msgspec.structs.replace(chunk, end=100))
    ack = ChunkAck(group="b", epoch=1, member="1", accepted=True, written=100)
    site.arrive(ack, trace=NO_TRACE, peer=follower)
    site.spans.answered(Reply(to))
    assert site.done.keys() == {"store T", "append", "wait", "ship", "copy"}
    assert site.done["store T"].attributes["kourou.replication.copies"] == 2
    assert site.done["copy"].attributes["kourou.replication.member"] == "1"
    assert site.done["copy"].parent.span_id == site.done["store T"].context.span_id
