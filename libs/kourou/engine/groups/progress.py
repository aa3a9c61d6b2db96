"""The offsets of each consumer group in each queue.

State: `ConsumerProgress.table` is a projection of ProgressRecorded, OffsetsReset, TopicDeleted and
GroupDeleted, owned and changed in place by `evolve`. `ConsumerProgress.unrecorded` is soft: what
groups committed since. A crash loses it, at most one interval's worth, and the messages that it
covered are delivered again.

Invariants:
- an offset is the next one to consume, and never negative
- a commit replaces the earlier one, even if it is lower (as in RocketMQ)
- a commit is forgotten only when an event contains, resets or deletes it
- empty tables are removed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kourou.errors import BadRequest
from kourou.events.control_events import (
    Event,
    GroupDeleted,
    OffsetsReset,
    ProgressRecorded,
    TopicDeleted,
)
from kourou.model import names
from kourou.model.limits import OFFSET_MAX, PROGRESS_EVENT_ENTRIES_MAX, TOPIC_QUEUES_MAX

QueueTable = dict[int, int]
TopicTable = dict[str, QueueTable]


Table = dict[str, TopicTable]


@dataclass(slots=True)
class ConsumerProgress:
    """Next offsets: group -> topic -> queue ID -> offset. `unrecorded` overrides `table`."""

    table: Table = field(default_factory=dict)
    unrecorded: Table = field(default_factory=dict, compare=False)

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the current offset, recorded or not; None for a queue never committed."""
        lately = _get(self.unrecorded, group, topic, queue_id)
        return _get(self.table, group, topic, queue_id) if lately is None else lately

    def copy(self) -> ConsumerProgress:
        """Return an independent copy of what is recorded. O(entries)."""
        return ConsumerProgress(
            {
                group: {topic: dict(queues) for topic, queues in topics.items()}
                for group, topics in self.table.items()
            }
        )


def _get(table: Table, group: str, topic: str, queue_id: int) -> int | None:
    topics = table.get(group)
    queues = None if topics is None else topics.get(topic)
    return None if queues is None else queues.get(queue_id)


# -- evolve ---------------------------------------------------------------------------------------


def evolve(
    progress: ConsumerProgress, event: ProgressRecorded | OffsetsReset | TopicDeleted | GroupDeleted
) -> None:
    """Apply one event, in place; commits that it contains, resets or deletes are forgotten."""
    match event:
        case ProgressRecorded(group, offsets):
            for topic, queues in offsets.items():
                _move(progress.table, group, topic, queues)
                kept = progress.unrecorded.get(group, {}).get(topic, {})
                held = [queue for queue, offset in queues.items() if kept.get(queue) == offset]
                _move(progress.unrecorded, group, topic, dict.fromkeys(held))
        case OffsetsReset(group, topic, moved):
            _move(progress.table, group, topic, moved)
            _move(progress.unrecorded, group, topic, dict.fromkeys(moved))
        case TopicDeleted():
            for table in (progress.table, progress.unrecorded):
                for group in [
                    name for name, topics in table.items() if event.before.name in topics
                ]:
                    _drop_topic(table, group, event.before.name)
        case GroupDeleted():
            if event.remove_offset:
                progress.table.pop(event.before.name, None)
                progress.unrecorded.pop(event.before.name, None)


def _move(table: Table, group: str, topic: str, offsets: Mapping[int, int | None]) -> None:
    queues = table.setdefault(group, {}).setdefault(topic, {})
    for queue_id, offset in offsets.items():
        if offset is None:
            queues.pop(queue_id, None)
        else:
            queues[queue_id] = offset
    if not queues:
        _drop_topic(table, group, topic)


def _drop_topic(table: Table, group: str, topic: str) -> None:
    topics = table[group]
    topics.pop(topic, None)
    if not topics:
        del table[group]


def yield_to(progress: ConsumerProgress, event: ProgressRecorded | OffsetsReset) -> None:
    """Forget commits about the queues in another broker's event, which takes precedence."""
    moved = event.offsets if isinstance(event, ProgressRecorded) else {event.topic: event.offsets}
    for topic, queues in moved.items():
        if topic in progress.unrecorded.get(event.group, {}):
            _move(progress.unrecorded, event.group, topic, dict.fromkeys(queues))


# -- commits that are not recorded yet ------------------------------------------------------------


