"""Batches as events: each once, whatever happens between."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.clock import SystemClock
from kourou.eventstore.event_store import EventStore
from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing import Tracing
from kourou.telemetry.tracing_setup import SpanCounts
from kourou_spark_etl.batch_events import (
    ETL,
    STREAM,
    BatchEvents,
    BatchWritten,
    QueryFailed,
    of_recorded,
    short,
)
from kourou_spark_etl.progress import BatchProgress, BatchSpans
from kourou_spark_etl.read_model.read_model import RecordedBatch


def open_events(path: Path) -> BatchEvents:
    return BatchEvents(EventStore.at(path / "events.db"), SystemClock())


def events_in(path: Path) -> list[object]:
    store = EventStore.at(path / "events.db")
    found = [of_recorded(one) for one in store.events(stream=STREAM)]
    store.close()
    return found


def test_what_a_crash_kept_from_being_written_is_written_at_the_next_start(tmp_path: Path) -> None:
    events = open_events(tmp_path)
    assert events.note(BatchWritten("q", "id", 0, 5), trace_id="ab")
    assert events.note(QueryFailed("q", "no", 1_000))
    events.close()
    batches = [RecordedBatch("q", "id", number, 5, 1) for number in range(3)]
    again = open_events(tmp_path)
    assert again.catch_up([RecordedBatch("p", "x", 9, 1, 1), *batches]) == 3
    assert again.catch_up(batches) == 0
    assert again.catch_up([RecordedBatch("q", "new checkpoint", 0, 7, 1)]) == 1
    assert again.written == 4
    again.close()
    assert events_in(tmp_path) == [
        BatchWritten("q", "id", 0, 5),
        QueryFailed("q", "no", 1_000),
        BatchWritten("p", "x", 9, 1),
        BatchWritten("q", "id", 1, 5),
        BatchWritten("q", "id", 2, 5),
        BatchWritten("q", "new checkpoint", 0, 7),
    ]


def test_a_batch_that_is_an_event_already_is_none_again(tmp_path: Path) -> None:
    events = open_events(tmp_path)
    assert events.catch_up([RecordedBatch("q", "id", 0, 5, 1)]) == 1
    assert events.note(BatchWritten("q", "id", 0, 5)), "Spark has run it again after a crash"
    assert events.note(BatchWritten("q", "new checkpoint", 0, 5))
    events.close()
    assert events_in(tmp_path) == [
        BatchWritten("q", "id", 0, 5),
        BatchWritten("q", "new checkpoint", 0, 5),
    ]


def test_two_writers_do_not_overtake_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = open_events(tmp_path), open_events(tmp_path)
    assert one.catch_up([]) == 0
    assert other.note(BatchWritten("q", "id", 0, 1))
    assert not one.note(BatchWritten("q", "id", 1, 1)), "it has decided on what is old"
    assert "is not written" in caplog.text
    assert one.note(BatchWritten("q", "id", 1, 1))
    one.close()
    other.close()
    assert events_in(tmp_path) == [BatchWritten("q", "id", 0, 1), BatchWritten("q", "id", 1, 1)]


def test_the_state_survives_as_bytes(tmp_path: Path) -> None:
    events = open_events(tmp_path)
    events.note(BatchWritten("q", "id", 3, 1))
    store = EventStore.at(tmp_path / "events.db")
    state, end = store.load(ETL)
    assert state.last == {"q": ("id", 3)}
    assert ETL.decode(ETL.encode(state)) == state
    assert end == 1
    store.close()
    events.close()
    assert short("x" * 10_000).endswith("…")


# -- the span of a batch, and what it is linked with -----------------------------------------------


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{}-01"


def test_a_batch_is_a_span_linked_with_its_messages() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    export: Any = SimpleNamespace(
        tracing=Tracing(provider.get_tracer("t"), ratio=1.0), counts=SpanCounts(9, 5, 3, 1)
    )
    spans = BatchSpans(export)
    contexts = (TRACE.format(1), TRACE.format(2), "nonsense")
    done = BatchProgress("flights", "id", 7, 40, 5_000, 250, "{}", "x" * 9_000, contexts=contexts)
    trace_id = spans.batch(done, "flights")
    span, *of_messages = exporter.get_finished_spans()
    assert span.name == "process flights"
    assert span.parent is None
    assert format(span.context.trace_id, "032x") == trace_id
    assert (span.start_time, span.end_time) == (5_000_000_000, 5_250_000_000)
    links = [format(link.context.span_id, "016x") for link in span.links]
    assert links == ["b7ad6b7169203331", "b7ad6b7169203332"]
    assert span.attributes is not None
    assert span.attributes["kourou.etl.batch_id"] == 7
    assert span.attributes["messaging.batch.message_count"] == 40
    assert span.attributes["kourou.etl.start_offsets"] == "{}"
    assert len(str(span.attributes["kourou.etl.end_offsets"])) == 4_096
    for one, number in zip(of_messages, "12", strict=True):
        assert one.name == "process flights"
        assert one.parent is not None
        assert format(one.parent.span_id, "016x") == f"b7ad6b716920333{number}"
        assert [link.context.span_id for link in one.links] == [span.context.span_id]
        assert (one.start_time, one.end_time) == (span.start_time, span.end_time)
    page = expose(spans.families({"node_type": "spark-etl"})).decode()
    assert 'kourou_trace_spans_total{node_type="spark-etl"} 5.0' in page
