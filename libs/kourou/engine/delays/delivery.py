"""Delayed messages: they wait in SCHEDULE_TOPIC_XXXX and are delivered when they are due.

State: projection: the progress of each level. Its source is the announcements in the log.

Each level has a queue, in which messages are due in their order. So the heads of the queues show
whether anything is due and when the next check is necessary. A tick delivers a bounded number of
messages in one append, whatever their levels, and asks for another tick for the rest, so that other
requests do not wait.

Invariants:
- a message is delivered once, after its delay, or the log shows why it cannot be delivered
- the current table of levels applies, also to messages that wait already, so that rebuilt queues
  give the same due times
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kourou.engine.context import BrokerContext
from kourou.engine.delays.progress import (
    PROGRESS_TARGET,
    DelayClock,
    DelayProgress,
    Run,
    find_progress,
    progress_draft,
)
from kourou.engine.effects import ConfigChanged, Effect, Wake
from kourou.engine.sends.appends import Target
from kourou.errors import KourouError, MessageIllegal, Throttled
from kourou.events.control_events import UnreadSpan
from kourou.model.limits import DELIVERIES_MAX, DELIVERY_BYTES_MAX, SEGMENT_TAIL_BYTES
from kourou.model.message import delay_of
from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from kourou.protocol.bodies.config_bodies import encode_delay_offsets
from kourou.protocol.messages.pulls import GetAllDelayOffset
from kourou.protocol.record.layout import Parts, parts_of
from kourou.protocol.record.message_record import moved_draft, real_target
from kourou.runtime import LogWarning, Received, Reply, Tick

MIRROR_INTERVAL_MS = 10_000
"""The shortest time between updates of delayOffset.json (RocketMQ: flushDelayOffsetInterval)."""
SOON_MS = 200
"""Messages that are due sooner than this do not wait for the next tick."""
RETRY_MS = 1_000
"""The wait after the store refused a write."""
REMEMBER_STEP_MS = 60_000
"""A clock step is kept at least this long, even if no message seems to wait."""
DELAY_GROUP = "SCHEDULE_CONSUMER"
"""RocketMQ's group name for the reader of SCHEDULE_TOPIC_XXXX, which is the broker itself."""
NOW = -1
"""Due at any time: the message cannot be read, and is skipped."""

LATENESS_BOUNDS_MS = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 60_000, 3_600_000)


@dataclass(slots=True)
class DelayFigures:
    """Counts of delayed messages since the start.

    `lateness` counts deliveries by LATENESS_BOUNDS_MS and beyond. `lost` were deleted with the log
    before they were due; `undeliverable` are damaged or have no valid target.
    """

    delivered: int = 0
    lost: int = 0
    undeliverable: int = 0
    lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_MS) + 1))
    lateness_sum_ms: int = 0
    lateness_max_ms: int = 0

    def late(self, ms: int) -> None:
        """Count a delivery that was this many ms late."""
        self.lateness[bisect_left(LATENESS_BOUNDS_MS, ms)] += 1
        self.lateness_sum_ms += ms
        self.lateness_max_ms = max(self.lateness_max_ms, ms)
        self.delivered += 1


@dataclass(slots=True)
class _Due:
    """The deliveries of one tick."""

    drafts: list[bytes]
    targets: list[Target]
    late_ms: list[int]
    runs: list[Run]
    offsets: dict[int, int]
    size_bytes: int = 0
    left: bool = False
    """Whether more is due that did not fit."""

    @property
    def is_full(self) -> bool:
        return len(self.drafts) >= DELIVERIES_MAX or self.size_bytes >= DELIVERY_BYTES_MAX


