"""What others may read of a broker's core: for metrics, registration, files and role sessions.

Reading changes nothing. A change is an input of the core.

State: none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kourou.authorization.request_gate import DecisionCounts
from kourou.engine.admin.quota_gate import QuotaOutcome
from kourou.engine.control import ControlState
from kourou.engine.delays.delivery import DelayFigures
from kourou.engine.disk_pressure import DiskPressure
from kourou.engine.groups.membership import GroupMembership
from kourou.engine.groups.progress import Commits
from kourou.engine.parts import BrokerParts
from kourou.engine.policy import EffectivePolicy, TopicRules
from kourou.engine.ports import StoreView
from kourou.engine.statistics import Statistics, Traffic
from kourou.events.control_events import Event
from kourou.model.quota import QuotaUnit
from kourou.protocol.bodies.broker_bodies import ReplicasView

if TYPE_CHECKING:
    from kourou.access.plain_acl import ImportedAcl

TopicGroupCounts = Mapping[tuple[str, str], int]


class CoreView:
    """A read-only view of one core; its values are those of the moment of the call.

    The objects that it returns belong to the core: they must not be changed.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    @property
    def policy(self) -> EffectivePolicy:
        """The settings in effect, with dynamic changes."""
        return self._parts.policy

    @property
    def control(self) -> ControlState:
        """The control state: topics, groups, users, filters, replicas, progress."""
        return self._parts.control

    @property
    def store_view(self) -> StoreView:
        """What the core reads of the store."""
        return self._parts.view

    @property
    def traffic(self) -> Traffic:
        """Counts of messages in and out."""
        return self._parts.traffic

    @property
    def commits(self) -> Commits:
        """The committed offsets of consumer groups."""
        return self._parts.commits

    @property
    def membership(self) -> GroupMembership:
        """The connected producers and consumers."""
        return self._parts.membership

    @property
    def statistics(self) -> Statistics:
        """The samples of the last minutes, hours and days."""
        return self._parts.statistics

    @property
    def pressure(self) -> DiskPressure:
        """How full the disk is, and what follows from that."""
        return self._parts.pressure

    @property
    def topic_rules(self) -> TopicRules:
        """The rules for topics that clients create."""
        return self._parts.topic_handler.rules

    # -- the log and its replicas -------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this broker writes the log; a follower copies it."""
        return self._parts.role.leads

    @property
    def elected(self) -> bool:
        """Whether a Raft group elects the leader."""
        return self._parts.role.elected

    @property
    def is_copying(self) -> bool:
        """Whether this broker copies the log of a leader that it is attached to."""
        return self._parts.role.is_copying

    @property
    def followers_have(self) -> int:
        """All attached followers have the log below this position; ANYWHERE without any."""
        return self._parts.role.followers_have

    def replicas(self, now_ms: int) -> ReplicasView:
        """Return what this broker knows of the replicas of its log."""
        return self._parts.role.status(now_ms)

    @property
    def committed(self) -> int:
        """The committed position: readers see the records below it."""
        return self._parts.confirmations.confirmed

    @property
    def failed(self) -> str | None:
        """Why nothing more is stored; None while the store works."""
        return self._parts.confirmations.failed

    @property
    def pending_replies(self) -> int:
        """The number of senders whose reply waits for a commit."""
        return self._parts.confirmations.pending

    # -- requests and clients -----------------------------------------------------------------

    @property
    def access_decisions(self) -> DecisionCounts:
        """How many requests were allowed and refused."""
        return self._parts.access_gate

    def import_events(self, found: ImportedAcl) -> Sequence[Event]:
        """Return the events that import these users. Raises Rejected."""
        events, _ = self._parts.plain_acl_handler.decide_import(found)
        return events

    @property
    def quotas(self) -> int:
        """The number of configured quotas."""
        return self._parts.quota_gate.configured

    @property
    def quota_held(self) -> int:
        """The number of requests that wait for a quota."""
        return self._parts.quota_gate.held

    @property
    def quota_counts(self) -> Mapping[tuple[QuotaUnit, QuotaOutcome], int]:
        """Requests above a quota, by unit and by what happened to them."""
        return self._parts.quota_gate.counts

    @property
    def parked_pulls(self) -> int:
        """The number of parked pulls."""
        return self._parts.pulls.held

    @property
    def queue_locks(self) -> Mapping[str, int]:
        """How many queues are locked, by group."""
        return self._parts.locks.counts()

    @property
    def filter_counts(self) -> Mapping[str, int]:
        """Counts of Python filters and filter servers."""
        return self._parts.filter_handler.statistics()

    @property
    def filter_listeners(self) -> Sequence[dict[str, str]]:
        """The listeners of each filter server."""
        return self._parts.filter_servers.reported()

    # -- delays, retries, transactions --------------------------------------------------------

    @property
    def delay_figures(self) -> DelayFigures:
        """Counts of delayed messages since the start."""
        return self._parts.delays.figures

    @property
    def delayed_waiting(self) -> Mapping[int, int]:
        """How many messages wait, by delay level."""
        return self._parts.delays.waiting()

    @property
    def delay_bounds(self) -> Mapping[int, tuple[int, int]]:
        """The next offset and the end of each delay level."""
        return self._parts.delays.bounds()

    @property
    def delay_offsets(self) -> dict[int, int]:
        """The progress of each delay level that is on disk."""
        return self._parts.delays.safe_offsets()

    @property
    def next_delayed_ms(self) -> int | None:
        """When the next delayed message is due; None if none waits."""
        return self._parts.delays.next_due_ms()

    @property
    def sent_back(self) -> TopicGroupCounts:
        """Messages that consumers sent back, by (topic, group)."""
        return self._parts.send_back.sent_back

    @property
    def dead_letters(self) -> TopicGroupCounts:
        """Messages that became dead letters, by (topic, group)."""
        return self._parts.send_back.dead

    @property
    def half_messages(self) -> int:
        """The number of transactions that are not resolved."""
        return len(self._parts.transactions.halves)

    @property
    def transactions_resolved(self) -> Mapping[str, int]:
        """Resolved transactions by outcome."""
        return self._parts.transactions.resolved

    @property
    def transactions_by_topic(self) -> Mapping[tuple[str, str], int]:
        """Resolved transactions by (topic, outcome)."""
        return self._parts.transactions.resolved_by_topic

    @property
    def check_backs_sent(self) -> int:
        """How many check-backs went to producers."""
        return self._parts.check_backs.asked

    @property
    def check_backs_without_producer(self) -> int:
        """How many check-backs had no producer."""
        return self._parts.check_backs.unasked

    # -- retention ----------------------------------------------------------------------------

    @property
    def segments_deleted(self) -> Mapping[str, int]:
        """Deleted segments by reason."""
        return self._parts.retention.deleted

    @property
    def unread_expiring(self) -> TopicGroupCounts:
        """Unread messages that expire soon, by (topic, group)."""
        return self._parts.retention.unread_expiring

    @property
    def unread_deleted(self) -> TopicGroupCounts:
        """Messages that were deleted unread, by (topic, group)."""
        return self._parts.retention.unread_deleted
