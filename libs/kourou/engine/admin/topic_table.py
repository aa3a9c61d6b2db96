"""The topics of this broker, their queues, and their permissions.

State: projection of TopicPut and TopicDeleted. The owner of `TopicAggregate` evolves it: `evolve`
changes it in place and costs the same with ten topics as with ten thousand (decision 0010).

Invariants:
- `version.counter` grows by one with every event that changes the table
- no command creates two topics whose names differ only in case (an import may)
- no command creates write queues that cannot be read, unless forced
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kourou.engine.admin.config_table import ConfigTable
from kourou.engine.policy import TopicRules
from kourou.errors import BadRequest, Rejected, TopicNotFound
from kourou.events.control_events import Event, TopicDeleted, TopicPut
from kourou.model import names
from kourou.model.limits import TOPIC_QUEUES_MAX, TOPICS_MAX
from kourou.model.topic import DataVersion, Permission, TopicConfig
from kourou.runtime import user_of_actor

SCHEDULE_QUEUES = 18
CLUSTER_TOPIC_QUEUES = 16
BENCHMARK_QUEUES = 1024
FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})
PERM_MAX = Permission.READ_WRITE | Permission.INHERIT


@dataclass(slots=True)
class TopicAggregate(ConfigTable[TopicConfig]):
    """The table of topics.

    `retired` has the ends of deleted topics' queues (topic -> queue ID -> offset). An end is needed
    until the topic exists again and that queue is longer.
    """

    retired: dict[str, dict[int, int]] = field(default_factory=dict)

    def copy(self) -> TopicAggregate:
        """Return an independent copy: changes of one do not affect the other. O(topics)."""
        retired = {topic: dict(queues) for topic, queues in self.retired.items()}
        creators = dict(self.creators)
        return TopicAggregate(dict(self.table), self.version, self.folded.copy(), creators, retired)


def topics_of(
    table: Collection[TopicConfig],
    version: DataVersion,
    retired: dict[str, dict[int, int]],
    creators: Mapping[str, str] = MappingProxyType({}),
) -> TopicAggregate:
    """Return the state with these topics, as read from a snapshot."""
    topics = TopicAggregate(version=version, retired=retired, creators=dict(creators))
    for config in table:
        topics.put(config)
    return topics


# -- evolve ---------------------------------------------------------------------------------------


def evolve(
    topics: TopicAggregate, event: TopicPut | TopicDeleted, at_ms: int, actor: str = ""
) -> None:
    """Apply one event, in place; `actor` caused it."""
    if isinstance(event, TopicPut):
        caused = _is_of_a_group(event.topic.name)
        topics.put(event.topic, "" if caused else user_of_actor(actor))
    else:
        topics.remove(event.before.name)
        if event.next_offsets:
            topics.retired.setdefault(event.before.name, {}).update(event.next_offsets)
    topics.changed(at_ms)


def _is_of_a_group(name: str) -> bool:
    """Whether consumers cause it: they do not choose to create it, so it has no creator."""
    return name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))


# -- decide: requests of administrators -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unread:
    """Messages of a read queue that one group has yet to consume."""

    group: str
    queue_id: int
    count: int


def decide_put(
    topics: TopicAggregate,
    rules: TopicRules,
    wanted: TopicConfig,
    *,
    forced: bool = False,
    unread: Sequence[Unread] = (),
) -> list[Event]:
    """Create or change a topic.

    `forced` accepts changes that lose messages: more write than read queues, or the removal of read
    queues that groups in `unread` have not consumed. `order` keeps its value, because it belongs to
    the name server's order configuration, as in RocketMQ. Raises Rejected.
    """
    name = names.check_topic(wanted.name)
    if rules.owns(name):
        raise Rejected(f"topic {name} is internal and cannot be changed")
    _check_perm(wanted.perm)
    _check_queues("readQueueNums", wanted.read_queue_nums)
    _check_queues("writeQueueNums", wanted.write_queue_nums)
    if wanted.topic_filter_type not in FILTER_TYPES:
        raise BadRequest(
            f"topicFilterType is {wanted.topic_filter_type!r}", hint="use SINGLE_TAG or MULTI_TAG"
        )
    before = topics.get(name)
    if before is None:
        topics.check_new("topic", name, TOPICS_MAX)
    else:
        wanted = replace(wanted, order=before.order)
    if wanted == before:
        return []
    if not forced:
        _check_readable(before, wanted)
        _check_shrink(before, wanted, unread)
    return [TopicPut(wanted, before)]


def decide_delete(
    topics: TopicAggregate,
    rules: TopicRules,
    name: str,
    next_offsets: Mapping[int, int] | None = None,
) -> list[Event]:
    """Delete a topic; a missing one is not an error, as in RocketMQ. Raises Rejected.

    `next_offsets`: the ends of its queues.
    """
    names.check_topic(name)
    if rules.owns(name):
        raise Rejected(f"topic {name} is internal and cannot be deleted")
    before = topics.get(name)
    return [] if before is None else [TopicDeleted(before, dict(next_offsets or {}))]


def _check_perm(perm: int) -> None:
    if not 0 <= perm <= PERM_MAX:
        raise BadRequest(
            f"perm is {perm}",
            hint="use 2 (write), 4 (read), 6 (both) or 0 (neither); add 1 to let new "
            "topics inherit from it",
        )


def _check_queues(what: str, count: int) -> None:
    if not 1 <= count <= TOPIC_QUEUES_MAX:
        raise BadRequest(f"{what} is {count}; it must be between 1 and {TOPIC_QUEUES_MAX}")


def _check_readable(before: TopicConfig | None, wanted: TopicConfig) -> None:
    """Refuse write queues that are not read queues: their messages could never be read."""
    if wanted.write_queue_nums <= wanted.read_queue_nums:
        return
    if before is not None and (before.read_queue_nums, before.write_queue_nums) == (
        wanted.read_queue_nums,
        wanted.write_queue_nums,
    ):
        return
    raise Rejected(
        f"topic {wanted.name} would have {wanted.write_queue_nums} write queues "
        f"but only {wanted.read_queue_nums} read queues: messages in the other "
        "queues could not be consumed",
        hint="raise readQueueNums first; to shrink, lower writeQueueNums first",
    )


def _check_shrink(
    before: TopicConfig | None, wanted: TopicConfig, unread: Sequence[Unread]
) -> None:
    """Refuse to remove a read queue that a group has not consumed."""
    if before is None or wanted.read_queue_nums >= before.read_queue_nums:
        return
    for left in unread:
        if left.queue_id >= wanted.read_queue_nums and left.count > 0:
            raise Rejected(
                f"group {left.group} has {left.count} messages to consume in queue "
                f"{left.queue_id} of {wanted.name}, which would no longer be readable",
                hint="wait until they are consumed, then lower readQueueNums",
            )


# -- decide: automatic changes --------------------------------------------------------------------


def decide_auto_create(
    topics: TopicAggregate,
    rules: TopicRules,
    name: str,
    *,
    default_topic: str,
    default_queue_nums: int,
    topic_sys_flag: int = 0,
) -> list[Event]:
    """Create a missing topic that a producer sends to, if allowed, as RocketMQ does.

    Queues = min(the producer's default, the default topic's write queues), perm = the default
    topic's without INHERIT. Raises TopicNotFound (17) if the topic must not be created.
    """
    if name in topics:
        return []
    names.check_topic(name)
    missing = f"topic {name} does not exist"
    # Clients that trace expect their topic to be created, as RocketMQ does.
    own = rules.owns(name) and name not in (names.TRACE_TOPIC, rules.trace_topic_name)
    if own or name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        raise TopicNotFound(missing, hint="topics with this name are not created by sending")
    if not rules.auto_create:
        raise TopicNotFound(missing, hint="create it: autoCreateTopicEnable is false")
    template = topics.get(default_topic)
    if template is None or not template.perm & Permission.INHERIT:
        raise TopicNotFound(
            missing, hint=f"create it: {default_topic} does not allow new topics to inherit from it"
        )
    queues = min(default_queue_nums, template.write_queue_nums)
    _check_queues("defaultTopicQueueNums", queues)
    topics.check_new("topic", name, TOPICS_MAX)
    created = TopicConfig(
        name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=int(template.perm & ~Permission.INHERIT),
        topic_filter_type=template.topic_filter_type,
        topic_sys_flag=topic_sys_flag,
    )
    return [TopicPut(created)]


def decide_retry_topic(topics: TopicAggregate, group: str, retry_queue_nums: int) -> list[Event]:
    """Create the topic for a group's failed messages, when it is first needed."""
    return _decide_own(topics, names.retry_topic(names.check_group(group)), retry_queue_nums)


