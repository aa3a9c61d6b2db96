"""Decides which part of the log may be deleted, and which groups lose messages.

Rules, as in RocketMQ (for the differences see docs/decisions/0030):
- only whole segments, oldest first, never the one being written
- a segment is expired if it was closed at least fileReservedTime ago, consumed or not, including
  dead letters
- one pass deletes at most a quarter of the segments (but at least one) because of their age
- nothing is deleted by force if deleting everything would not bring the disk below its threshold
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kourou.engine.control import ControlState
from kourou.engine.groups.progress import Commits
from kourou.engine.inputs import ClosedSegment
from kourou.engine.ports import StoreView
from kourou.events.control_events import UnreadSpan
from kourou.model.names import CONTROL_TOPIC, retry_topic
from kourou.model.units import HOUR_MS

PASS_INTERVAL_MS = HOUR_MS
"""The time between two passes that delete because of age."""

PASS_SHARE = 4
FORCED_SEGMENTS_MAX = 10
"""The most segments deleted at once by force, as in RocketMQ; then the disk is measured again."""


def older_than(segments: Sequence[ClosedSegment], age_ms: int) -> int:
    """Return how many of the oldest segments have reached an age."""
    for count, segment in enumerate(segments):
        if segment.age_ms < age_ms:
            return count
    return len(segments)


def pass_share(segments: Sequence[ClosedSegment]) -> int:
    """Return how many segments one pass may delete because of their age."""
    return max(1, len(segments) // PASS_SHARE)


def warning_ms(reserved_ms: int) -> int:
    """Return how long before messages expire the groups that have not read them are reported."""
    return min(reserved_ms // 4, 6 * HOUR_MS)


def relief(segments: Sequence[ClosedSegment], over_bytes: int) -> int | None:
    """Return how many of the oldest segments free `over_bytes`; None if all do not suffice."""
    freed = 0
    for count, segment in enumerate(segments, 1):
        freed += segment.end - segment.start
        if freed >= over_bytes:
            return count
    return None


def up_to(segments: Sequence[ClosedSegment], position: int) -> Sequence[ClosedSegment]:
    """Return the segments that are completely below a position."""
    return [segment for segment in segments if segment.end <= position]


def unread_before(
    view: StoreView, control: ControlState, commits: Commits, end: int
) -> list[UnreadSpan]:
    """Return what registered groups have not consumed of the log below position `end`.

    A group counts in the queues in which it ever committed an offset, and in those of its retry
    topic, which no other group reads.
    """
    spans: list[UnreadSpan] = []
    for group, topic, queue_id, offset in _reading(view, control, commits):
        known = view.queue_range(topic, queue_id)
        if known is None or offset >= known[1]:
            continue
        first = max(offset, known[0])
        if view.offset_position(topic, queue_id, first) >= end:
            continue  # the usual case: one lookup
        after = view.offset_at(topic, queue_id, end)
        if after > first:
            spans.append(UnreadSpan(group, topic, queue_id, first, after))
    return spans


def _reading(
    view: StoreView, control: ControlState, commits: Commits
) -> Iterator[tuple[str, str, int, int]]:
    """Yield (group, topic, queue ID, next offset) of all that registered groups read."""
    for group, topic, queues in commits.entries():
        if group in control.groups:
            for queue_id, offset in queues.items():
                yield group, topic, queue_id, offset
    for config in control.groups:
        topic = retry_topic(config.name)
        for queue_id in view.queue_ids(topic):
            if commits.offset(config.name, topic, queue_id) is None:
                yield config.name, topic, queue_id, 0


def first_unread(view: StoreView, spans: Sequence[UnreadSpan]) -> int:
    """Return the position of the oldest message in `spans`, which must not be empty."""
    positions = (view.offset_position(span.topic, span.queue_id, span.first) for span in spans)
    return min(max(position, 0) for position in positions)


def unprojected_from(view: StoreView, events_projected: int | None) -> int | None:
    """Return the position of the first control event that the event store lacks, or None.

    `events_projected`: how many it has, None if there is no event store.
    """
    known = view.queue_range(CONTROL_TOPIC, 0)
    if events_projected is None or known is None or events_projected >= known[1]:
        return None
    return max(view.offset_position(CONTROL_TOPIC, 0, max(events_projected, known[0])), 0)


def by_group(spans: Sequence[UnreadSpan]) -> dict[tuple[str, str], int]:
    """Count the messages in `spans` by (topic, group)."""
    counts: dict[tuple[str, str], int] = {}
    for span in spans:
        key = (span.topic, span.group)
        counts[key] = counts.get(key, 0) + span.end - span.first
    return counts
