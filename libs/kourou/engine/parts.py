"""Creates and connects the request handlers of a broker.

State: none of its own; each handler documents its state in its module.
"""

from __future__ import annotations

from collections.abc import Sequence

from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.access_handler import AccessHandler
from kourou.engine.admin.broker_handler import BrokerHandler
from kourou.engine.admin.history_handler import HistoryHandler
from kourou.engine.admin.log_handler import BootstrapHandler, LogHandler
from kourou.engine.admin.plain_acl_handler import PlainAclHandler
from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.admin.storage_quotas import StorageQuotas
from kourou.engine.admin.topic_handler import TopicHandler, TopicRegistration
from kourou.engine.delays.delivery import Delays
from kourou.engine.filters.filter_handler import FilterHandler
from kourou.engine.filters.filter_servers import FilterServerHandler, FilterServerTable
from kourou.engine.groups.client_requests import ClientRequestHandler, ClientRequests
from kourou.engine.groups.group_handler import ConsumerLagHandler, GroupHandler
from kourou.engine.groups.member_handler import LockHandler, MemberHandler
from kourou.engine.groups.queue_locks import QueueLocks
from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.policy import BrokerPolicy
from kourou.engine.pulls.moved_offsets import MovedOffsets
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.pulls.query_handler import OffsetHandler, QueryHandler
from kourou.engine.pulls.send_back import SendBackHandler
from kourou.engine.retention import RetentionHandler
from kourou.engine.sends.reply_handler import ReplyHandler
from kourou.engine.sends.send_handler import CoalescedSends, SendHandler
from kourou.engine.sends.single_sends import CoalescedSingleSends, SingleSends
from kourou.engine.start import Start, create_context
from kourou.engine.statistics import Statistics
from kourou.engine.transactions.batch_handler import BatchEnds, BatchHandler
from kourou.engine.transactions.batch_log import BatchLog
from kourou.engine.transactions.check_backs import CheckBacks
from kourou.engine.transactions.half_messages import HALF_TARGET
from kourou.engine.transactions.transaction_handler import CoalescedEnds, TransactionHandler
from kourou.events.control_events import Event, LogDeleted, UnreadSpan
from kourou.settings.declaration import settings_of

_POLICY_SETTINGS = {one.key: one for one in settings_of(BrokerPolicy)}


