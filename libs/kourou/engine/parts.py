"""Creates and connects the request handlers of a broker.

State: none of its own; each handler documents its state in its module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kourou.authorization.request_gate import SecretBox
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.access_handler import AccessHandler
from kourou.engine.admin.broker_handler import BrokerHandler
from kourou.engine.admin.history_handler import HistoryHandler
from kourou.engine.admin.log_handler import BootstrapHandler, LogHandler
from kourou.engine.admin.plain_acl_handler import PlainAclHandler
from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.admin.topic_handler import TopicHandler, TopicRegistration
from kourou.engine.context import BrokerContext
from kourou.engine.control import ControlState
from kourou.engine.delays.delivery import Delays
from kourou.engine.filters.filter_handler import FilterHandler
from kourou.engine.filters.filter_servers import FilterServerHandler, FilterServerTable
from kourou.engine.groups.client_requests import ClientRequestHandler, ClientRequests
from kourou.engine.groups.group_handler import ConsumerLagHandler, GroupHandler
from kourou.engine.groups.member_handler import LockHandler, MemberHandler
from kourou.engine.groups.membership import GroupMembership
from kourou.engine.groups.progress import Commits
from kourou.engine.groups.queue_locks import QueueLocks
from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.policy import BrokerPolicy, EffectivePolicy
from kourou.engine.ports import StoreView
from kourou.engine.pulls.moved_offsets import MovedOffsets
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.pulls.query_handler import OffsetHandler, QueryHandler
from kourou.engine.pulls.send_back import SendBackHandler
from kourou.engine.retention.disk_pressure import DiskPressure
from kourou.engine.retention.retention_handler import RetentionHandler
from kourou.engine.roles.copied_log import CopiedLog
from kourou.engine.roles.follower import FollowerRole, StaticFollower
from kourou.engine.roles.leader import LeaderRole, StaticLeader
from kourou.engine.roles.quorum import (
    QuorumFollower,
    QuorumFollowerRole,
    QuorumLeader,
    QuorumLeaderRole,
)
from kourou.engine.roles.replica_handler import ReplicaHandler
from kourou.engine.sends.appends import Appends, LogEnd
from kourou.engine.sends.confirmations import CommitStart, Confirmations
from kourou.engine.sends.deduplication import Repeats
from kourou.engine.sends.recorder import PendingReplies, Recorder
from kourou.engine.sends.reply_handler import ReplyHandler
from kourou.engine.sends.send_handler import JointSends, SendHandler
from kourou.engine.sends.single_sends import JointSingles, SingleSends
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.engine.statistics import Statistics
from kourou.engine.traffic import Traffic
from kourou.engine.transactions.batch_handler import BatchEnds, BatchHandler
from kourou.engine.transactions.batch_log import BatchLog
from kourou.engine.transactions.check_backs import CheckBacks
from kourou.engine.transactions.half_messages import HALF_TARGET
from kourou.engine.transactions.transaction_handler import JointEnds, TransactionHandler
from kourou.events.control_events import Event, LogDeleted, UnreadSpan
from kourou.protocol.record.layout import Host, encode_host
from kourou.replication.epochs import Epochs
from kourou.settings.declaration import settings_of
from kourou.settings.registry import SettingsRegistry

QuorumRole = QuorumLeaderRole | QuorumFollowerRole
Role = LeaderRole | FollowerRole | QuorumRole
"""How a broker leads or follows. A broker without a role leads a log that cannot be followed."""


_POLICY_SETTINGS = {one.key: one for one in settings_of(BrokerPolicy)}


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a broker's core starts from. `store_host` is the address in message IDs.

    `delays` is the progress of the delay levels (level -> next offset) if another broker made some.
    `role` None: this broker cannot have followers. `secrets` None: it cannot keep users' secrets.
    `knows_replicas`: all who reach the listener for replicas are replicas.
    """

    view: StoreView
    control: ControlState
    log: LogEnd
    flushed: int
    store_host: Host
    policy: EffectivePolicy
    registry: SettingsRegistry
    sync_flush: bool
    flush_timeout_ms: int
    figures: Callable[[], Mapping[str, str]]
    staged: bool = False
    delays: Mapping[int, int] = field(default_factory=dict)
    role: Role | None = None
    secrets: SecretBox | None = None
    knows_replicas: bool = False


