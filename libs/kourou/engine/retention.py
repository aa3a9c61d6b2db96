"""Retention of the log: which part may be deleted, and when.

Decides when the old end of the log is deleted, and reports what consumers lose.

State: soft (the pass that is due, reported warnings, counts). After a restart in an hour of
deleteWhen a pass is due again, which deletes only what is expired.

Invariants:
- what groups lose by a deletion is recorded as an event before the deletion is requested, and the
  executor makes the event durable before it deletes the first file
- passes that delete only because of age are an hour of monotonic time apart, whatever the wall
  clock says, and each deletes at most a quarter of the segments
- below CLEANING, no control event is deleted that the event store lacks
- one deletion runs at a time

Decides which part of the log may be deleted, and which groups lose messages.

Rules, as in RocketMQ (for the differences see docs/decisions/0030):
- only whole segments, oldest first, never the one being written
- a segment is expired if it was closed at least fileReservedTime ago, consumed or not, including
  dead letters
- one pass deletes at most a quarter of the segments (but at least one) because of their age
- nothing is deleted by force if deleting everything would not bring the disk below its threshold
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kourou.engine.context import BrokerContext
from kourou.engine.control import ControlState
from kourou.engine.disk_pressure import DiskLevel
from kourou.engine.effects import CleanProjections, DeleteLogBefore, DiskStarving, Effect
from kourou.engine.groups.progress import Commits
from kourou.engine.inputs import ClosedSegment, DiskMeasured
from kourou.engine.ports import StoreView
from kourou.errors import KourouError
from kourou.events.control_events import Cause, Event, LogDeleted, UnreadExpiring, UnreadSpan
from kourou.model.limits import UNREAD_SPANS_MAX
from kourou.model.names import CONTROL_TOPIC, retry_topic
from kourou.model.units import HOUR_MS
from kourou.protocol.messages.broker_admin import (
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
)
from kourou.protocol.request import Request
from kourou.runtime import LogWarning, Received, Reply

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


EXPIRED, DISK, FORCED, ASKED = "expired", "disk", "forced", "asked"
"""Why segments were deleted: expiry, an almost full disk, a full one, an operator's request."""

WARN_AGAIN_MS = 600_000
_CAUSE = Cause("broker", "retention")
_NAMED_MAX = 3


