"""Clients' and operators' requests about topics, and replies that wait for a registration.

State: soft: the replies that wait until the name servers know a new topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kourou.access.model import ResourceType
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.admin.topic_table import (
    Unread,
    decide_auto_create,
    decide_delete,
    decide_put,
    decide_start,
)
from kourou.engine.context import BrokerContext
from kourou.engine.control import decide_retry_topic
from kourou.engine.effects import Announce, DropTopic, Effect
from kourou.engine.policy import TopicRules
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.errors import TopicNotFound
from kourou.events.control_events import Cause, Event, SettingChanged
from kourou.model.names import RETRY_PREFIX, is_system_topic
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.config_bodies import encode_topic_configs
from kourou.protocol.bodies.lists_body import encode_group_list
from kourou.protocol.bodies.route_bodies import encode_topic_list
from kourou.protocol.bodies.statistics_bodies import TopicOffset, encode_topic_stats
from kourou.protocol.messages.broker_admin import (
    CleanUnusedTopic,
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)
from kourou.protocol.request import Request
from kourou.runtime import Peer, Received, Reply, ReplyTo


class TopicHandler:
    """Handles requests about topics; `rules` change with the settings that they come from."""

    def __init__(
        self,
        context: BrokerContext,
        pulls: PullHandler,
        rules: TopicRules,
        gate: AccessGate,
        quotas: QuotaGate,
    ) -> None:
        self._gate = gate
        self._quotas = quotas
        self._control = context.control
        self._commits = context.commits
        self._members = context.members
        self._recorder = context.recorder
        self._appends = context.appends
        self._pending_replies = context.pending_replies
        self._pulls = pulls
        self._view = context.view
        self.rules = rules
        self._broker_name = context.policy.broker_name

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            UpdateAndCreateTopic: self.put,
            DeleteTopicInBroker: self.delete,
            GetAllTopicConfig: self.all,
            GetTopicStatsInfo: self.stats,
            QueryTopicConsumeByWho: self.consumed_by,
            GetSystemTopicListFromBroker: self.system_topics,
            CleanUnusedTopic: self.clean_unused,
        }

    def ensure(
        self, name: str, default_topic: str, default_nums: int, received: Received
    ) -> TopicConfig:
        """Return the topic a client sends to, created if the rules allow it; raises Rejected."""
        topic = self._control.topics.get(name)
        if topic is not None:
            return topic
        if name.startswith(RETRY_PREFIX):
            events = decide_retry_topic(self._control, name.removeprefix(RETRY_PREFIX))
        else:
            self._quotas.check_new_topic(received, name)
            events = decide_auto_create(
                self._control.topics,
                self.rules,
                name,
                default_topic=default_topic,
                default_queue_nums=default_nums,
            )
        cause = Cause(received.actor, "first send to the topic")
        self._recorder.record(events, cause, received.wall_ms)
        return self._control.topics.table[name]

    def wanted_by(self, changes: Sequence[Event]) -> list[Event]:
        """Return topics that changed settings require: auto-creation needs its template topic."""
        for change in changes:
            if isinstance(change, SettingChanged) and change.name == "autoCreateTopicEnable":
                rules = replace(self.rules, auto_create=change.value is True)
                return decide_start(self._control.topics, rules)
        return []

    def put(self, now_ms: int, received: Received, request: UpdateAndCreateTopic) -> list[Effect]:
        """Create or change a topic (17); the reply waits until the change is committed."""
        wanted = TopicConfig(
            request.topic,
            request.read_queue_nums,
            request.write_queue_nums,
            request.perm,
            request.topic_filter_type,
            request.topic_sys_flag,
            request.order,
        )
        events = decide_put(
            self._control.topics, self.rules, wanted, unread=self.unread(request.topic)
        )
        self._quotas.check_new_topic(received, request.topic)
        effects = self._pending_replies.decided(now_ms, received, events)
        return effects + self._pulls.topic_changed(now_ms, request.topic)

    def delete(self, now_ms: int, received: Received, request: DeleteTopicInBroker) -> list[Effect]:
        """Delete a topic and its queues (215)."""
        ended = self._appends.ends(request.topic)
        events = decide_delete(self._control.topics, self.rules, request.topic, ended)
        effects = self._pending_replies.decided(now_ms, received, events)
        return effects + self._pulls.topic_changed(now_ms, request.topic)

    def all(self, _now_ms: int, received: Received, _request: GetAllTopicConfig) -> list[Effect]:
        """Reply with every topic's configuration (21), as far as the sender sees the topic."""
        topics, sees = self._control.topics, self._gate.sees(received)
        seen = [topic for topic in topics if sees(ResourceType.TOPIC, topic.name)]
        return [Reply(received.to, body=(encode_topic_configs(seen, topics.version),))]

    def stats(self, _now_ms: int, received: Received, request: GetTopicStatsInfo) -> list[Effect]:
        """Reply with bounds and last store time of every queue of a topic (202)."""
        topic = self._topic(request.topic)
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            low, high = self._view.queue_range(topic.name, queue_id) or (0, 0)
            at_ms = self._view.store_time(topic.name, queue_id, high - 1) if high > low else 0
            table[MessageQueue(topic.name, self._broker_name, queue_id)] = TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=max(at_ms, 0)
            )
        return [Reply(received.to, body=(encode_topic_stats(table),))]

    def consumed_by(
        self, _now_ms: int, received: Received, request: QueryTopicConsumeByWho
    ) -> list[Effect]:
        """Reply with the groups that subscribe to a topic or have offsets in it (300).

        Only groups that the sender sees.
        """
        self._topic(request.topic)
        groups = set(self._commits.groups(request.topic))
        for name in self._members.consumer_groups():
            group = self._members.consumer_group(name)
            if group is not None and request.topic in group.subscriptions:
                groups.add(name)
        sees = self._gate.sees(received)
        seen = [name for name in sorted(groups) if sees(ResourceType.GROUP, name)]
        return [Reply(received.to, body=(encode_group_list(seen),))]

    def system_topics(
        self, _now_ms: int, received: Received, _request: GetSystemTopicListFromBroker
    ) -> list[Effect]:
        """Reply with the topics that the broker itself owns (305)."""
        names = sorted(topic.name for topic in self._control.topics if is_system_topic(topic.name))
        return [Reply(received.to, body=(encode_topic_list(names),))]

    def clean_unused(
        self, _now_ms: int, received: Received, _request: CleanUnusedTopic
    ) -> list[Effect]:
        """Delete queues whose topic is not in the table (316).

        A topic that is deleted here loses its queues at once; a store that RocketMQ wrote may have
        some left.
        """
        topics = self._control.topics
        unused = [name for name in self._view.topics() if name not in topics]
        gone = [DropTopic(name) for name in unused if not is_system_topic(name)]
        return [*gone, Reply(received.to)]

    def _topic(self, name: str) -> TopicConfig:
        topic = self._control.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic

    def unread(self, name: str) -> list[Unread]:
        """Return what each group has yet to consume in each queue of a topic."""
        topic = self._control.topics.get(name)
        if topic is None:
            return []
        left: list[Unread] = []
        for queue_id in range(topic.read_queue_nums):
            span = self._view.queue_range(name, queue_id)
            if span is None:
                continue
            for group in self._commits.groups(name):
                offset = self._commits.offset(group, name, queue_id)
                count = span[1] - max(span[0], offset or 0)
                if count > 0:
                    left.append(Unread(group, queue_id, count))
        return left


