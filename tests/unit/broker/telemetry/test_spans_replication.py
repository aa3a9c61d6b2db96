"""What a trace shows of the members that copy a send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.broker.telemetry.spans import CopySpans
from kourou.model.limits import COPIED_SPANS_MAX
from kourou.protocol.messages.replication import ChunkAck, LogChunk
from kourou.telemetry.tracing import Tracing

CONTEXT = bytes(range(1, 25)) + b"\x01"


def chunk(position: int, end: int) -> LogChunk:
    return LogChunk(
        group="g", epoch=1, leader="n0", position=position, end=end, previous_epoch=1,
        data_epoch=1, confirmed=0, leader_end=end, first_position=0,
    )  # fmt: skip


def ack(member: str, written: int, flushed: int = 0, *, accepted: bool = True) -> ChunkAck:
    return ChunkAck(
        group="g", epoch=1, member=member, accepted=accepted, written=written, flushed=flushed
    )


class Site:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.now_ns = 0
        self.copies = CopySpans(
            Tracing(self.provider.get_tracer("t"), ratio=0.0, now_ns=self._tick)
        )

    def _tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def finished(self) -> list[tuple[str, dict]]:
        found = [
            (span.name, {key.split(".")[-1]: value for key, value in span.attributes.items()})
            for span in self.exporter.get_finished_spans()
        ]
        self.exporter.clear()
        return found


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    made.copies.shipped("n1", chunk(0, 0))  # a heartbeat: somebody copies this log
    yield made
    made.provider.shutdown()


def test_a_log_without_replicas_costs_nothing() -> None:
    site = Site()
    assert site.copies.appended(100, CONTEXT) is None
    assert not site.copies


def test_a_send_is_shipped_copied_and_confirmed(site: Site) -> None:
    one = site.copies.appended(100, CONTEXT)
    site.copies.shipped("n1", chunk(100, 200))
    site.copies.shipped("n1", chunk(0, 99))
    site.copies.acknowledged("n1", ack("n1", 100))
    assert site.finished() == [], "none of that is this send's"
    for member in ("n1", "n2", "n1"):
        site.copies.shipped(member, chunk(0, 100))
    assert site.finished() == [
        ("ship", {"position": 100, "member": "n1"}),
        ("ship", {"position": 100, "member": "n2"}),
    ]
    site.copies.acknowledged("n1", ack("n1", 100, accepted=False))
    site.copies.acknowledged("n1", ack("n1", 99))
    assert (site.finished(), one.copies) == ([], 1)
    site.copies.acknowledged("n1", ack("n1", 100, 99))
    site.copies.acknowledged("n1", ack("n1", 150, 150))
    site.copies.confirmed(99)
    assert site.finished() == [("copy", {"position": 100, "member": "n1", "on_disk": False})]
    site.copies.confirmed(100)
    site.copies.confirmed(200)
    assert site.finished() == [("confirm", {"position": 100, "copies": 2})]
    site.copies.acknowledged("n2", ack("n2", 100, 100))
    assert site.finished() == [("copy", {"position": 100, "member": "n2", "on_disk": True})]
    assert one.copies == 3


def test_the_spans_lie_below_the_send_and_one_behind_the_other(site: Site) -> None:
    site.copies.appended(100, CONTEXT)
    site.copies.shipped("n1", chunk(0, 100))
    site.copies.acknowledged("n1", ack("n1", 100))
    ship, copy = site.exporter.get_finished_spans()
    assert ship.start_time < ship.end_time == copy.start_time < copy.end_time
    assert ship.parent.span_id == copy.parent.span_id == int.from_bytes(CONTEXT[16:24], "big")


def test_what_all_have_and_is_answered_is_forgotten(site: Site) -> None:
    one = site.copies.appended(100, CONTEXT)
    site.copies.shipped("n1", chunk(0, 100))
    site.copies.shipped("n2", chunk(0, 100))
    site.copies.acknowledged("n1", ack("n1", 100))
    one.answered = True
    site.copies.appended(200, CONTEXT)
    assert len(site.copies) == 2, "n2 does not have it"
    site.copies.acknowledged("n2", ack("n2", 100))
    assert len(site.copies) == 1


def test_what_was_answered_and_not_shipped_yet_is_kept(site: Site) -> None:
    site.copies.appended(100, CONTEXT).answered = True
    site.copies.appended(200, CONTEXT)
    assert len(site.copies) == 2


def test_spans_of_a_former_leaders_appends_are_dropped(site: Site) -> None:
    site.copies.appended(1_200, CONTEXT)
    site.copies.shipped("n1", chunk(1_000, 1_200))
    site.finished()
    site.copies.abandon()
    site.copies.acknowledged("n1", ack("n1", 1_200))
    site.copies.confirmed(1_500)
    assert (site.finished(), len(site.copies)) == ([], 0)
    site.copies.appended(1_600, CONTEXT)
    site.copies.confirmed(1_600)
    assert site.finished() == [("confirm", {"position": 1_600, "copies": 1})], "it leads again"


def test_the_oldest_go_while_a_member_is_gone(site: Site) -> None:
    for number in range(1, COPIED_SPANS_MAX + 3):
        site.copies.appended(number * 100, CONTEXT)
    assert len(site.copies) == COPIED_SPANS_MAX
    site.copies.shipped("n1", chunk(0, 10**6))
    assert len(site.finished()) == COPIED_SPANS_MAX