class BrokerParts:
    """All request handlers of one broker."""

    def __init__(self, start: Start) -> None:
        self.policy, self.control, self.view = start.policy, start.control, start.view
        self.context = context = _context(start)
        self.traffic, self.commits = context.traffic, context.commits
        self.confirmations, self.appends = context.confirmations, context.appends
        self.recorder, self.membership = context.recorder, context.members
        self.pressure, self.redirects = context.pressure, context.redirects
        self.repeats = context.repeats
        self.access_gate = AccessGate(context, start.secrets, knows_replicas=start.knows_replicas)
        self.statistics = Statistics(self.traffic, self.policy.cluster_name)
        self.topic_registration = TopicRegistration()
        self.retention = RetentionHandler(context, self._waiting_before)
        self.delays = Delays(context, start.delays)
        self._create_client_handlers()
        self._create_topic_and_send_handlers(start)
        self._create_operator_handlers(start)
        self.leading, self.following = self._create_role(start)
        group = start.role.quorum.group if isinstance(start.role, QuorumRole) else ""
        self.log_handler = LogHandler(context, self._epochs_of(start.role), group)
        self.beginning = BootstrapHandler(context, self.retention)
        self.replica_handler = ReplicaHandler(context, self.leading, self.following)

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
        self.members = MemberHandler(context, self.access_gate)
        ensure_group = self.members.ensure_group
        self.quota_gate = QuotaGate(context, self.access_gate)
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
        self.asking = ClientRequests()
        self.client_request_handler = ClientRequestHandler(context, self.asking)

    def _create_topic_and_send_handlers(self, start: Start) -> None:
        """Topics, transactions, and everything that stores messages of clients."""
        context = self.context
        self.topic_handler = TopicHandler(
            context, self.pulls, start.policy, self.access_gate, self.quota_gate
        )
        self._create_transaction_handlers()
        self.sending = SendHandler(context, self.topic_handler.ensure)
        self.joint_sends = JointSends(context, self.sending)
        self.send_back = SendBackHandler(context)
        self.single_sends = SingleSends(context, self.sending, self.send_back)
        self.joint_singles = JointSingles(context, self.single_sends)
        self.reply_handler = ReplyHandler(context, self.sending, self.asking)

    def _create_transaction_handlers(self) -> None:
        """Half messages and check-backs; sets the targets of `redirects`."""
        context = self.context
        self.transactions = TransactionHandler(context)
        self.joint_ends = JointEnds(context, self.transactions)
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
        address = f"{host}:{port}"
        self.group_figures = ConsumerLagHandler(context, self.statistics, address, gate)
        self.group_handler = GroupHandler(context, self.members.ensure_group, gate)
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

    def _create_role(
        self, start: Start
    ) -> tuple[StaticLeader | QuorumLeader | None, StaticFollower | QuorumFollower | None]:
        """Create the leader or the follower of this log, depending on the role."""
        context, role = self.context, start.role
        self.pulls.heals = isinstance(role, QuorumRole)
        match role:
            case LeaderRole():
                return StaticLeader(context, role), None
            case QuorumLeaderRole():
                return QuorumLeader(context, role), None
            case FollowerRole() | QuorumFollowerRole():
                self.pulls.follows = True
                log = CopiedLog(context, self._decided_elsewhere)
                if isinstance(role, QuorumFollowerRole):
                    return None, QuorumFollower(context, role.quorum, log)
                return None, StaticFollower(context, role, log)
            case None:
                return None, None

    def _epochs_of(self, role: Role | None) -> Callable[[], Epochs]:
        """Return the epochs of what is written, which a replica may not have read yet."""
        if isinstance(role, QuorumRole):
            quorum = role.quorum
            return lambda: quorum.epochs
        following = self.following
        if isinstance(following, StaticFollower):
            return lambda: following.copying.epochs
        return lambda: Epochs(self.control.replicas.epochs, self.appends.end)

    def _decided_elsewhere(self, events: Sequence[Event]) -> None:
        """Apply decisions of the leader that are in the copied log."""
        self.broker_handler.put_into_force(events)
        if any(isinstance(event, LogDeleted) for event in events):
            self.retention.follows()

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


def _context(start: Start) -> BrokerContext:
    """Create what the handlers share."""
    policy, control, view = start.policy, start.control, start.view
    commit = CommitStart(
        end=start.log.end,
        flushed=start.flushed,
        sync_flush=start.sync_flush,
        flush_timeout_ms=start.flush_timeout_ms,
        staged=start.staged,
    )
    role = start.role
    confirmations = Confirmations(commit) if role is None else role.confirmations(commit)
    appends = Appends(view, start.log, start.store_host, control.topics.retired)
    host = encode_host(start.store_host)
    recorder = Recorder(control, appends, confirmations, host)
    return BrokerContext(
        policy=policy,
        control=control,
        view=view,
        store_host=start.store_host,
        host=host,
        segment_size=start.log.segment_size,
        traffic=Traffic(),
        commits=Commits(control.progress, policy.progress_interval_ms),
        confirmations=confirmations,
        appends=appends,
        recorder=recorder,
        pending_replies=PendingReplies(recorder, confirmations),
        members=GroupMembership(
            expiry_ms=policy.client_expiry_ms,
            policy=SubscriptionPolicy(policy.group_subscription_policy),
        ),
        pressure=DiskPressure(policy),
        redirects=Redirects(policy.delay_levels_ms),
        repeats=Repeats(view, appends),
    )