def decide_dlq_topic(topics: TopicAggregate, group: str) -> list[Event]:
    """Create the topic for a group's dead letters: one queue, read and write as in 4.9.8."""
    return _decide_own(topics, names.dlq_topic(names.check_group(group)), 1)


def decide_transaction_topics(topics: TopicAggregate) -> list[Event]:
    """Create the topics of transactions, on first use, as RocketMQ does."""
    return [
        event
        for name in (names.HALF_TOPIC, names.OP_TOPIC, names.CHECK_GIVEN_UP_TOPIC)
        for event in _decide_own(topics, name, 1)
    ]


def _decide_own(topics: TopicAggregate, name: str, queues: int) -> list[Event]:
    if name in topics:
        return []
    # A group without retries still subscribes to its retry topic, so one queue must exist.
    queues = min(max(queues, 1), TOPIC_QUEUES_MAX)
    return [TopicPut(TopicConfig(name, queues, queues))]


def decide_start(topics: TopicAggregate, rules: TopicRules) -> list[Event]:
    """Create the broker's own topics at start, unless they exist, as RocketMQ does."""
    return [TopicPut(config) for config in start_topics(rules) if config.name not in topics]


def start_topics(rules: TopicRules) -> list[TopicConfig]:
    """Return the topics of `decide_start`, without a broker name that is invalid (dots)."""
    inherit = Permission.READ_WRITE | Permission.INHERIT
    cluster_perm = inherit if rules.cluster_topic else Permission.INHERIT
    broker_perm = inherit if rules.broker_topic else Permission.INHERIT
    both = int(Permission.READ_WRITE)
    wanted: list[tuple[str, int, int]] = []
    if rules.auto_create:
        wanted.append((names.AUTO_CREATE_TOPIC, rules.default_queue_nums, int(inherit)))
    wanted += [
        (rules.cluster_name, CLUSTER_TOPIC_QUEUES, int(cluster_perm)),
        (rules.broker_name, 1, int(broker_perm)),
        (names.SELF_TEST_TOPIC, 1, both),
        (names.OFFSET_MOVED_TOPIC, 1, both),
        (names.reply_topic(rules.cluster_name), 1, both),
        (names.BENCHMARK_TOPIC, BENCHMARK_QUEUES, both),
        (names.SCHEDULE_TOPIC, SCHEDULE_QUEUES, both),
        (names.CONTROL_TOPIC, 1, both),
    ]
    if rules.trace_topic:
        wanted.append((rules.trace_topic_name, 1, both))
    by_name: dict[str, TopicConfig] = {}
    for name, queues, perm in wanted:
        if _can_be_topic(name):
            by_name.setdefault(name, TopicConfig(name, queues, queues, perm))
    return list(by_name.values())


def _can_be_topic(name: str) -> bool:
    try:
        names.check_topic(name)
    except BadRequest:
        return False
    return True
