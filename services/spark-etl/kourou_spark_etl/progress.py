"""Spark's progress report of a batch as numbers, for metrics, events and spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

OBSERVED = "kourou_traces"
"""The name under which a query observes the trace contexts of its messages."""


class _Source(msgspec.Struct):
    endOffset: Any = None
    startOffset: Any = None


class _Operator(msgspec.Struct):
    numRowsTotal: int = 0
    memoryUsedBytes: int = 0
    numRowsDroppedByWatermark: int = 0


class _Report(msgspec.Struct):
    id: str
    batchId: int
    timestamp: str
    name: str | None = None
    numInputRows: int = 0
    durationMs: dict[str, int] = {}
    sources: list[_Source] = []
    stateOperators: list[_Operator] = []
    eventTime: dict[str, str] = {}
    observedMetrics: dict[str, dict[str, Any]] = {}


_DECODER = msgspec.json.Decoder(_Report)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch. Times in ms; offsets are the source's own text; `contexts` are traceparents."""

    query: str
    query_id: str
    batch_id: int
    rows: int
    began_ms: int
    took_ms: int
    start_offsets: str = ""
    end_offsets: str = ""
    late_rows: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str = ""
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    contexts: Sequence[str] = ()


def read_progress(text: str | bytes) -> BatchProgress:
    """Parse a progress report of Spark (`progress.json`)."""
    report = _DECODER.decode(text)
    began = datetime.fromisoformat(report.timestamp)
    source = report.sources[0] if report.sources else _Source()
    seen = report.observedMetrics.get(OBSERVED, {})
    return BatchProgress(
        query=report.name or report.id,
        query_id=report.id,
        batch_id=report.batchId,
        rows=report.numInputRows,
        began_ms=int(began.timestamp() * 1_000),
        took_ms=report.durationMs.get("triggerExecution", 0),
        start_offsets=_text(source.startOffset),
        end_offsets=_text(source.endOffset),
        late_rows=sum(one.numRowsDroppedByWatermark for one in report.stateOperators),
        state_rows=sum(one.numRowsTotal for one in report.stateOperators),
        state_bytes=sum(one.memoryUsedBytes for one in report.stateOperators),
        watermark=report.eventTime.get("watermark", ""),
        durations_ms=report.durationMs,
        contexts=tuple(sorted({text for text in _contexts(seen) if text})),
    )


def _contexts(seen: Mapping[str, Any]) -> Sequence[str]:
    found = seen.get("contexts")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else ()


def _text(offset: Any) -> str:
    """The offset as a JSON text; some sources report it as a string that contains JSON."""
    if offset is None:
        return ""
    return offset if isinstance(offset, str) else msgspec.json.encode(offset).decode()
