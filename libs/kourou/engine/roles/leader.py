"""A static leader: followers attach, receive the log, and count (ASYNC_MASTER, SYNC_MASTER).

State: soft, except EpochOpened and InSyncChanged, which are recorded (engine.roles.replicas).

A log that has an epoch gets a new one at every start of its leader. A log that never had a follower
gets one when the first follower attaches; see kourou.replication.epochs. Without followers
this module does nothing: `active` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kourou.engine.context import BrokerContext
from kourou.engine.effects import ChangeRole, Effect, Flush
from kourou.engine.inputs import Fenced, RoleInput
from kourou.engine.ports import ANYWHERE
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.roles.replicas import member_name
from kourou.engine.roles.role import Role, RoleHandlers
from kourou.engine.sends.confirmations import (
    CommitStart,
    Confirmations,
    CopiedConfirmations,
)
from kourou.errors import KourouError, Rejected
from kourou.events.control_events import Cause, EpochOpened, Event, InSyncChanged
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.messages.replication import Attach, Attached, ChunkAck
from kourou.replication.epochs import Epochs, next_epoch
from kourou.replication.progress import InSync, named
from kourou.replication.static_leader import AttachedFollower, Bounds, ChunkSource, Shipping
from kourou.runtime import LogWarning, Notify, Peer, Received

ASYNC_MASTER, SYNC_MASTER = "ASYNC_MASTER", "SYNC_MASTER"


@dataclass(frozen=True, slots=True)
class LeaderRole:
    """The settings of a leader. `ack_on_flush`: a replica counts when it has flushed.

    `epoch`: the one to open first, that of a promotion; 0: the next of this leader's own.
    `may_follow`: a leader that is replaced by another leader becomes its follower.
    """

    chunks: ChunkSource
    sync: bool = False
    ack_on_flush: bool = False
    fallbehind_max: int = 256 * 1024 * 1024
    slave_timeout_ms: int = 3_000
    epoch: int = 0
    may_follow: bool = False

    def confirmations(self, start: CommitStart) -> Confirmations:
        """Create the rule that decides when senders get their replies."""
        if not self.sync:
            return Confirmations(start)
        return CopiedConfirmations(start, self.slave_timeout_ms)

    def create(
        self, context: BrokerContext, pulls: PullHandler, apply: Callable[[Sequence[Event]], None]
    ) -> Role:
        """Create the role."""
        del apply
        return StaticLeader(context, pulls, self)


class StaticLeader(Role):
    """Leads one log. It is active while a follower is attached or in sync."""

    def __init__(self, context: BrokerContext, pulls: PullHandler, settings: LeaderRole) -> None:
        super().__init__(context, pulls)
        self._settings = settings
        epochs = Epochs(context.control.replicas.epochs, context.appends.end)
        self._shipping = Shipping(
            context.policy.cluster_name, context.policy.broker_name, settings.chunks, epochs
        )
        self._shipping.leader = member_name(context.policy.broker_name, context.policy.broker_id)
        self._in_sync = InSync(settings.fallbehind_max, settings.slave_timeout_ms)
        self._open = False
        self._reason = ""
        self._wall_ms = 0
        self._reported = ""

    def handlers(self) -> RoleHandlers:
        """Return the handlers; replicas' requests come in on their own listener only."""
        return {**super().handlers(), Attach: self.attach, ChunkAck: self.acked}

    def handle(self, now_ms: int, item: RoleInput) -> list[Effect]:
        """Handle a name server's report that another broker leads, in a higher epoch."""
        del now_ms
        if not isinstance(item, Fenced):
            return []
        if item.epoch > self._shipping.epoch:
            self._shipping.fenced = max(self._shipping.fenced, item.epoch)
        return self._fence()

    @property
    def followers(self) -> list[AttachedFollower]:
        """All attached followers."""
        return list(self._shipping.followers)

    @property
    def followers_have(self) -> int:
        """All attached followers have the log below this position; ANYWHERE without followers."""
        return min((one.progress.written for one in self._shipping.followers), default=ANYWHERE)

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The in-sync set, by brokerId."""
        return self._in_sync.members

    @property
    def broker_role(self) -> str:
        """RocketMQ's name for the role."""
        return SYNC_MASTER if self._settings.sync else ASYNC_MASTER

    @property
    def fenced(self) -> int:
        """The epoch of a leader that replaced this one; 0 if there is none."""
        return self._shipping.fenced

    def lag_ms(self, now_ms: int, broker_id: int) -> int | None:
        """Return how long ago a follower had the whole log; None if never since it attached."""
        return self._in_sync.lag_ms(now_ms, broker_id, self._view.log_range()[1])

    def _describe(self, view: ReplicasView, now_ms: int) -> ReplicasView:
        """Add what this leader knows of its followers."""
        followers = tuple(
            FollowerView(
                broker_id=one.broker_id,
                address=str(one.to),
                state=one.progress.state.name,
                written=one.progress.written,
                flushed=one.progress.flushed,
                lag_bytes=one.progress.lag(view.end),
                lag_ms=self.lag_ms(now_ms, one.broker_id),
                in_sync=one.broker_id in view.in_sync,
            )
            for one in sorted(self.followers, key=lambda one: one.broker_id)
        )
        return replace(view, broker_role=self.broker_role, fenced=self.fenced, followers=followers)

    def _check_promotion(self, _now_ms: int, *, force: bool) -> tuple[int, int]:
        """Check the promotion of a leader that was replaced and is to lead again.

        Its own records then become the log.
        """
        if not self.fenced:
            raise Rejected(
                f"this broker is the leader already, in epoch {self._control.replicas.epoch}"
            )
        if not force:
            raise Rejected(
                f"another broker is the leader of this log, in epoch {self.fenced}",
                hint="force replaces it, and messages that it stored since are lost",
            )
        return self.fenced, 0

    # -- epochs -----------------------------------------------------------------------------------

    def start(self, wall_ms: int) -> None:
        """Begin a new epoch if the log has epochs; the core takes the appends.

        Raises as recording does.
        """
        self._wall_ms = wall_ms
        if self._control.replicas.epochs or self._settings.epoch:
            self._open_epoch()

    def _open_epoch(self) -> None:
        shipping, start = self._shipping, self._appends.end
        newest = shipping.epochs.newest
        epoch = max(self._settings.epoch, next_epoch(newest, self._policy.broker_id))
        opened = EpochOpened(epoch, start, shipping.leader, self.broker_role)
        self._recorder.record([opened], Cause("broker", "becomes leader"), self._wall_ms)
        shipping.epochs.extend(start)
        shipping.epochs.open(epoch, start)
        shipping.opened_end = self._appends.end
        self._open = True

    # -- followers --------------------------------------------------------------------------------

    def attach(self, now_ms: int, received: Received, request: Attach) -> list[Effect]:
        """Handle a follower's request for the log."""
        self._wall_ms = max(self._wall_ms, received.wall_ms)
        peer, shipping = received.to.peer, self._shipping
        refusal = shipping.refusal(request)
        effects: list[Effect] = []
        if refusal:
            answer = Attached(
                broker_name=self._policy.broker_name,
                broker_id=request.broker_id,
                epoch=shipping.epoch,
                refusal=refusal,
            )
        else:
            if not self._open:
                self._open_epoch()
            if self._confirmations.flushed < shipping.opened_end:
                effects.append(Flush())
            answer = shipping.attach(now_ms, peer, request, self._bounds())
            self.active = True
            if not answer.refusal:
                self._in_sync.attached(request.broker_id)
        if answer.refusal:
            effects += self._report_once(
                LogWarning(
                    "follower-refused: %(peer)s cannot replicate from this broker: %(refusal)s",
                    {"peer": peer, "refusal": answer.refusal},
                )
            )
        return [*effects, Notify(peer, answer), *self._fence()]

    def acked(self, now_ms: int, received: Received, request: ChunkAck) -> list[Effect]:
        """Handle a follower's report of what it has."""
        follower = self._shipping.answered(now_ms, received.to.peer, request)
        if follower is not None:
            progress = follower.progress
            has = progress.flushed if self._settings.ack_on_flush else progress.written
            self._in_sync.acknowledged(now_ms, follower.broker_id, has, self._view.log_range()[1])
        return self._fence()

    def drop_peer(self, peer: Peer) -> None:
        """Detach the follower of a closed connection."""
        follower = self._shipping.detach(peer)
        if follower is not None:
            self._in_sync.detached(follower.broker_id)

    def _fence(self) -> list[Effect]:
        """If another broker leads this log, refuse writes and fail pending replies."""
        fenced = self._shipping.fenced
        if not fenced or self._reported == "fenced":
            return []
        self._reported = "fenced"
        text = (
            f"another broker is the leader of this log: it started epoch {fenced}, "
            "which ends the epoch of this broker"
        )
        self._appends.refuse(text)
        answers = self._confirmations.fail(text)
        if self._settings.may_follow:
            return [
                LogWarning(
                    "leader-superseded: %(reason)s; this broker becomes a follower",
                    {"reason": text},
                ),
                *answers,
                ChangeRole(False, fenced),
            ]
        warning = LogWarning(
            "leader-fenced: %(reason)s; stop this broker, and restart it as a follower",
            {"reason": text},
        )
        return [warning, *answers]

    # -- timers and batches -----------------------------------------------------------------------

    def tick(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """Note the wall clock, and release replies that waited too long."""
        self._wall_ms = wall_ms
        return super().tick(now_ms, wall_ms)

    def end_batch(self, now_ms: int) -> list[Effect]:
        """Update the in-sync set, release replies, ship the log, notify readers."""
        effects: list[Effect] = []
        if self._settings.sync and not self._shipping.fenced:
            effects += self._update_in_sync(now_ms, self._view.log_range()[1])
            members = self._in_sync.members
            effects += self._confirmations.copied_to(self._in_sync.copied, len(members))
        bounds = self._bounds()  # only now: this batch ships the new committed position
        flush = self._settings.sync and self._settings.ack_on_flush
        for shipment in self._shipping.ship(now_ms, bounds, flush=flush):
            assert isinstance(shipment.to, Peer)
            body = (shipment.data,) if len(shipment.data) else ()
            effects.append(Notify(shipment.to, shipment.chunk, body))
        self.active = bool(self._shipping) or bool(self._in_sync.members)
        effects = [*self._appends.take_done(), *effects]
        return [*effects, *self.committed(now_ms)] if self._uncommitted else effects

    def _update_in_sync(self, now_ms: int, end: int) -> list[Effect]:
        """Record the in-sync replicas if they changed; retry if the write fails."""
        change = self._in_sync.update(now_ms, end)
        if change is not None:
            self._reason = change.reason
        members, recorded = self._in_sync.members, self._control.replicas.in_sync
        if members == recorded:
            return []
        event = InSyncChanged(members, recorded, self._reason)
        try:
            self._recorder.record([event], Cause("broker", self._reason), self._wall_ms)
        except KourouError as error:
            return self._report_once(
                LogWarning(
                    "in-sync-set-unrecorded: the in-sync set is not recorded: %(error)s",
                    {"error": error},
                )
            )
        return [
            LogWarning(
                "in-sync-set-changed: acknowledgements wait for the replicas %(replicas)s: "
                "%(reason)s",
                {"replicas": named(members), "reason": self._reason},
            )
        ]

    def _bounds(self) -> Bounds:
        first, end = self._view.log_range()
        confirmations = self._confirmations
        return Bounds(first, end, confirmations.flushed, confirmations.confirmed)

    def _report_once(self, warning: LogWarning) -> list[Effect]:
        if str(warning) == self._reported:
            return []
        self._reported = str(warning)
        return [warning]
