"""The trace of a message as spans of a waterfall.

send                  from the producer's trace; otherwise from birth to store time
 ├─ store             at the broker; its duration is not recorded
 ├─ transaction       its end, if it had one
 └─ consume           each call of a handler, from the consumers' traces; a group without a
                      trace has one span without times, with the group's state
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kourou.client.admin.message_tracks import MessageTrack, TrackKind
from kourou.client.consumer.received import ReceivedMessage
from kourou.protocol.record.message_trace import (
    Consumed,
    Consuming,
    Published,
    TraceRecord,
    TransactionEnded,
)
from kourou_console.messages.views import host_text

_NOT_HANDED_OVER = frozenset({TrackKind.CONSUMED_BUT_FILTERED, TrackKind.UNKNOWN})
"""The group may be past the message, but no delivery to a handler is known."""


class SpanView(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `duration_ms` null: not recorded, or not finished."""

    id: str
    parent: str | None
    #: A group, or a broker.
    who: str
    #: send, store, transaction, consume.
    what: str
    start_ms: int | None
    duration_ms: int | None
    ok: bool | None
    note: str


def spans_of(
    message: ReceivedMessage, records: Sequence[TraceRecord], tracks: Sequence[MessageTrack]
) -> list[SpanView]:
    """All spans in the order of their starts; those without a time last."""
    spans = [_sent(message, records), _stored(message)]
    ends = {one.request_id: one for one in records if isinstance(one, Consumed)}
    traced: set[str] = set()
    for one in records:
        if isinstance(one, Consuming):
            end = ends.pop(one.request_id, None)
            traced.add(one.group)
            spans.append(_consumed(len(spans), one, end))
        elif isinstance(one, TransactionEnded):
            spans.append(_ended(len(spans), one))
    for track in tracks:
        if track.group not in traced:
            spans.append(_tracked(len(spans), track))
    last = max((span.start_ms for span in spans if span.start_ms is not None), default=0)
    return sorted(spans, key=lambda span: last + 1 if span.start_ms is None else span.start_ms)


def _sent(message: ReceivedMessage, records: Sequence[TraceRecord]) -> SpanView:
    stored = message.stored()
    for one in records:
        if isinstance(one, Published):
            return SpanView(
                id="send",
                parent=None,
                who=one.group,
                what="send",
                start_ms=one.timestamp_ms,
                duration_ms=one.cost_ms,
                ok=one.success,
                note=f"to {one.store_host}",
            )
    return SpanView(
        id="send",
        parent=None,
        who=host_text(stored.born_host),
        what="send",
        start_ms=stored.born_timestamp,
        duration_ms=max(stored.store_timestamp - stored.born_timestamp, 0),
        ok=True,
        note="from birth to store time, by the clocks of two machines",
    )


def _stored(message: ReceivedMessage) -> SpanView:
    return SpanView(
        id="store",
        parent="send",
        who=message.queue.broker_name,
        what="store",
        start_ms=message.store_timestamp,
        duration_ms=None,
        ok=True,
        note=f"{message.queue!s}@{message.offset}",
    )


def _consumed(number: int, begin: Consuming, end: Consumed | None) -> SpanView:
    note = f"attempt {begin.retry_times + 1}"
    if end is None:
        note += ", its end was not noted"
    elif not end.success:
        note += f", {end.context_code.name}"
    return SpanView(
        id=f"consume-{number}",
        parent="store",
        who=begin.group,
        what="consume",
        start_ms=begin.timestamp_ms,
        duration_ms=None if end is None else end.cost_ms,
        ok=None if end is None else end.success,
        note=note,
    )


def _ended(number: int, end: TransactionEnded) -> SpanView:
    return SpanView(
        id=f"transaction-{number}",
        parent="send",
        who=end.group,
        what="transaction",
        start_ms=end.timestamp_ms,
        duration_ms=0,
        ok=end.state == "COMMIT_MESSAGE",
        note=f"{end.state}{' after a question' if end.from_check else ''}",
    )


def _tracked(number: int, track: MessageTrack) -> SpanView:
    return SpanView(
        id=f"group-{number}",
        parent="store",
        who=track.group,
        what="consume",
        start_ms=None,
        duration_ms=None,
        ok=None if track.kind in _NOT_HANDED_OVER else track.consumed,
        note=f"{track.kind.value}{': ' + track.reason if track.reason else ''}",
    )