class Delays:
    """Delivers the delayed messages of one log.

    `host` is the broker's own encoded address; `imported` is another broker's delayOffset.json.
    """

    def __init__(self, context: BrokerContext, imported: Mapping[int, int]) -> None:
        self._view = context.view
        self._control = context.control
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._pressure = context.pressure
        self._levels_ms = context.policy.delay_levels_ms
        self._host = context.host
        self._size_max = context.segment_size - SEGMENT_TAIL_BYTES
        found = find_progress(context.view, context.segment_size)
        self._problems = found.problems
        self._imported = imported
        self._clock = DelayClock(found.steps)
        self._position = found.position
        self._offsets = found.offsets
        self._heads: dict[int, tuple[int, int]] = {}
        self._retry_ms = 0
        self._anybody = True
        self._forget_ms = 0
        self._reported = ""
        self._strangers: set[str] = set()
        self._unflushed: deque[tuple[int, dict[int, int]]] = deque()
        self._mirrored_ms = 0
        self._flushed_offsets = dict(found.offsets)
        self._mirrored = dict(found.offsets)
        self.figures = DelayFigures()

    # -- metrics ------------------------------------------------------------------------------

    def waiting(self) -> dict[int, int]:
        """Return how many messages wait, by level, without the levels where none does."""
        return {level: end - next_ for level, (next_, end) in self.bounds().items() if end > next_}

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Return by level: the next offset to deliver, and the maximum offset."""
        found = {}
        for queue_id in self._view.queue_ids(SCHEDULE_TOPIC):
            low, high = self._view.queue_range(SCHEDULE_TOPIC, queue_id) or (0, 0)
            found[queue_id + 1] = (max(low, self._offsets.get(queue_id + 1, 0)), high)
        return found

    def waiting_before(self, position: int) -> list[UnreadSpan]:
        """Return which messages below a log position still wait."""
        spans: list[UnreadSpan] = []
        for level in self.waiting():
            queue_id = level - 1
            low, _ = self._view.queue_range(SCHEDULE_TOPIC, queue_id) or (0, 0)
            first = max(low, self._offsets.get(level, 0))
            if self._view.offset_position(SCHEDULE_TOPIC, queue_id, first) >= position:
                continue
            after = self._view.offset_at(SCHEDULE_TOPIC, queue_id, position)
            if after > first:
                spans.append(UnreadSpan(DELAY_GROUP, SCHEDULE_TOPIC, queue_id, first, after))
        return spans

    def next_due_ms(self) -> int | None:
        """Return the wall time in ms at which the next message is due; None if none waits."""
        heads: list[int] = []
        for level in self.waiting():
            low, _ = self._view.queue_range(SCHEDULE_TOPIC, level - 1) or (0, 0)
            heads.append(self._head_ms(level - 1, max(low, self._offsets.get(level, 0))))
        return min(heads, default=None)

    def safe_offsets(self) -> dict[int, int]:
        """Return level -> next offset for delayOffset.json, as far as deliveries are flushed.

        A file that is ahead of its log would lose messages after a power failure.
        """
        return dict(sorted(self._flushed_offsets.items()))

    def flushed_to(self, position: int) -> None:
        """Note that the disk has everything below `position`."""
        while self._unflushed and self._unflushed[0][0] <= position:
            self._flushed_offsets = self._unflushed.popleft()[1]

    def all_offsets(
        self, _now_ms: int, received: Received, _request: GetAllDelayOffset
    ) -> list[Effect]:
        """Reply with the progress of each level (45)."""
        return [
            Reply(received.to, body=(encode_delay_offsets(dict(sorted(self._offsets.items()))),))
        ]

    # -- start --------------------------------------------------------------------------------

    def start(self, wall_ms: int) -> list[Effect]:
        """Take over the deliveries of another broker."""
        offsets = dict(self._offsets)
        for level, offset in self._imported.items():
            offsets[level] = max(offset, offsets.get(level, 0))
        for level, offset in offsets.items():
            # Another broker may have truncated the log: messages stored there from now on are new.
            span = self._view.queue_range(SCHEDULE_TOPIC, level - 1)
            if span is not None:
                offsets[level] = min(offset, span[1])
        warnings: list[Effect] = [*self._problems]
        if offsets != self._offsets:
            self._offsets = offsets
            self._flushed_offsets = dict(offsets)
            self._announce(wall_ms)
        return warnings

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int, tick: Tick) -> list[Effect]:
        """Deliver what is due; the core takes the appends."""
        effects = self._look_at_clock(now_ms, tick)
        effects += self._mirror(now_ms)
        if now_ms < self._retry_ms or self._confirmations.failed is not None:
            return effects
        try:
            due, next_ms, warnings = self._collect(tick.wall_ms)
            effects += warnings
            if due.offsets:
                if self._pressure.refusing:
                    self._pressure.check_writable()
                self._store(due, tick.wall_ms)
        except KourouError as error:
            pause_ms = error.retry_after_ms if isinstance(error, Throttled) else 0
            self._retry_ms = now_ms + (pause_ms or RETRY_MS)
            if not isinstance(error, Throttled):
                effects += self._warn_once(
                    LogWarning(
                        "delivery-delayed: delayed messages are delivered late: %(error)s",
                        {"error": error},
                    )
                )
            return effects
        self._reported = ""
        if due.is_full or due.left:
            effects.append(Wake(0))
        elif next_ms is not None and next_ms - tick.wall_ms < SOON_MS:
            effects.append(Wake(max(next_ms - tick.wall_ms, 1)))
        return effects

    def keep_above(self, position: int, wall_ms: int) -> list[Effect]:
        """Announce again if the newest announcement is below `position`, which may be deleted."""
        if not 0 <= self._position < position:
            return []
        try:
            self._announce(wall_ms)
        except KourouError as error:
            return self._warn_once(
                LogWarning(
                    "delay-progress-unrecorded: the progress of the delay levels is not recorded: "
                    "%(error)s",
                    {"error": error},
                )
            )
        return []

    def _look_at_clock(self, now_ms: int, tick: Tick) -> list[Effect]:
        monotonic_ms = tick.monotonic_ms or now_ms
        step_ms = self._clock.look(tick.wall_ms, monotonic_ms, self._appends.end)
        if not step_ms:
            if self._clock.steps and not self._anybody and now_ms > self._forget_ms:
                self._clock.forget()
            return []
        # Records of the log may not be in their queue yet.
        self._forget_ms = now_ms + REMEMBER_STEP_MS
        if not self._anybody:
            return []
        try:
            self._announce(tick.wall_ms)
        except KourouError as error:
            return [
                LogWarning(
                    "clock-change-unrecorded: a change of the system clock is not recorded: "
                    "%(error)s",
                    {"error": error},
                )
            ]
        return [
            LogWarning(
                "delay-clock-changed: the system clock was changed by %(step_s)+.3f s while "
                "delayed messages wait; messages from before the change are delivered when their "
                "delay has passed by either clock",
                {"step_s": step_ms / 1_000},
            )
        ]

    def _mirror(self, now_ms: int) -> list[Effect]:
        """Update delayOffset.json with the flushed progress."""
        self.flushed_to(self._confirmations.flushed)
        if now_ms < self._mirrored_ms or self._flushed_offsets == self._mirrored:
            return []
        self._mirrored_ms = now_ms + MIRROR_INTERVAL_MS
        self._mirrored = self._flushed_offsets
        return [ConfigChanged("delays")]

    # -- what is due --------------------------------------------------------------------------

    def _collect(self, wall_ms: int) -> tuple[_Due, int | None, list[Effect]]:
        """Return what is due, the next due time (wall time, None for never), and warnings."""
        due = _Due([], [], [], [], {})
        next_ms: int | None = None
        warnings: list[Effect] = []
        waiting = False
        for queue_id in self._view.queue_ids(SCHEDULE_TOPIC):
            level = queue_id + 1
            low, high = self._view.queue_range(SCHEDULE_TOPIC, queue_id) or (0, 0)
            offset = self._offsets.get(level, 0)
            if offset < low:
                # Deleted by retention; without an announcement, another broker delivered them.
                if self._position >= 0:
                    self.figures.lost += low - offset
                    warnings.append(
                        LogWarning(
                            "delayed-messages-deleted: %(messages)d messages of delay level "
                            "%(delay_level)d were deleted with the log before they were due",
                            {"messages": low - offset, "delay_level": level},
                        )
                    )
                offset = due.offsets[level] = low
            if offset >= high:
                continue
            waiting = True
            if due.is_full:
                break  # the next tick checks again
            then_ms: int | None = self._head_ms(queue_id, offset)
            if then_ms is not None and then_ms <= wall_ms:
                then_ms, level_warnings = self._collect_level(due, queue_id, offset, wall_ms)
                warnings += level_warnings
            if then_ms is not None:
                next_ms = then_ms if next_ms is None else min(next_ms, then_ms)
        self._anybody = waiting
        return due, next_ms, warnings

    def _head_ms(self, queue_id: int, offset: int) -> int:
        """Return when the message at the head of a level is due; NOW if it cannot be read."""
        known = self._heads.get(queue_id)
        if known is None or known[0] != offset:
            stored_ms = self._view.store_time(SCHEDULE_TOPIC, queue_id, offset)
            known = self._heads[queue_id] = (offset, stored_ms)
        if known[1] < 0:
            return NOW
        if not self._clock.steps:
            return known[1] + self._delay_ms(queue_id)
        position = self._view.offset_position(SCHEDULE_TOPIC, queue_id, offset)
        return self._clock.due_ms(position, known[1] + self._delay_ms(queue_id))

    def _delay_ms(self, queue_id: int) -> int:
        return delay_of(queue_id + 1, self._levels_ms)

    def _collect_level(
        self, due: _Due, queue_id: int, offset: int, wall_ms: int
    ) -> tuple[int | None, list[Effect]]:
        """Take what is due of one level; return its next due time, None if unknown."""
        read = self._view.read_queue(
            SCHEDULE_TOPIC,
            queue_id,
            offset,
            max_messages=DELIVERIES_MAX - len(due.drafts),
            max_bytes=max(DELIVERY_BYTES_MAX - due.size_bytes, 1),
            codes=None,
            below=self._confirmations.confirmed,
        )
        level, delay_ms = queue_id + 1, self._delay_ms(queue_id)
        warnings: list[Effect] = []
        if read.corrupt_offsets:
            self.figures.undeliverable += len(read.corrupt_offsets)
            warnings.append(
                LogWarning(
                    "delayed-messages-damaged: %(messages)d messages of delay level "
                    "%(delay_level)d are damaged and cannot be delivered",
                    {"messages": len(read.corrupt_offsets), "delay_level": level},
                )
            )
        for record in read.records:
            parts = parts_of(record, 0, len(record))
            due_ms = self._clock.due_ms(parts.position, parts.store_timestamp + delay_ms)
            if due_ms > wall_ms:
                if parts.queue_offset > offset:
                    due.offsets[level] = parts.queue_offset
                return due_ms, warnings
            self._take(due, level, record, parts, wall_ms - due_ms, warnings)
        if read.next_offset > offset:
            due.offsets[level] = read.next_offset
            due.left = due.left or read.next_offset < read.max_offset
        return None, warnings

    def _take(
        self,
        due: _Due,
        level: int,
        record: memoryview,
        parts: Parts,
        late_ms: int,
        warnings: list[Effect],
    ) -> None:
        """Add one message to the deliveries."""
        target = real_target(bytes(record[parts.props_at :]))
        try:
            if target is None or target[0] in (HALF_TOPIC, SCHEDULE_TOPIC):
                raise MessageIllegal("it has no target queue")
            target = self._reachable(target, warnings)
            draft = moved_draft(record, target)
            if len(draft) > self._size_max:
                raise MessageIllegal("it is larger than a log segment")
        except MessageIllegal as error:
            self.figures.undeliverable += 1
            warnings.append(
                LogWarning(
                    "delayed-message-undeliverable: the delayed message at position %(position)d "
                    "cannot be delivered: %(error)s",
                    {"position": parts.position, "error": error},
                )
            )
            return
        due.drafts.append(draft)
        due.targets.append(target)
        due.late_ms.append(late_ms)
        due.size_bytes += len(draft)
        offset = parts.queue_offset
        if due.runs and due.runs[-1][0] == level and sum(due.runs[-1][1:]) == offset:
            due.runs[-1] = (level, due.runs[-1][1], due.runs[-1][2] + 1)
        else:
            due.runs.append((level, offset, 1))

    def _reachable(self, target: Target, warnings: list[Effect]) -> Target:
        """Return the queue, or a readable one of the topic if that queue no longer exists.

        A message of a deleted topic is stored all the same, as in RocketMQ: it can be consumed once
        the topic is created again.
        """
        topic = self._control.topics.get(target[0])
        if topic is None:
            if target[0] not in self._strangers and len(self._strangers) < DELIVERIES_MAX:
                self._strangers.add(target[0])
                warnings.append(
                    LogWarning(
                        "delayed-topic-missing: delayed messages of topic %(topic)s are delivered, "
                        "but the topic no longer exists: create it to consume them",
                        {"topic": target[0]},
                    )
                )
            return target
        queues = topic.read_queue_nums
        return target if target[1] < queues or queues < 1 else (target[0], target[1] % queues)

    # -- delivering ---------------------------------------------------------------------------

    def _store(self, due: _Due, wall_ms: int) -> None:
        """Announce and deliver, in one append.

        Raises as Appends.write; then nothing was done, and all of it is still due.
        """
        delivering = {level for level, _, _ in due.runs}
        passed = {level: at for level, at in due.offsets.items() if level not in delivering}
        self._offsets.update(passed)
        drafts = [self._progress(due.runs, wall_ms), *due.drafts]
        written = self._appends.write_drafts(drafts, [PROGRESS_TARGET, *due.targets], wall_ms)
        self._confirmations.append(written.end)
        self._position = written.positions[0]
        self._offsets.update(due.offsets)
        self._unflushed.append((written.end, dict(self._offsets)))
        for late_ms in due.late_ms:
            self.figures.late(late_ms)

    def _announce(self, wall_ms: int) -> None:
        """Record the progress of the levels, without a delivery."""
        draft = self._progress([], wall_ms)
        _, self._position = self._appends.write_one(draft, PROGRESS_TARGET, wall_ms)
        self._confirmations.append(self._appends.end)
        self._unflushed.append((self._appends.end, dict(self._offsets)))

    def _progress(self, runs: list[Run], wall_ms: int) -> bytes:
        progress = DelayProgress(dict(self._offsets), runs, list(self._clock.steps))
        return progress_draft(progress, wall_ms, self._host)

    def _warn_once(self, warning: LogWarning) -> list[Effect]:
        if str(warning) == self._reported:
            return []
        self._reported = str(warning)
        return [warning]
