"""All decisions of operators, clients and the cluster, as one state.

State: projection of the control stream. Its owner evolves it in place, so that an event costs the
same with ten topics as with ten thousand (decision 0010). Later events do not affect a `copy` or a
snapshot.

Invariants:
- `evolve` is total and deterministic: the same events give an equal state, live or replayed
- `next_offset` is the number of applied events; `at_ms` never decreases
- equal states encode to the same snapshot bytes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.authorization import access_table as access_rules
from kourou.authorization.access_table import AccessAggregate, AccessSnapshot, access_of
from kourou.engine.admin import quota_table as quota_rules
from kourou.engine.admin import topic_table as topic_rules
from kourou.engine.admin.quota_table import QuotaAggregate, quotas_of
from kourou.engine.admin.topic_table import TopicAggregate, topics_of
from kourou.engine.filters import filter_table as filter_rules
from kourou.engine.filters.filter_table import FilterAggregate, FiltersSnapshot, filters_of
from kourou.engine.groups import group_table as group_rules
from kourou.engine.groups import progress as progress_rules
from kourou.engine.groups import queue_locks as lock_rules
from kourou.engine.groups.group_table import GroupAggregate, groups_of
from kourou.engine.groups.progress import Commits, ConsumerProgress, TopicTable
from kourou.engine.groups.queue_locks import LockOwners
from kourou.engine.policy import TopicRules
from kourou.engine.roles import replicas as replica_rules
from kourou.engine.roles.replicas import ReplicaAggregate, ReplicasSnapshot, replicas_of
from kourou.engine.transactions import batches as batch_rules
from kourou.engine.transactions.batches import Batches
from kourou.errors import DecodeError, GroupNotFound
from kourou.events.control_events import (
    AccessEventBase,
    BatchEventBase,
    Event,
    EventLost,
    FilterEventBase,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    ProgressRecorded,
    QueueLocksChanged,
    QuotaEventBase,
    Recorded,
    ReplicationEventBase,
    Scalar,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    UnknownEvent,
)
from kourou.events.stream import StreamKind
from kourou.model.names import is_system_group
from kourou.model.quota import Quota
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.model.transaction import BatchQuery
from kourou.settings import registry as settings_rules
from kourou.settings.registry import ChangedSettings

SNAPSHOT_FORMAT = 1


@dataclass(slots=True)
class ControlState:
    """The state after the first `next_offset` events of the control stream."""

    topics: TopicAggregate = field(default_factory=TopicAggregate)
    groups: GroupAggregate = field(default_factory=GroupAggregate)
    settings: ChangedSettings = field(default_factory=ChangedSettings)
    progress: ConsumerProgress = field(default_factory=ConsumerProgress)
    next_offset: int = 0
    at_ms: int = 0
    locks: LockOwners = field(default_factory=LockOwners)
    filters: FilterAggregate = field(default_factory=FilterAggregate)
    batches: Batches = field(default_factory=Batches)
    replicas: ReplicaAggregate = field(default_factory=ReplicaAggregate)
    access: AccessAggregate = field(default_factory=AccessAggregate)
    quotas: QuotaAggregate = field(default_factory=QuotaAggregate)

    def copy(self) -> ControlState:
        """Return an independent copy. O(state): for tests and tools, not for the loop."""
        return ControlState(
            self.topics.copy(),
            self.groups.copy(),
            self.settings.copy(),
            self.progress.copy(),
            self.next_offset,
            self.at_ms,
            self.locks.copy(),
            self.filters.copy(),
            self.batches.copy(),
            self.replicas.copy(),
            self.access.copy(),
            self.quotas.copy(),
        )


# -- evolve ---------------------------------------------------------------------------------------


def evolve(state: ControlState, recorded: Recorded) -> ControlState:
    """Apply one event in place and return the same object.

    Unknown events are ignored, except that one about users closes the table of users.
    """
    event, at_ms = recorded.event, recorded.at_ms
    match event:
        case ProgressRecorded() | OffsetsReset():
            progress_rules.evolve(state.progress, event)
        case TopicPut():
            topic_rules.evolve(state.topics, event, at_ms, recorded.actor)
        case TopicDeleted():
            topic_rules.evolve(state.topics, event, at_ms)
            progress_rules.evolve(state.progress, event)
        case GroupPut():
            group_rules.evolve(state.groups, event, at_ms, recorded.actor)
        case GroupDeleted():
            group_rules.evolve(state.groups, event, at_ms)
            progress_rules.evolve(state.progress, event)
        case SettingChanged():
            settings_rules.evolve(state.settings, event, at_ms)
        case QueueLocksChanged():
            lock_rules.evolve(state.locks, event)
        case FilterEventBase():
            filter_rules.evolve(state.filters, event, recorded.offset, at_ms)
        case BatchEventBase():
            batch_rules.evolve(state.batches, event, at_ms)
        case ReplicationEventBase():
            replica_rules.evolve(state.replicas, event, recorded.position)
        case AccessEventBase():
            access_rules.evolve(state.access, event, at_ms)
        case QuotaEventBase():
            quota_rules.evolve(state.quotas, event)
        case UnknownEvent() | EventLost():
            access_rules.evolve_unread(state.access, event, recorded.offset, at_ms)
        case _:
            pass
    state.next_offset = recorded.offset + 1
    state.at_ms = max(state.at_ms, at_ms)
    return state


def time_of_next(state: ControlState, wall_ms: int) -> int:
    """Return `at_ms` for an event decided now: wall time, but not before the previous event."""
    return max(state.at_ms, wall_ms)


# -- decide: decisions about more than one aggregate ----------------------------------------------


def decide_start(state: ControlState, rules: TopicRules) -> list[Event]:
    """Create the broker's own topics and groups where they are missing."""
    return [
        *topic_rules.decide_start(state.topics, rules),
        *group_rules.decide_start(state.groups),
    ]


