"""Creates and connects the request handlers of a broker.

State: none of its own; each handler documents its state in its module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kourou.engine.admin.bootstrap_handler import BootstrapHandler
from kourou.engine.admin.broker_handler import BrokerHandler
from kourou.engine.admin.history_handler import HistoryHandler
from kourou.engine.admin.log_handler import LogHandler
from kourou.engine.admin.topic_handler import TopicHandler
from kourou.engine.control import ControlState
from kourou.engine.delays.delivery import Delays
from kourou.engine.filters.filter_handler import FilterHandler
from kourou.engine.filters.filter_server_handler import FilterServerHandler
from kourou.engine.filters.filter_servers import FilterServers
from kourou.engine.groups.client_request_handler import ClientRequestHandler
from kourou.engine.groups.client_requests import Asking
from kourou.engine.groups.consumer_lag import GroupFigures
from kourou.engine.groups.group_handler import GroupHandler
from kourou.engine.groups.lock_handler import LockHandler
from kourou.engine.groups.member_handler import MemberHandler
from kourou.engine.groups.membership import Membership
from kourou.engine.groups.progress import Commits
from kourou.engine.groups.queue_locks import QueueLocks
from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.policy import BrokerPolicy, EffectivePolicy
from kourou.engine.ports import StoreView
from kourou.engine.pulls.moved_offsets import MovedOffsets
from kourou.engine.pulls.offset_handler import OffsetHandler
from kourou.engine.pulls.pull_handler import Pulls
from kourou.engine.pulls.query_handler import QueryHandler
from kourou.engine.pulls.send_back import SendBack
from kourou.engine.retention.disk_pressure import DiskPressure
from kourou.engine.retention.retention_handler import RetentionHandler
from kourou.engine.roles.copied_log import CopiedLog, FollowedConfirmations
from kourou.engine.roles.follower import FollowerRole, Following
from kourou.engine.roles.leader import LeaderRole, Leading
from kourou.engine.roles.quorum_follower import QuorumFollowing
from kourou.engine.roles.quorum_leader import QuorumLeading
from kourou.engine.roles.quorum_roles import QuorumFollowerRole, QuorumLeaderRole
from kourou.engine.roles.replica_handler import ReplicaHandler
from kourou.engine.sends.appends import Appends, LogEnd
from kourou.engine.sends.batched_sends import JointSends
from kourou.engine.sends.batched_single_sends import JointSingles
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.copied_confirmations import CopiedConfirmations
from kourou.engine.sends.deduplication import Repeats
from kourou.engine.sends.pending_replies import PendingReplies
from kourou.engine.sends.quorum_confirmations import QuorumConfirmations
from kourou.engine.sends.recorder import Recorder
from kourou.engine.sends.reply_handler import ReplyHandler
from kourou.engine.sends.send_handler import Sending
from kourou.engine.sends.single_sends import SingleSends
from kourou.engine.sends.topic_registration import TopicRegistration
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.engine.statistics import Statistics
from kourou.engine.traffic import Traffic
from kourou.engine.transactions.batch_ends import BatchEnds
from kourou.engine.transactions.batch_handler import BatchHandler
from kourou.engine.transactions.batch_log import BatchLog
from kourou.engine.transactions.batched_ends import JointEnds
from kourou.engine.transactions.check_backs import CheckBacks
from kourou.engine.transactions.half_messages import HALF_TARGET
from kourou.engine.transactions.transaction_handler import Transactions
from kourou.events.control_events import Event, LogDeleted, UnreadSpan
from kourou.protocol.record.message_record import Host, encode_host
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
    `role` None: this broker cannot have followers.
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


class BrokerParts:
    """All request handlers of one broker."""

    def __init__(self, start: Start) -> None:
        policy, control, view = start.policy, start.control, start.view
        self.policy, self.control, self.view = policy, control, view
        self.traffic = Traffic()
        self.statistics = Statistics(self.traffic, policy.cluster_name)
        self.asking = Asking()
        self.topic_registration = TopicRegistration()
        self.commits = Commits(control.progress, policy.progress_interval_ms)
        self.confirmations = _confirmations(start)
        self.appends = Appends(view, start.log, start.store_host, control.topics.retired)
        host = encode_host(start.store_host)
        self.recorder = Recorder(control, self.appends, self.confirmations, host)
        self.membership = Membership(
            expiry_ms=policy.client_expiry_ms,
            policy=SubscriptionPolicy(policy.group_subscription_policy),
        )
        self.pending_replies = PendingReplies(self.recorder, self.confirmations)
        self.repeats = Repeats(view, self.appends)
        self.pressure = DiskPressure(policy)
        self.retention = RetentionHandler(
            view,
            control,
            self.commits,
            self.recorder,
            policy,
            self.pressure,
            self._waiting_before,
        )
        self.delays = Delays(
            view,
            control,
            self.appends,
            self.confirmations,
            self.pressure,
            policy,
            host,
            start.log.segment_size,
            start.delays,
        )
        self._open_for_order()
        self._open_for_clients(start)
        self._open_for_questions(start)
        self._open_for_operators(start)
        self.leading, self.following = self._open_for_members(start)
        self.log_handler = LogHandler(
            policy,
            view,
            self.confirmations,
            self._epochs_of(start.role),
            start.role.quorum.group if isinstance(start.role, QuorumRole) else "",
        )
        size = start.log.segment_size
        self.beginning = BootstrapHandler(policy, control, view, self.retention, size)
        self.replica_handler = ReplicaHandler(
            policy, control, view, self.confirmations, self.leading, self.following
        )

    def _waiting_before(self, position: int) -> list[UnreadSpan]:
        """Return messages below a log position that are not due, or not resolved yet."""
        low, _ = self.view.queue_range(*HALF_TARGET) or (0, 0)
        halves = self.transactions.halves.spans_before(position, low)
        return self.delays.waiting_before(position) + halves

    def _open_for_order(self) -> None:
        """Queue locks for ordered consumption."""
        self.locks = QueueLocks(self.control.locks)
        self.lock_handler = LockHandler(
            self.locks, self.membership, self.recorder, self.confirmations, self.policy
        )

    def _open_for_clients(self, start: Start) -> None:
        """Sends, pulls, offsets, message queries, consumers."""
        policy, control, view = self.policy, self.control, self.view
        self.members = MemberHandler(
            control, self.membership, self.recorder, self.confirmations, policy
        )
        self._open_for_filters()
        ensure_group = self.members.ensure_group
        self.pulls = Pulls(
            view,
            control,
            self.membership,
            self.commits,
            self.confirmations,
            policy,
            self.traffic,
            ensure_group,
            self._moved_offsets(start),
            self.filter_servers,
        )
        self.topic_handler = TopicHandler(
            control,
            self.commits,
            self.membership,
            self.recorder,
            self.appends,
            self.pending_replies,
            self.pulls,
            view,
            policy,
            policy.broker_name,
        )
        self.redirects = Redirects(policy.delay_levels_ms)
        self._open_transactions(start)
        self.sending = Sending(
            control,
            self.appends,
            self.confirmations,
            self.repeats,
            policy,
            self.traffic,
            self.topic_handler.ensure,
            self.pressure,
            self.redirects,
        )
        sending, appends, owed = self.sending, self.appends, self.confirmations
        self.joint_sends = JointSends(sending, appends, owed, self.repeats, policy, self.redirects)
        self.send_back = SendBack(
            view,
            control,
            self.appends,
            self.confirmations,
            self.recorder,
            self.redirects,
            self.pressure,
            policy,
            self.traffic,
        )
        self.single_sends = SingleSends(
            self.sending,
            self.appends,
            self.confirmations,
            policy,
            self.traffic,
            start.store_host,
            self.redirects,
            self.send_back,
        )
        self.joint_singles = JointSingles(self.single_sends, self.appends, self.redirects)
        self.offsets = OffsetHandler(view, control, self.commits, ensure_group, self.confirmations)

    def _open_for_filters(self) -> None:
        """Filters in Python, and the filter servers that run them."""
        self.filter_servers = FilterServers()
        self.filter_server_handler = FilterServerHandler(
            self.filter_servers, self.control, self.recorder, self.confirmations, self.policy
        )
        self.filter_handler = FilterHandler(
            self.control,
            self.pending_replies,
            self.filter_servers,
            self.policy,
            self.members.ensure_group,
        )

    def _open_transactions(self, start: Start) -> None:
        """Half messages and check-backs; sets the targets of `redirects`."""
        self.transactions = Transactions(
            self.view,
            self.control,
            self.commits,
            self.appends,
            self.confirmations,
            self.recorder,
            self.pressure,
            self.policy,
            encode_host(start.store_host),
        )
        self.joint_ends = JointEnds(self.transactions, self.appends)
        self.redirects.halves = self.transactions
        batch_log = BatchLog(self.transactions, self.view, self.appends, self.confirmations)
        self.redirects.half_frames = batch_log
        self.batch_handler = BatchHandler(
            self.control,
            self.transactions,
            BatchEnds(self.transactions, self.redirects, batch_log, encode_host(start.store_host)),
            self.pending_replies,
            self.recorder,
            self.pressure,
            self.policy,
        )
        self.check_backs = CheckBacks(
            self.transactions, self.membership, self.policy, self.pressure, start.store_host
        )

    def _moved_offsets(self, start: Start) -> MovedOffsets:
        return MovedOffsets(
            self.appends,
            self.confirmations,
            self.pressure,
            self.policy.broker_name,
            encode_host(start.store_host),
        )

    def _open_for_questions(self, start: Start) -> None:
        """Queries, metrics, replies, and requests that are forwarded to clients."""
        policy, control, view = self.policy, self.control, self.view
        self.queries = QueryHandler(view, self.confirmations, self.membership, policy)
        self.reply_handler = ReplyHandler(
            self.sending,
            self.appends,
            self.confirmations,
            self.membership,
            self.asking,
            policy,
            self.traffic,
            start.store_host,
        )
        self.client_request_handler = ClientRequestHandler(
            self.membership, self.asking, view, self.confirmations, policy
        )
        host, port = start.store_host
        self.group_figures = GroupFigures(
            control,
            self.commits,
            self.membership,
            view,
            self.statistics,
            policy.broker_name,
            f"{host}:{port}",
        )

    def _open_for_operators(self, start: Start) -> None:
        """Groups and the broker itself; topics are created where sends need them."""
        policy, control, view = self.policy, self.control, self.view
        self.group_handler = GroupHandler(
            control,
            self.commits,
            self.membership,
            self.pending_replies,
            view,
            policy.broker_name,
            self.members.ensure_group,
        )
        self.broker_handler = BrokerHandler(
            control,
            self.confirmations,
            self.pending_replies,
            view,
            start.registry,
            self.apply,
            self.topic_handler.wanted_by,
            start.figures,
        )
        self.history = HistoryHandler(
            control,
            self.commits,
            self.confirmations,
            self.appends,
            self.pending_replies,
            self.pulls,
            view,
            start.registry,
            self.topic_handler,
            self.group_handler,
            self.broker_handler,
        )

    def _open_for_members(
        self, start: Start
    ) -> tuple[Leading | QuorumLeading | None, Following | QuorumFollowing | None]:
        """Create the leader or the follower of this log, depending on the role."""
        policy, control, view = self.policy, self.control, self.view
        appends, confirmations = self.appends, self.confirmations
        role, recorder = start.role, self.recorder
        self.pulls.heals = isinstance(role, QuorumRole)
        match role:
            case LeaderRole():
                return (
                    Leading(role, policy, control, view, appends, confirmations, recorder),
                    None,
                )
            case QuorumLeaderRole():
                return QuorumLeading(role, policy, appends, confirmations, recorder), None
            case FollowerRole() | QuorumFollowerRole():
                assert isinstance(confirmations, FollowedConfirmations)
                self.pulls.follows = True
                log = CopiedLog(control, view, appends, confirmations, self._decided_elsewhere)
                if isinstance(role, QuorumFollowerRole):
                    return None, QuorumFollowing(role.quorum, policy, appends, log)
                return None, Following(role, policy, control, view, appends, confirmations, log)
            case None:
                return None, None

    def _epochs_of(self, role: Role | None) -> Callable[[], Epochs]:
        """Return the epochs of what is written, which a replica may not have read yet."""
        if isinstance(role, QuorumRole):
            quorum = role.quorum
            return lambda: quorum.epochs
        following = self.following
        if isinstance(following, Following):
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


def _confirmations(start: Start) -> Confirmations:
    """Create the rule that decides when senders of this broker get their replies."""
    end, flushed, role = start.log.end, start.flushed, start.role
    if isinstance(role, FollowerRole):
        return FollowedConfirmations(end=end, flushed=flushed, told=end)
    if isinstance(role, QuorumFollowerRole):
        return FollowedConfirmations(end=end, flushed=flushed, told=role.quorum.confirmed)
    if isinstance(role, QuorumLeaderRole):
        return QuorumConfirmations(
            role.quorum,
            flush_timeout_ms=start.flush_timeout_ms,
            end=end,
            flushed=flushed,
            slave_timeout_ms=role.slave_timeout_ms,
        )
    if isinstance(role, LeaderRole) and role.sync:
        return CopiedConfirmations(
            sync_flush=start.sync_flush,
            flush_timeout_ms=start.flush_timeout_ms,
            end=end,
            flushed=flushed,
            staged=start.staged,
            slave_timeout_ms=role.slave_timeout_ms,
        )
    return Confirmations(
        sync_flush=start.sync_flush,
        flush_timeout_ms=start.flush_timeout_ms,
        end=end,
        flushed=flushed,
        staged=start.staged,
    )
