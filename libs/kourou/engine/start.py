"""What a broker's core starts from, and the objects that its request handlers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kourou.authorization.request_gate import SecretBox
from kourou.engine.context import BrokerContext
from kourou.engine.control import ControlState
from kourou.engine.disk_pressure import DiskPressure
from kourou.engine.groups.membership import GroupMembership
from kourou.engine.groups.progress import Commits
from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.policy import EffectivePolicy
from kourou.engine.ports import StoreView
from kourou.engine.roles.role import STANDALONE, RoleSettings
from kourou.engine.sends.appends import Appends, LogEnd
from kourou.engine.sends.confirmations import CommitStart
from kourou.engine.sends.deduplication import Deduplication
from kourou.engine.sends.recorder import PendingReplies, Recorder
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.engine.statistics import Traffic
from kourou.protocol.record.layout import Host, encode_host
from kourou.settings.registry import SettingsRegistry


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a broker's core starts from. `store_host` is the address in message IDs.

    `delays` is the progress of the delay levels (level -> next offset) if another broker made some.
    `secrets` None: it cannot keep users' secrets. `knows_replicas`: all who reach the listener for
    replicas are replicas. `uncopied`: the log has never had all of its leader's, if it has one.
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
    role: RoleSettings = STANDALONE
    secrets: SecretBox | None = None
    knows_replicas: bool = False
    uncopied: bool = False


def create_context(start: Start) -> BrokerContext:
    """Create what the handlers share."""
    policy, control, view = start.policy, start.control, start.view
    commit = CommitStart(
        end=start.log.end,
        flushed=start.flushed,
        sync_flush=start.sync_flush,
        flush_timeout_ms=start.flush_timeout_ms,
        staged=start.staged,
    )
    confirmations = start.role.confirmations(commit)
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
        deduplication=Deduplication(view, appends),
    )