def decide_consumer_group(state: ControlState, group: str, *, auto_create: bool) -> list[Event]:
    """Create the group and its retry topic for the heartbeat of a consumer.

    `auto_create` is autoCreateSubscriptionGroup. Raises GroupNotFound (26) or BadRequest.
    """
    config = state.groups.get(group)
    made = group_rules.decide_auto_create(state.groups, group, enabled=auto_create)
    queues = GroupConfig(group).retry_queue_nums if config is None else config.retry_queue_nums
    return [*made, *topic_rules.decide_retry_topic(state.topics, group, queues)]


def decide_retry_topic(state: ControlState, group: str) -> list[Event]:
    """Create `%RETRY%group` when a client sends to it. Raises GroupNotFound (26)."""
    config = state.groups.get(group)
    if config is None:
        raise GroupNotFound(f"consumer group {group} does not exist")
    return topic_rules.decide_retry_topic(state.topics, group, config.retry_queue_nums)


def decide_dlq_topic(state: ControlState, group: str) -> list[Event]:
    """Create `%DLQ%group` for a message whose attempts are used up. Raises GroupNotFound (26)."""
    if group not in state.groups:
        raise GroupNotFound(f"consumer group {group} does not exist")
    return topic_rules.decide_dlq_topic(state.topics, group)


def decide_delete_group(
    state: ControlState, commits: Commits, group: str, *, remove_offset: bool
) -> list[Event]:
    """Delete a group with its filters and, if requested, its offsets, which may outlive it.

    Raises Rejected.
    """
    deleted = group_rules.decide_delete(state.groups, group, remove_offset=remove_offset)
    deleted = [*filter_rules.decide_delete_of_group(state.filters, group), *deleted]
    if deleted or not remove_offset:
        return deleted
    return [
        event
        for topic in commits.topics(group)
        for event in progress_rules.decide_reset(
            commits, group, topic, dict.fromkeys(commits.queues(group, topic))
        )
    ]


def decide_import(
    state: ControlState,
    rules: TopicRules,
    *,
    topics: Mapping[str, TopicConfig],
    groups: Mapping[str, GroupConfig],
    offsets: Mapping[str, TopicTable],
) -> list[Event]:
    """Import configuration files that another broker changed, as events.

    The tables are complete: what they lack was deleted, except topics and groups of the broker
    itself. `offsets` is group -> topic -> queue ID -> offset. No change is refused, because it has
    already happened.
    """
    events: list[Event] = [
        TopicPut(config, state.topics.get(name))
        for name, config in topics.items()
        if config != state.topics.get(name)
    ]
    events += [
        TopicDeleted(config)
        for config in state.topics
        if config.name not in topics and not rules.owns(config.name)
    ]
    events += [
        GroupPut(config, state.groups.get(name))
        for name, config in groups.items()
        if config != state.groups.get(name)
    ]
    events += [
        GroupDeleted(config)
        for config in state.groups
        if config.name not in groups and not is_system_group(config.name)
    ]
    return events + _import_offsets(state.progress.table, offsets)