ANNOUNCE_WAIT_MS = 6_000
"""[RMQ] registerBrokerTimeoutMills"""

_Name = tuple[int, int]


@dataclass(slots=True)
class _Waiting:
    """The reply to one request, once it exists, and the registration that it waits for."""

    number: int
    deadline_ms: int
    reply: Reply | None = None


class TopicRegistration:
    """The numbered registrations of one broker, and the replies that depend on them.

    State: soft. After a restart the broker owes no replies and registers again.

    RocketMQ registers before it replies to such a request, and clients rely on it: a client that
    finds no route retries only after 10 or 30 s. The broker does not wait for a name server that is
    unreachable, and waits at most ANNOUNCE_WAIT_MS for a slow one.
    """

    def __init__(self) -> None:
        self._number = 0
        self._known = 0
        self._waiting: dict[_Name, _Waiting] = {}

    @property
    def waiting(self) -> int:
        """The number of requests whose new topic is not known to all name servers yet."""
        return len(self._waiting)

    def number(self, now_ms: int, effects: Sequence[Effect], to: ReplyTo | None = None) -> None:
        """Number the registrations in `effects`; the reply to the request `to` waits for them."""
        for effect in effects:
            if type(effect) is Announce:
                self._number += 1
                effect.number = self._number
                if to is not None and not to.oneway:
                    wait = _Waiting(self._number, now_ms + ANNOUNCE_WAIT_MS)
                    self._waiting[_name(to)] = wait

    def gate(self, effects: list[Effect]) -> list[Effect]:
        """Return `effects` without the replies that must wait."""
        if not self._waiting:
            return effects
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Reply:
                wait = self._waiting.get(_name(effect.to))
                if wait is not None and wait.number > self._known and not effect.code:
                    wait.reply = effect
                    continue
                if wait is not None:  # known by now, or the request failed
                    del self._waiting[_name(effect.to)]
            passed.append(effect)
        return passed

    def completed(self, number: int) -> list[Effect]:
        """Release replies: every reachable name server knows the registrations up to `number`."""
        self._known = max(self._known, number)
        return self._release([n for n, one in self._waiting.items() if one.number <= self._known])

    def expire(self, now_ms: int) -> list[Effect]:
        """Release replies that waited too long; their requests took effect all the same."""
        if not self._waiting:
            return []
        return self._release([n for n, one in self._waiting.items() if one.deadline_ms <= now_ms])

    def drop_peer(self, peer: Peer) -> None:
        """Drop the waiting replies of a closed connection."""
        for name in [name for name in self._waiting if name[0] == peer.id]:
            del self._waiting[name]

    def _release(self, names: Sequence[_Name]) -> list[Effect]:
        """Return the replies that exist; a reply that comes later will not wait."""
        waited = [self._waiting.pop(name) for name in names]
        return [one.reply for one in waited if one.reply is not None]


def _name(to: ReplyTo) -> _Name:
    return to.peer.id, to.correlation