class RetentionHandler:
    """Decides what is deleted.

    `waiting_before(position)` returns the messages below it that the broker itself has yet to
    deliver.
    """

    def __init__(
        self, context: BrokerContext, waiting_before: Callable[[int], list[UnreadSpan]]
    ) -> None:
        self._view = context.view
        self._control = context.control
        self._commits = context.commits
        self._recorder = context.recorder
        self._policy = context.policy
        self._pressure = context.pressure
        self._waiting_before = waiting_before
        self._deleting = False
        self._asked = False
        self._due = False
        self._hour = -1
        self._next_pass_ms = 0
        self._reported = ""
        self._unrecorded: list[Event] = []
        self._warned_to = 0
        self._looked_to = 0
        self._look_again_ms = 0
        self.deleted: defaultdict[str, int] = defaultdict(int)
        self.unread_deleted: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.unread_expiring: dict[tuple[str, str], int] = {}

    # -- requests -----------------------------------------------------------------------------

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            DeleteExpiredCommitLog: self.delete_expired,
            CleanExpiredConsumeQueue: self.clean_queues,
        }

    def delete_expired(
        self, _now_ms: int, received: Received, _request: DeleteExpiredCommitLog
    ) -> list[Effect]:
        """Delete all expired segments with the next measurement, at any hour (329)."""
        self._asked = True
        return [Reply(received.to)]

    def clean_queues(
        self, _now_ms: int, received: Received, _request: CleanExpiredConsumeQueue
    ) -> list[Effect]:
        """Delete files of queues and index that refer only to deleted records (306)."""
        return [CleanProjections(), Reply(received.to)]

    # -- measurements -------------------------------------------------------------------------

    def measured(self, now_ms: int, disk: DiskMeasured) -> list[Effect]:
        """Handle a measurement of disk and segments, once a second and after every ENOSPC."""
        pressure = self._pressure
        effects = self.update_disk_level(disk)
        if pressure.level < DiskLevel.FORCING and not self._due:
            self._reported = ""
        self._record([], disk.wall_ms)
        if disk.hour != self._hour:
            self._hour = disk.hour
            self._due = self._due or disk.hour in self._policy.delete_hours
        if not self._deleting:
            effects += self._delete(now_ms, disk)
        effects += self._warn(now_ms, disk)
        return effects

    def update_disk_level(self, disk: DiskMeasured) -> list[Effect]:
        """Update the disk level. A follower does only this: it deletes what its leader does."""
        pressure = self._pressure
        starving = pressure.starving
        warnings = pressure.measured(disk.total_bytes, disk.free_bytes, full=disk.full)
        effects: list[Effect] = [*warnings]
        if pressure.starving is not starving:
            effects.append(DiskStarving(pressure.starving))
        return effects

    @property
    def deleting(self) -> bool:
        """Whether the old end of the log is being deleted."""
        return self._deleting

    def deletion_started(self) -> None:
        """Note that this follower deletes what its leader has deleted."""
        self._deleting = True

    def deletion_ended(self) -> None:
        """Note that a deletion has ended."""
        self._deleting = False

    # -- deleting -----------------------------------------------------------------------------

    def _delete(self, now_ms: int, disk: DiskMeasured) -> list[Effect]:
        segments = up_to(disk.segments, disk.deletable_end)
        if not segments:
            self._asked = self._due = False
            return []
        level = self._pressure.level
        reserved_ms = self._policy.reserved_hours * HOUR_MS
        expired = segments[: older_than(segments, reserved_ms)]
        share = pass_share(disk.segments)
        if expired and level >= DiskLevel.CLEANING:
            return self._go(disk, expired[:share], DISK)
        if level >= DiskLevel.FORCING:
            return self._force(disk, segments)
        safe, warnings = self._projected_part(disk, expired)
        if self._asked:
            self._asked = False
            return warnings + self._go(disk, safe, ASKED)
        if not expired:
            self._due = False
        if not self._due or now_ms < self._next_pass_ms or not safe:
            return warnings if self._due else []
        self._due = len(expired) > share  # a pass that reached its limit continues an hour later
        self._next_pass_ms = now_ms + PASS_INTERVAL_MS
        return warnings + self._go(disk, safe[:share], EXPIRED)

    def _projected_part(
        self, disk: DiskMeasured, expired: Sequence[ClosedSegment]
    ) -> tuple[Sequence[ClosedSegment], list[Effect]]:
        """Return the segments that can be deleted without a loss of history."""
        unprojected = unprojected_from(self._view, disk.events_projected)
        if unprojected is None:
            return expired, []
        safe = up_to(expired, unprojected)
        if len(safe) == len(expired):
            return expired, []
        return safe, self._warn_once(
            LogWarning(
                "expired-segments-kept: expired log segments are kept: the event store does not "
                "have their control events yet"
            )
        )

    def _force(self, disk: DiskMeasured, segments: Sequence[ClosedSegment]) -> list[Effect]:
        """Handle a full disk without expired segments: delete the oldest, if allowed and useful."""
        policy, percent = self._policy, self._pressure.used_percent
        if not policy.clean_forcibly:
            return self._warn_once(
                LogWarning(
                    "forced-deletion-disabled: the disk is %(used_percent)d %% full, but no "
                    "segment has expired and cleanFileForciblyEnable is false: nothing is deleted",
                    {"used_percent": percent},
                )
            )
        over = self._pressure.bytes_over()
        count = relief(segments, over) if over > 0 else int(disk.full)
        if count is None:
            return self._warn_once(
                LogWarning(
                    "forced-deletion-useless: the disk is %(used_percent)d %% full, but deleting "
                    "the whole log would not free enough: other data fills the disk; nothing is "
                    "deleted",
                    {"used_percent": percent},
                )
            )
        chosen = segments[: min(count, FORCED_SEGMENTS_MAX)]
        if chosen and not policy.lose_unconsumed:
            unread = self._unread(chosen[-1].end)
            if unread:
                chosen = up_to(chosen, first_unread(self._view, unread))
            if not chosen:
                return self._warn_once(
                    LogWarning(
                        "forced-deletion-refused: the disk is %(used_percent)d %% full, but the "
                        "oldest messages were not consumed by %(groups)s, and allowLoseUnconsumed "
                        "is false: nothing is deleted",
                        {"used_percent": percent, "groups": _named(unread)},
                    )
                )
        return self._go(disk, chosen, FORCED)

    def _go(self, disk: DiskMeasured, chosen: Sequence[ClosedSegment], reason: str) -> list[Effect]:
        """Record what is deleted unread, then request the deletion."""
        if not chosen:
            return []
        start, end = chosen[0].start, chosen[-1].end
        unread = self._unread(end)
        effects: list[Effect] = []
        if unread:
            effects.append(
                LogWarning(
                    "unread-deleted: deleting the log from %(start)d to %(end)d (%(reason)s), "
                    "which was not consumed by %(groups)s",
                    {"start": start, "end": end, "reason": reason, "groups": _named(unread)},
                )
            )
        self._record(
            [LogDeleted(start, end, reason, part) for part in _parts(unread)], disk.wall_ms
        )
        self._deleting = True
        self._reported = ""
        self.deleted[reason] += len(chosen)
        for key, count in by_group(unread).items():
            self.unread_deleted[key] += count
        return [*effects, DeleteLogBefore(end)]

    # -- warnings -----------------------------------------------------------------------------

    def _warn(self, now_ms: int, disk: DiskMeasured) -> list[Effect]:
        """Record early which groups have not read messages that expire soon or are expired."""
        reserved_ms = self._policy.reserved_hours * HOUR_MS
        ahead_ms = warning_ms(reserved_ms)
        count = older_than(disk.segments, reserved_ms - ahead_ms)
        end = disk.segments[count - 1].end if count else 0
        if end == self._looked_to and now_ms < self._look_again_ms:
            return []
        self._looked_to, self._look_again_ms = end, now_ms + WARN_AGAIN_MS
        unread = self._unread(end) if count else []
        self.unread_expiring = by_group(unread)
        if not unread or end <= self._warned_to:
            return []
        self._warned_to = end
        within_ms = max(0, reserved_ms - disk.segments[count - 1].age_ms)
        self._record(
            [UnreadExpiring(end, within_ms, part) for part in _parts(unread)], disk.wall_ms
        )
        return [
            LogWarning(
                "unread-expiring: the log up to %(end)d expires within %(hours).1f h, and was not "
                "consumed by %(groups)s",
                {"end": end, "hours": within_ms / HOUR_MS, "groups": _named(unread)},
            )
        ]

    def _unread(self, end: int) -> list[UnreadSpan]:
        read = unread_before(self._view, self._control, self._commits, end)
        return read + self._waiting_before(end)

    # -- reports ------------------------------------------------------------------------------

    def _record(self, events: Sequence[Event], wall_ms: int) -> None:
        """Record these events, and earlier ones that a full log could not store.

        A deletion frees space, so it does not wait for its own record.
        """
        self._unrecorded += events
        while self._unrecorded:
            try:
                self._recorder.record(self._unrecorded[:1], _CAUSE, wall_ms)
            except KourouError:
                return  # tried again at the next measurement
            del self._unrecorded[:1]

    def _warn_once(self, warning: LogWarning) -> list[Effect]:
        """Return a warning about a lasting state once, when the state begins."""
        state = f"{warning.text} {warning.fields.get('groups', '')}"
        if state == self._reported:
            return []
        self._reported = state
        return [warning]


def _parts(unread: Sequence[UnreadSpan]) -> list[tuple[UnreadSpan, ...]]:
    """Return at least one part, so that there is an event even without losses."""
    firsts = range(0, max(1, len(unread)), UNREAD_SPANS_MAX)
    return [tuple(unread[first : first + UNREAD_SPANS_MAX]) for first in firsts]


def _named(unread: Sequence[UnreadSpan]) -> str:
    counts = by_group(unread)
    named = [
        f"group {group} ({count} messages of {topic})"
        for (topic, group), count in sorted(counts.items())[:_NAMED_MAX]
    ]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