class Commits:
    """Accepts commits of groups, returns their offsets, and decides when to record them.

    `interval_ms` is flushConsumerOffsetInterval: changed offsets are recorded once in this time.
    """

    __slots__ = ("_next_record_ms", "_progress", "interval_ms")

    def __init__(self, progress: ConsumerProgress, interval_ms: int = 5_000) -> None:
        assert interval_ms > 0, interval_ms
        self.interval_ms = interval_ms
        self._progress = progress
        self._next_record_ms: int | None = None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the group's next offset, lower than before or not. Raises BadRequest.

        The caller has checked that group and topic exist, or at least have valid names.
        """
        if not 0 <= offset <= OFFSET_MAX:
            raise BadRequest(f"offset {offset} is negative or too large")
        if not 0 <= queue_id < TOPIC_QUEUES_MAX:
            raise BadRequest(f"queue ID {queue_id} is negative or too large")
        if self._progress.offset(group, topic, queue_id) != offset:
            topics = self._progress.unrecorded.setdefault(group, {})
            topics.setdefault(topic, {})[queue_id] = offset

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the current offset, recorded or not; None for a queue never committed."""
        return self._progress.offset(group, topic, queue_id)

    def queues(self, group: str, topic: str) -> QueueTable:
        """Return the current offsets of one group in one topic, as a separate table."""
        recorded = self._progress.table.get(group, {}).get(topic, {})
        lately = self._progress.unrecorded.get(group, {}).get(topic, {})
        return {**recorded, **lately}

    def topics(self, group: str) -> list[str]:
        """Return the topics in which the group has offsets, sorted."""
        recorded = self._progress.table.get(group, {})
        return sorted({*recorded, *self._progress.unrecorded.get(group, {})})

    def groups(self, topic: str | None = None) -> list[str]:
        """Return the groups with offsets (in `topic`, if given), sorted."""
        return sorted(
            {
                group
                for table in (self._progress.table, self._progress.unrecorded)
                for group, topics in table.items()
                if topic is None or topic in topics
            }
        )

    def entries(self) -> Iterator[tuple[str, str, QueueTable]]:
        """Yield current offsets as (group, topic, queue ID -> offset): `consumerOffset.json`."""
        for group in self.groups():
            for topic in self.topics(group):
                yield group, topic, self.queues(group, topic)

    def due(self, now_ms: int) -> list[Event]:
        """Return `record()` if offsets changed and the interval is over (monotonic ms)."""
        if not self._progress.unrecorded:
            self._next_record_ms = None
            return []
        if self._next_record_ms is None:
            self._next_record_ms = now_ms + self.interval_ms
        if now_ms < self._next_record_ms:
            return []
        self._next_record_ms = now_ms + self.interval_ms
        return self.record()

    def record(self) -> list[Event]:
        """Return one ProgressRecorded per changed group, now (a broker that stops calls this).

        A group with very many queues gets several. The commits are forgotten only when these events
        are evolved: if the log cannot store them, they are tried again.
        """
        unrecorded = self._progress.unrecorded
        return [event for group in sorted(unrecorded) for event in _cut(group, unrecorded[group])]


def _cut(group: str, topics: TopicTable) -> list[Event]:
    events: list[Event] = []
    part: dict[str, QueueTable] = {}
    room = PROGRESS_EVENT_ENTRIES_MAX
    for topic, queues in topics.items():
        rest = list(queues.items())
        while rest:
            part[topic] = dict(rest[:room])
            rest = rest[room:]
            room -= len(part[topic])
            if room == 0:
                events.append(ProgressRecorded(group, part))
                part, room = {}, PROGRESS_EVENT_ENTRIES_MAX
    if part:
        events.append(ProgressRecorded(group, part))
    return events


# -- decide ---------------------------------------------------------------------------------------


def decide_reset(
    commits: Commits, group: str, topic: str, offsets: Mapping[int, int | None]
) -> list[Event]:
    """Set a group's offsets in one topic; None removes an entry. Raises BadRequest."""
    names.check_group(group)
    names.check_topic(topic)
    before: dict[int, int | None] = {}
    moved: dict[int, int | None] = {}
    for queue_id, offset in offsets.items():
        if not 0 <= queue_id < TOPIC_QUEUES_MAX:
            raise BadRequest(f"queue ID {queue_id} is negative or too large")
        if offset is not None and not 0 <= offset <= OFFSET_MAX:
            raise BadRequest(f"offset {offset} of queue {queue_id} is negative or too large")
        old = commits.offset(group, topic, queue_id)
        if old != offset:
            before[queue_id], moved[queue_id] = old, offset
    return [OffsetsReset(group, topic, moved, before)] if moved else []


def decide_clone(
    commits: Commits, source: str, target: str, topic: str | None = None
) -> list[Event]:
    """Copy the offsets of `source` to `target`, in one topic or all (314). Raises Rejected."""
    names.check_group(source)
    if source == target:
        raise BadRequest(f"group {source} cannot be cloned to itself")
    topics = commits.topics(source) if topic is None else [topic]
    return [
        event
        for each in topics
        # The source's own retry topic is meaningless to another group.
        if each != names.retry_topic(source)
        for event in decide_reset(commits, target, each, {**commits.queues(source, each)})
    ]
