"""What the request handlers of one broker share: its settings, its state and its log.

State: none of its own; each member documents its state in its module.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.engine.control import ControlState
from kourou.engine.disk_pressure import DiskPressure
from kourou.engine.groups.membership import GroupMembership
from kourou.engine.groups.progress import Commits
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import StoreView
from kourou.engine.sends.appends import Appends
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.deduplication import Deduplication
from kourou.engine.sends.recorder import PendingReplies, Recorder
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.engine.statistics import Traffic
from kourou.protocol.record.layout import Host


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The parts of a broker that more than one handler needs.

    `store_host` is the address in message IDs, `host` the same as records contain it.
    `segment_size` is that of the log's files.
    """

    policy: BrokerPolicy
    control: ControlState
    view: StoreView
    store_host: Host
    host: bytes
    segment_size: int
    traffic: Traffic
    commits: Commits
    confirmations: Confirmations
    appends: Appends
    recorder: Recorder
    pending_replies: PendingReplies
    members: GroupMembership
    pressure: DiskPressure
    redirects: Redirects
    deduplication: Deduplication