def _import_offsets(
    known: Mapping[str, TopicTable], offsets: Mapping[str, TopicTable]
) -> list[Event]:
    events: list[Event] = []
    for group in sorted({*known, *offsets}):
        old_topics, new_topics = known.get(group, {}), offsets.get(group, {})
        for topic in sorted({*old_topics, *new_topics}):
            old, new = old_topics.get(topic, {}), new_topics.get(topic, {})
            changed = [queue for queue in sorted({*old, *new}) if old.get(queue) != new.get(queue)]
            if changed:
                after = {queue: new.get(queue) for queue in changed}
                before = {queue: old.get(queue) for queue in changed}
                events.append(OffsetsReset(group, topic, after, before))
    return events


# -- snapshot -------------------------------------------------------------------------------------


class _Snapshot(msgspec.Struct):
    format: int
    next_offset: int
    at_ms: int
    topics: Sequence[TopicConfig]
    topics_version: DataVersion
    retired: dict[str, dict[int, int]]
    groups: Sequence[GroupConfig]
    groups_version: DataVersion
    settings: dict[str, Scalar]
    settings_version: DataVersion
    progress: dict[str, dict[str, dict[int, int]]]
    locks: lock_rules.Owners = {}
    filters: FiltersSnapshot = FiltersSnapshot()
    batches: list[tuple[str, BatchQuery]] = []
    replicas: ReplicasSnapshot = ReplicasSnapshot()
    access: AccessSnapshot = AccessSnapshot()
    quotas: list[Quota] = []
    topic_creators: dict[str, str] = {}
    group_creators: dict[str, str] = {}


class _Format(msgspec.Struct):
    format: int


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Snapshot)


def encode_state(state: ControlState) -> bytes:
    """Return the state as JSON; equal states give equal bytes."""
    return _ENCODER.encode(
        _Snapshot(
            SNAPSHOT_FORMAT,
            state.next_offset,
            state.at_ms,
            [state.topics.table[name] for name in sorted(state.topics.table)],
            state.topics.version,
            {
                topic: dict(sorted(queues.items()))
                for topic, queues in sorted(state.topics.retired.items())
            },
            [state.groups.table[name] for name in sorted(state.groups.table)],
            state.groups.version,
            dict(sorted(state.settings.values.items())),
            state.settings.version,
            {
                group: {
                    topic: dict(sorted(queues.items())) for topic, queues in sorted(topics.items())
                }
                for group, topics in sorted(state.progress.table.items())
            },
            {
                group: {
                    topic: dict(sorted(queues.items())) for topic, queues in sorted(topics.items())
                }
                for group, topics in sorted(state.locks.table.items())
            },
            filter_rules.snapshot(state.filters),
            batch_rules.snapshot(state.batches),
            replica_rules.snapshot(state.replicas),
            access_rules.snapshot(state.access),
            state.quotas.snapshot(),
            dict(sorted(state.topics.creators.items())),
            dict(sorted(state.groups.creators.items())),
        )
    )


def decode_state(snapshot: bytes) -> ControlState:
    """Return the state that `encode_state` wrote. Raises DecodeError."""
    try:
        found = msgspec.json.decode(snapshot, type=_Format).format
        if found != SNAPSHOT_FORMAT:
            raise DecodeError(
                f"the snapshot has format {found}; this version reads {SNAPSHOT_FORMAT}"
            )
        read = _DECODER.decode(snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the snapshot cannot be read: {error}") from error
    return ControlState(
        topics_of(read.topics, read.topics_version, read.retired, read.topic_creators),
        groups_of(read.groups, read.groups_version, read.group_creators),
        ChangedSettings(read.settings, read.settings_version),
        ConsumerProgress(read.progress),
        read.next_offset,
        read.at_ms,
        LockOwners(read.locks),
        filters_of(read.filters),
        batch_rules.batches_of(read.batches),
        replicas_of(read.replicas),
        access_of(read.access),
        quotas_of(read.quotas),
    )


CONTROL = StreamKind("control", ControlState, evolve, encode_state, decode_state)
"""The control stream of a broker."""