class BrokerParts:
    """All request handlers of one broker."""

    def __init__(self, start: Start) -> None:
        self.policy, self.control, self.view = start.policy, start.control, start.view
        self.context = context = create_context(start)
        self.traffic, self.commits = context.traffic, context.commits
        self.confirmations, self.appends = context.confirmations, context.appends
        self.recorder, self.membership = context.recorder, context.members
        self.pressure, self.redirects = context.pressure, context.redirects
        self.deduplication = context.deduplication
        self.access_gate = AccessGate(context, start.secrets, knows_replicas=start.knows_replicas)
        self.statistics = Statistics(self.traffic, self.policy.cluster_name)
        self.topic_registration = TopicRegistration()
        self.retention = RetentionHandler(context, self._waiting_before)
        self.delays = Delays(context, start.delays)
        self._create_client_handlers()
        self._create_topic_and_send_handlers(start)
        self._create_operator_handlers(start)
        self.role = start.role.create(context, self.pulls, self._apply_copied)
        self.control.access.uncopied = start.uncopied and not self.role.leads
        self.pulls.follows = not self.role.leads
        self.pulls.repairs = self.role.elected
        self.log_handler = LogHandler(context, self.role)
        self.bootstrap_handler = BootstrapHandler(context, self.retention)

    def _waiting_before(self, position: int) -> list[UnreadSpan]:
        """Return messages below a log position that are not due, or not resolved yet."""
        low, _ = self.view.queue_range(*HALF_TARGET) or (0, 0)
        halves = self.transactions.halves.spans_before(position, low)
        return self.delays.waiting_before(position) + halves

    def _create_client_handlers(self) -> None:
        """Clients, queue locks, filters, pulls and queries."""
        context = self.context
        self.locks = QueueLocks(self.control.locks)
        self.lock_handler = LockHandler(context, self.locks, self.access_gate)
        self.quota_gate = QuotaGate(context, self.access_gate)
        self.members = MemberHandler(context, self.access_gate, self.quota_gate)
        ensure_group = self.members.ensure_group
        self.filter_servers = FilterServerTable()
        self.filter_server_handler = FilterServerHandler(
            context, self.filter_servers, self.access_gate, self.quota_gate
        )
        self.filter_handler = FilterHandler(
            context, self.filter_servers, ensure_group, self.access_gate
        )
        self.pulls = PullHandler(
            context, ensure_group, MovedOffsets(context), self.filter_servers, self.quota_gate
        )
        self.offsets = OffsetHandler(context, ensure_group)
        self.queries = QueryHandler(context)
        self.client_requests = ClientRequests()
        self.client_request_handler = ClientRequestHandler(context, self.client_requests)

    def _create_topic_and_send_handlers(self, start: Start) -> None:
        """Topics, transactions, and everything that stores messages of clients."""
        context = self.context
        self.topic_handler = TopicHandler(
            context, self.pulls, start.policy, self.access_gate, self.quota_gate
        )
        self._create_transaction_handlers()
        self.storage_quotas = StorageQuotas(context, self.quota_gate.counts)
        self.send_handler = SendHandler(context, self.topic_handler.ensure, self.storage_quotas)
        self.coalesced_sends = CoalescedSends(context, self.send_handler)
        self.send_back = SendBackHandler(context)
        self.single_sends = SingleSends(context, self.send_handler, self.send_back)
        self.coalesced_single_sends = CoalescedSingleSends(context, self.single_sends)
        self.reply_handler = ReplyHandler(context, self.send_handler, self.client_requests)

    def _create_transaction_handlers(self) -> None:
        """Half messages and check-backs; sets the targets of `redirects`."""
        context = self.context
        self.transactions = TransactionHandler(context)
        self.coalesced_ends = CoalescedEnds(context, self.transactions)
        batch_log = BatchLog(context, self.transactions)
        self.redirects.halves = self.transactions
        self.redirects.half_frames = batch_log
        ends = BatchEnds(context, self.transactions, batch_log)
        self.batch_handler = BatchHandler(context, self.transactions, ends, self.access_gate)
        self.check_backs = CheckBacks(context, self.transactions)
        self.check_backs.may_know = self.access_gate.may_know

    def _create_operator_handlers(self, start: Start) -> None:
        """Groups, the broker itself, and its history."""
        context = self.context
        gate, (host, port) = self.access_gate, start.store_host
        ensure_group = self.members.ensure_group
        address = f"{host}:{port}"
        self.lag_handler = ConsumerLagHandler(context, self.statistics, address, gate)
        self.group_handler = GroupHandler(context, ensure_group, gate, self.quota_gate)
        self.access_handler = AccessHandler(context, gate, start.secrets)
        self.plain_acl_handler = PlainAclHandler(context, gate, start.secrets)
        self.broker_handler = BrokerHandler(
            context,
            start.registry,
            self.apply,
            self.topic_handler.wanted_by,
            start.figures,
            gate,
        )
        self.history = HistoryHandler(
            context,
            self.pulls,
            start.registry,
            self.topic_handler,
            self.group_handler,
            self.broker_handler,
            gate,
        )

    def _apply_copied(self, events: Sequence[Event]) -> None:
        """Apply decisions of the leader that are in the copied log."""
        self.broker_handler.put_into_force(events)
        if any(isinstance(event, LogDeleted) for event in events):
            self.retention.deletion_started()

    def apply(self, key: str, value: bool | int | str) -> None:
        """Apply one dynamic setting; the service applies the keys of other components."""
        if key in _POLICY_SETTINGS:
            self.policy.change(**{_POLICY_SETTINGS[key].name: value})
        match key, value:
            case "syncFlushTimeout", int():
                self.confirmations.flush_timeout_ms = value
            case "channelExpiredTimeout", int():
                self.membership.expiry_ms = value
            case "groupSubscriptionPolicy", str():
                self.membership.policy = SubscriptionPolicy(value)
            case "flushConsumerOffsetInterval", int():
                self.commits.interval_ms = value
